"""Decoding of uploaded clips: a video, a zip of frames or an animated image becomes a bounded list of frames.

Nothing is unpacked to disk and nothing beyond the limits is decoded. Frames are kept as JPEG files, and the
model receives the decoded JPEGs: a download reproduces the result.
"""

import io
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from PIL import Image, ImageSequence

from app.errors import LabError
from app.files import jpeg
from app.limits import MEGABYTE, Limits
from app.photos import stem
from dino_model import images
from segmentation.labels import Labels, resize_nearest
from segmentation.masks import ImageArray
from segmentation.video import DEFAULT_FPS, VideoError, VideoFile, shrunk

FRAME_SIDE = 854
"""Longer side of the kept frames in pixels: 16:9 at 480 lines, as in DAVIS."""

JPEG_QUALITY = 95
MAX_OBJECTS = 8
"""Largest number of objects that are tracked at once."""
MAX_ZIP_ENTRIES = 10_000
UNPACKED_RATIO = 4  # largest unpacked size of a zip, relative to the largest upload; images hardly compress
_DAMAGED = (
    zipfile.BadZipFile,
    NotImplementedError,
    EOFError,
    OSError,
    ValueError,
    SyntaxError,
    zlib.error,
    Image.DecompressionBombError,
)
"""Exceptions of zipfile and Pillow for damaged files."""


@dataclass(frozen=True)
class Clip:
    """A few seconds of video.

    Attributes:
        name: The user's name for the clip.
        frames: JPEG files of one size, in order.
        size: Height and width of the frames.
        sent_size: Height and width before they were reduced.
        fps: Frames per second.
        note: One sentence about frames that were left out, or empty.
        marked: Objects of the first frame, if the file has them: run lengths [label, pixels, …].
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
        """Name without suffix and without characters that file systems or HTTP headers reject."""
        return stem(self.name, "clip")

    def picture(self, number: int) -> ImageArray:
        """Decode one frame, counted from 0: uint8 [height, width, 3]."""
        return images.read(self.frames[number])

    def pictures(self) -> Iterator[ImageArray]:
        """Decode all frames in order."""
        return (self.picture(number) for number in range(len(self.frames)))


class ClipError(ValueError):
    """A file that is no clip. The message is the rest of a sentence after the file's name."""


class Film(NamedTuple):
    """Frames that are not decoded yet.

    Attributes:
        pictures: The frames, uint8 [height, width, 3].
        fps: Frames per second.
        total: Expected number of frames; 0 if unknown.
        labels: Objects of the first frame, uint8 [height, width], 0 is background; None without any.
    """

    pictures: Iterator[ImageArray]
    fps: float
    total: int
    labels: Labels | None = None


def read(path: Path, limits: Limits, name: str | None = None) -> Clip:
    """Decode a clip within the limits. Its first bytes decide the format, not its suffix.

    Args:
        path: The file.
        limits: Upper bounds on bytes, pixels, frames and seconds.
        name: The user's name for the clip. Default: the file's name.
    """
    name = name or path.name
    try:
        return _first_frames(name, _open(path, limits), limits)
    except ClipError as error:
        raise LabError(f"{name} {error}.") from error
    except images.ImageError as error:  # the decoder's details are not for users
        frame, damaged, _ = str(error).partition(" is damaged or cut short")
        raise LabError(f"{name}: {frame}{damaged}.") from error
    except _DAMAGED as error:
        raise LabError(f"{name} is damaged or cut short.") from error


def _open(path: Path, limits: Limits) -> Film:
    if path.stat().st_size > limits.max_upload_bytes:
        raise ClipError(f"is larger than the {limits.max_upload_mb} MB allowed: send a smaller file")
    with path.open("rb") as file:
        start = file.read(256)
    for opener, signature in FORMATS:
        if re.match(signature, start, re.DOTALL):
            return opener(path, limits)
    raise ClipError(
        "is empty or not a known video format: "
        "send MP4, MOV, WebM, MKV, AVI, MPEG, OGG, an animated GIF, PNG or WebP, or a zip of images"
    )


