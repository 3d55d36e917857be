"""Clips on their way in: a video, a zip of frames or an animated picture becomes a bounded row of frames.

Nothing is unpacked to a disk and nothing is decoded beyond the limits. Frames are kept as JPEG files, and
what the model sees are these files: whoever downloads them can compute everything again.
"""

import contextlib
import io
import re
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from app.errors import LabError
from app.files import jpeg
from app.limits import MEGABYTE, Limits
from app.photos import stem
from dino_model import images
from segmentation.masks import ImageArray
from segmentation.propagation import resize_nearest
from segmentation.video import DEFAULT_FPS, VideoError, VideoFile, shrunk

FRAME_SIDE = 854
"""Longer side, in pixels, of the frames that are kept: 16:9 at 480 lines, as in DAVIS."""

JPEG_QUALITY = 95
MAX_OBJECTS = 8
"""So many objects can be followed at once."""
_UNREADABLE = (
    zipfile.BadZipFile,
    NotImplementedError,
    EOFError,
    OSError,
    ValueError,
    SyntaxError,
    zlib.error,
    Image.DecompressionBombError,
)
"""What zipfile and Pillow raise on damaged files."""
ZIP_ENTRIES = 10_000
UNPACKED_SHARE = 4  # a zip may unpack to this many times the largest upload; pictures hardly shrink in a zip


@dataclass(frozen=True)
class Clip:
    """A few seconds of film.

    Attributes:
        name: what its visitor calls it.
        frames: JPEG files of one size, in order.
        size: height and width of the frames.
        sent_size: height and width before they were made smaller.
        fps: frames a second.
        note: what was left out, in one sentence; empty when nothing was.
        marked: objects of the first frame that came along, as runs in reading order, [label, pixels, …].
    """

    name: str
    frames: tuple[bytes, ...]
    size: tuple[int, int]
    sent_size: tuple[int, int]
    fps: float
    note: str = ""
    marked: tuple[int, ...] = ()

    @property
    def stem(self) -> str:
        """The name without suffix and without characters that file systems or headers mind."""
        return stem(self.name, "clip")

    def picture(self, number: int) -> ImageArray:
        """One frame, counted from 0: uint8 [height, width, 3]."""
        return images.read(self.frames[number])

    def pictures(self) -> Iterator[ImageArray]:
        """All frames in order."""
        return (self.picture(number) for number in range(len(self.frames)))


class Film(NamedTuple):
    """Frames that are not decoded yet."""

    pictures: Iterator[ImageArray]
    fps: float
    total: int
    """How many there should be; 0 where nobody knows."""
    labels: NDArray[np.uint8] | None = None
    """Objects of the first frame, where they come along: [height, width], 0 is none."""


def read_bytes(content: bytes, limits: Limits, name: str) -> Clip:
    """`read`, of the bytes of a file."""
    with tempfile.TemporaryDirectory(prefix="dino-lab-clip-") as folder:  # OpenCV reads files only
        file = Path(folder, "clip")
        file.write_bytes(content)
        return read(file, limits, name)


def read(path: Path, limits: Limits, name: str | None = None) -> Clip:
    """A clip from an uploaded file, known by its first bytes, whatever its suffix claims.

    Args:
        path: the file.
        limits: how much of it is used.
        name: what the visitor calls it; left out: the file's name.

    Raises:
        LabError: not a clip, damaged, empty, or beyond the limits.
    """
    name = name or path.name
    try:
        return _take(name, _open(path, name, limits), limits)
    except images.ImageError as error:  # what a decoder said of the damage is not for visitors
        frame, damaged, _ = str(error).partition(" is damaged or cut short")
        raise LabError(f"{name}: {frame}{damaged}.") from error


@contextlib.contextmanager
def _or_damaged(sentence: str) -> Iterator[None]:
    """Say so where a file cannot be read."""
    try:
        yield
    except _UNREADABLE as error:
        raise LabError(sentence) from error


def _open(path: Path, name: str, limits: Limits) -> Film:
    with path.open("rb") as file:
        start = file.read(256)
    for opener, signature in KINDS.values():
        if re.match(signature, start, re.DOTALL):
            return opener(path, name, limits)
    raise LabError(
        f"{name} is empty, or no film that can be read here: "
        "send MP4, MOV, WebM, MKV, AVI, MPEG, OGG, an animated GIF, PNG or WebP, or a zip of pictures."
    )


def _take(name: str, film: Film, limits: Limits) -> Clip:
    """The first frames of a film, as many as the limits allow."""
    most = max(2, min(limits.max_frames, int(limits.max_clip_seconds * film.fps)))
    frames: list[bytes] = []
    size = sent_size = (0, 0)
    for picture in islice(film.pictures, most):
        sent_size = sent_size if frames else picture.shape[:2]
        if picture.shape[:2] != sent_size:
            raise LabError(
                f"{name} has frames of several sizes, {_sides(sent_size)} and {_sides(picture.shape[:2])} "
                "pixels: send frames of one size."
            )
        small = shrunk(picture, FRAME_SIDE)
        size = small.shape[:2]
        frames.append(frame_jpeg(small))
    if len(frames) < 2:
        raise LabError(f"{name} holds {len(frames) or 'no'} readable frame: a clip needs at least two.")
    more = len(frames) == most and next(film.pictures, None) is not None
    note = _note(len(frames), film.total, more)
    marked = () if film.labels is None else runs_of(resize_nearest(film.labels, (size[0], size[1])))
    return Clip(name, tuple(frames), size, sent_size, film.fps, note, marked)


def runs_of(labels: NDArray[np.uint8]) -> tuple[int, ...]:
    """Labels [height, width] as runs in reading order: [label, pixels, label, pixels, …]."""
    flat = labels.ravel()
    starts = np.concatenate(([0], np.flatnonzero(np.diff(flat)) + 1))
    lengths = np.diff(np.append(starts, len(flat)))
    return tuple(np.stack([flat[starts].astype(int), lengths], axis=1).ravel().tolist())


def _note(used: int, total: int, more: bool) -> str:
    """What a visitor should know of frames that are not used; `total` is often an estimate."""
    of_all = f" of {total:,}" if total > used else ""
    if more:
        return f"Only the first {used}{of_all} frames are used, as the limits say."
    if total - used > max(2, total // 20):
        return f"Only the first {used}{of_all} frames can be decoded: the file is damaged or cut short."
    return ""


def _sides(size: tuple[int, ...]) -> str:
    return f"{size[1]} × {size[0]}"


def frame_jpeg(picture: ImageArray) -> bytes:
    """A frame as it is kept."""
    return jpeg(picture, JPEG_QUALITY, subsampling=0)


def _check_pixels(name: str, width: int, height: int, limits: Limits) -> None:
    if width * height > limits.max_frame_megapixels * MEGABYTE:
        raise LabError(
            f"{name} has frames of {width} × {height} pixels, more than the "
            f"{limits.max_frame_megapixels} million allowed: send it smaller."
        )


# ---- a video file


def _video(path: Path, name: str, limits: Limits) -> Film:
    unreadable = LabError(
        f"{name} holds no picture that can be decoded: "
        "it is damaged, cut short, sound alone, or of a kind that OpenCV cannot read."
    )
    capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)  # tells the size before a frame is decoded
    width, height = capture.get(cv2.CAP_PROP_FRAME_WIDTH), capture.get(cv2.CAP_PROP_FRAME_HEIGHT)
    capture.release()
    _check_pixels(name, int(width), int(height), limits)
    try:
        video = VideoFile(path)
    except VideoError as error:
        raise unreadable from error
    return Film(iter(video), video.fps, video.expected)


# ---- an animated picture


def _animation(path: Path, name: str, limits: Limits) -> Film:
    with _or_damaged(f"{name} is damaged or cut short."):
        try:
            image = Image.open(path, formats=("GIF", "PNG", "WEBP"))
        except Image.DecompressionBombError as error:  # by its header, before anything is decoded
            raise LabError(f"{name} has frames of more pixels than are allowed: send it smaller.") from error
        _check_pixels(name, *image.size, limits)
        total = getattr(image, "n_frames", 1)
        image.load()  # WebP tells how long a frame lasts when it is decoded
    if total < 2:
        raise LabError(f"{name} is a single picture: a clip needs at least two.")
    milliseconds = float(image.info.get("duration") or 100)
    return Film(_animation_frames(image, total, name), max(1.0, 1000 / milliseconds), total)


def _animation_frames(image: Image.Image, total: int, name: str) -> Iterator[ImageArray]:
    for number in range(total):
        with _or_damaged(f"{name} is damaged or cut short."):
            image.seek(number)
            frame = image.convert("RGBA")
        white = Image.new("RGBA", frame.size, "white")
        yield np.asarray(Image.alpha_composite(white, frame).convert("RGB"))


# ---- a zip of frames


def _zip(path: Path, name: str, limits: Limits) -> Film:
    with _or_damaged(f"{name} is a damaged zip."):
        archive = zipfile.ZipFile(path)
        entries = archive.infolist()
    _check_entries(name, entries, limits)
    frames = _frame_entries(name, entries)
    pictures = (_unpacked(archive, entry, name, limits) for entry in frames)
    return Film(pictures, DEFAULT_FPS, len(frames), _annotated(archive, frames[0], name, limits))