def _first_frames(name: str, film: Film, limits: Limits) -> Clip:
    """Decode as many frames as the limits allow."""
    most = max(2, min(limits.max_frames, int(limits.max_clip_seconds * film.fps)))
    frames: list[bytes] = []
    size = sent_size = (0, 0)
    for picture in islice(film.pictures, most):
        sent_size = sent_size if frames else picture.shape[:2]
        if picture.shape[:2] != sent_size:
            found, first = (f"{width} × {height}" for height, width in (picture.shape[:2], sent_size))
            raise ClipError(f"has frames of {first} and {found} pixels: all frames must have one size")
        small = shrunk(picture, FRAME_SIDE)
        size = small.shape[:2]
        frames.append(jpeg(small, JPEG_QUALITY, subsampling=0))
    if len(frames) < 2:
        raise ClipError(f"has {len(frames) or 'no'} readable frame: a clip needs at least two")
    more = len(frames) == most and next(film.pictures, None) is not None
    note = _note(len(frames), film.total, more)
    marked = () if film.labels is None else runs_of(resize_nearest(film.labels, (size[0], size[1])))
    return Clip(name, tuple(frames), size, sent_size, film.fps, note, marked)


def runs_of(labels: Labels) -> tuple[int, ...]:
    """Encode labels [height, width] as run lengths in reading order: [label, pixels, label, pixels, …]."""
    flat = labels.ravel()
    starts = np.concatenate(([0], np.flatnonzero(np.diff(flat)) + 1))
    lengths = np.diff(np.append(starts, len(flat)))
    return tuple(np.stack([flat[starts].astype(int), lengths], axis=1).ravel().tolist())


def _note(used: int, total: int, more: bool) -> str:
    """Describe frames that are not used; `total` is often an estimate."""
    of_all = f" of {total:,}" if total > used else ""
    if more:
        return f"Only the first {used}{of_all} frames are used: that is the limit."
    if total - used > max(2, total // 20):
        return f"Only the first {used}{of_all} frames can be decoded: the file is damaged or cut short."
    return ""


def limits_in_words(limits: Limits) -> str:
    """Describe what may be uploaded."""
    return (
        f"A video, a zip of frames or an animated image, up to {limits.max_upload_mb} MB and "
        f"{limits.max_frame_megapixels} million pixels per frame. The first {limits.max_frames} frames "
        f"within {limits.max_clip_seconds} seconds are used, reduced to {FRAME_SIDE} pixels."
    )


def _check_pixels(width: int, height: int, limits: Limits) -> None:
    if width * height > limits.max_frame_megapixels * MEGABYTE:
        raise ClipError(
            f"has frames of {width} × {height} pixels, more than the "
            f"{limits.max_frame_megapixels} million allowed: send smaller frames"
        )


def _video(path: Path, limits: Limits) -> Film:
    capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)  # reads the size before a frame is decoded
    width, height = capture.get(cv2.CAP_PROP_FRAME_WIDTH), capture.get(cv2.CAP_PROP_FRAME_HEIGHT)
    capture.release()
    _check_pixels(int(width), int(height), limits)
    try:
        video = VideoFile(path)
    except VideoError as error:
        raise ClipError(
            "has no frame that can be decoded: it is damaged, cut short, sound only, or of an unknown kind"
        ) from error
    return Film(iter(video), video.fps, video.expected)


def _animation(path: Path, limits: Limits) -> Film:
    try:
        image = Image.open(path, formats=("GIF", "PNG", "WEBP"))
    except Image.DecompressionBombError as error:  # from the header, before anything is decoded
        raise ClipError("has frames of more pixels than are allowed: send smaller frames") from error
    _check_pixels(*image.size, limits)
    total = getattr(image, "n_frames", 1)
    if total < 2:
        raise ClipError("is a single image: a clip needs at least two frames")
    image.load()  # WebP sets the duration of a frame when it is decoded
    milliseconds = float(image.info.get("duration") or 100)
    return Film(map(_on_white, ImageSequence.Iterator(image)), max(1.0, 1000 / milliseconds), total)


def _on_white(image: Image.Image) -> ImageArray:
    white = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(white, image.convert("RGBA")).convert("RGB"))