def _annotated(
    archive: zipfile.ZipFile, frame: zipfile.ZipInfo, name: str, limits: Limits
) -> NDArray[np.uint8] | None:
    """Objects of a frame as DAVIS keeps them, under its name in a folder Annotations; None without any."""
    stem = Path(frame.filename).stem
    for entry in archive.infolist():
        path = Path(entry.filename)
        if path.stem != stem or "Annotations" not in path.parts or path.suffix.lower() != ".png":
            continue
        with _or_damaged(f"{name}: {path.name} among the Annotations is damaged."):
            image = Image.open(io.BytesIO(archive.read(entry)), formats=("PNG",))
            _check_pixels(name, *image.size, limits)
            values = np.asarray(image if image.mode in ("P", "L") else image.convert("L"), np.uint8)
        if values.max(initial=0) == 255 and len(np.unique(values)) == 2:  # DAVIS 2016: black and white
            return (values > 0).astype(np.uint8)
        return np.where(values > MAX_OBJECTS, 0, values).astype(np.uint8)  # 255 is void
    return None


def _check_entries(name: str, entries: list[zipfile.ZipInfo], limits: Limits) -> None:
    """Refuse what no honest archive of frames holds, before any of it is unpacked."""
    if len(entries) > ZIP_ENTRIES:
        raise LabError(f"{name} holds {len(entries):,} files, more than the {ZIP_ENTRIES:,} allowed.")
    if any(_is_unsafe(entry.filename) for entry in entries):
        raise LabError(f"{name} holds a file whose name leads out of the zip.")
    if any(stat.S_ISLNK(entry.external_attr >> 16) for entry in entries):
        raise LabError(f"{name} holds links: send the pictures themselves.")
    if any(entry.flag_bits & 1 for entry in entries):
        raise LabError(f"{name} is encrypted: send it without a password.")
    unpacked, allowed = sum(entry.file_size for entry in entries), UNPACKED_SHARE * limits.max_upload_mb
    if unpacked > allowed * MEGABYTE:
        raise LabError(
            f"{name} would unpack to {unpacked / MEGABYTE:,.0f} MB, more than the {allowed} MB allowed."
        )


def _is_unsafe(name: str) -> bool:
    parts = re.split(r"[/\\]", name)
    return name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or "\0" in name


def _frame_entries(name: str, entries: list[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    """The pictures of the one folder that holds frames, in the order of the numbers in their names."""
    folders: dict[str, list[zipfile.ZipInfo]] = {}
    for entry in entries:
        path = Path(entry.filename)
        hidden = any(part.startswith((".", "__MACOSX")) for part in path.parts)
        if path.suffix.lower() in images.SUFFIXES and not hidden and "Annotations" not in path.parts:
            folders.setdefault(str(path.parent), []).append(entry)
    if len(folders) != 1:
        found = "no picture" if not folders else f"pictures in {len(folders)} folders"
        raise LabError(f"{name} holds {found}: send the frames of one clip, in one folder.")
    (frames,) = folders.values()
    return sorted(frames, key=lambda entry: _natural(entry.filename))


def _natural(name: str) -> list[tuple[int, str]]:
    """A key by which frame 10 comes after frame 9."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str, limits: Limits) -> ImageArray:
    frame = Path(entry.filename).name
    with _or_damaged(f"{frame} in {name} is damaged."):
        content = archive.read(entry)  # no more than the size that the entry claims, which was checked
    return images.read(content, max_pixels=limits.max_frame_megapixels * MEGABYTE, name=frame)


Opener = Callable[[Path, str, Limits], Film]

# What the first bytes of a file must be. Only these containers reach OpenCV: others that it would try, such
# as playlists, name further files to be opened.
KINDS: Mapping[str, tuple[Opener, bytes]] = {
    "zip": (_zip, rb"PK(\x03\x04|\x05\x06)"),
    "animation": (_animation, rb"GIF8|\x89PNG|RIFF....WEBP"),
    "MP4, MOV": (_video, rb"....(ftyp|moov|mdat|wide|free|skip)"),
    "Matroska, WebM": (_video, rb"\x1a\x45\xdf\xa3.{0,60}(matroska|webm)"),
    "AVI": (_video, rb"RIFF....AVI "),
    "OGG": (_video, rb"OggS"),
    "MPEG stream": (_video, rb"\x00\x00\x01[\xb3\xba]|\x47.{187}\x47"),
    "Flash": (_video, rb"FLV\x01"),
}