def _zip(path: Path, limits: Limits) -> Film:
    archive = zipfile.ZipFile(path)
    _check_entries(archive.infolist(), limits)
    frames = _frame_entries(archive.infolist())
    most = limits.max_frame_megapixels * MEGABYTE
    # An entry unpacks to at most its claimed size, which was checked.
    pictures = (
        images.read(archive.read(one), max_pixels=most, name=Path(one.filename).name) for one in frames
    )
    return Film(pictures, DEFAULT_FPS, len(frames), _annotation(archive, frames[0], limits))


def _annotation(archive: zipfile.ZipFile, frame: zipfile.ZipInfo, limits: Limits) -> Labels | None:
    """Read the objects of a frame from a folder Annotations, as in DAVIS; None without any."""
    for entry in archive.infolist():
        path = Path(entry.filename)
        if path.stem != Path(frame.filename).stem or "Annotations" not in path.parts:
            continue
        image = Image.open(io.BytesIO(archive.read(entry)), formats=("PNG",))
        _check_pixels(*image.size, limits)
        values = np.asarray(image if image.mode in ("P", "L") else image.convert("L"), np.uint8)
        if values.max(initial=0) == 255 and len(np.unique(values)) == 2:  # DAVIS 2016: black and white
            return (values > 0).astype(np.uint8)
        return np.where(values > MAX_OBJECTS, 0, values).astype(np.uint8)  # 255 is void
    return None


def _check_entries(entries: list[zipfile.ZipInfo], limits: Limits) -> None:
    """Refuse hostile archives before anything is unpacked."""
    if len(entries) > MAX_ZIP_ENTRIES:
        raise ClipError(f"has {len(entries):,} files, more than the {MAX_ZIP_ENTRIES:,} allowed")
    if any(_is_unsafe(entry.filename) for entry in entries):
        raise ClipError("has a file name that leads out of the zip")
    if any(stat.S_ISLNK(entry.external_attr >> 16) for entry in entries):
        raise ClipError("has links: send the images themselves")
    if any(entry.flag_bits & 1 for entry in entries):
        raise ClipError("is encrypted: send it without a password")
    unpacked, allowed = sum(entry.file_size for entry in entries), UNPACKED_RATIO * limits.max_upload_mb
    if unpacked > allowed * MEGABYTE:
        raise ClipError(f"would unpack to {unpacked / MEGABYTE:,.0f} MB, more than the {allowed} MB allowed")


def _is_unsafe(name: str) -> bool:
    parts = re.split(r"[/\\]", name)
    return name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or "\0" in name


def _frame_entries(entries: list[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    """Return the images of the one folder with frames, in the order of the numbers in their names."""
    folders: dict[Path, list[zipfile.ZipInfo]] = {}
    for entry in entries:
        path = Path(entry.filename)
        hidden = any(part.startswith((".", "__MACOSX")) for part in path.parts)
        if path.suffix.lower() in images.SUFFIXES and not hidden and "Annotations" not in path.parts:
            folders.setdefault(path.parent, []).append(entry)
    if len(folders) != 1:
        found = "no image" if not folders else f"images in {len(folders)} folders"
        raise ClipError(f"has {found}: send the frames of one clip, in one folder")
    (frames,) = folders.values()
    return sorted(frames, key=lambda entry: _natural_key(entry.filename))


def _natural_key(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts frame 10 after frame 9."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


FORMATS: tuple[tuple[Callable[[Path, Limits], Film], bytes], ...] = (
    (_zip, rb"PK(\x03\x04|\x05\x06)"),
    (_animation, rb"GIF8|\x89PNG|RIFF....WEBP"),
    (_video, rb"....(ftyp|moov|mdat|wide|free|skip)"),  # MP4, MOV
    (_video, rb"\x1a\x45\xdf\xa3.{0,60}(matroska|webm)"),
    (_video, rb"RIFF....AVI |OggS|FLV\x01"),
    (_video, rb"\x00\x00\x01[\xb3\xba]|\x47.{187}\x47"),  # MPEG
)
"""Reader and first bytes of the formats. FFmpeg receives only these containers: playlists, which it would
also try, open further files."""
