"""Decoding of uploaded clips: a video or an animated GIF becomes a bounded list of frames.

Nothing beyond the limits is decoded. Frames are kept as JPEG files, and the model receives the decoded JPEGs:
a download reproduces the result.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import cv2
import numpy as np

from app.errors import LabError
from app.limits import MEGABYTE, Limits
from app.photos import jpeg, stem
from dino_model import images
from segmentation.labels import Labels
from segmentation.masks import ImageArray
from segmentation.video import VideoError, VideoFile, shrunk

FRAME_SIDE = 854
"""Longer side of the kept frames in pixels: 16:9 at 480 lines, as in DAVIS."""

JPEG_QUALITY = 95
MAX_OBJECTS = 8
"""Largest number of objects that are tracked at once."""
CONTAINERS = re.compile(
    rb"....(ftyp|moov|mdat|wide|free|skip)"  # MP4, MOV
    rb"|\x1a\x45\xdf\xa3.{0,60}(matroska|webm)"
    rb"|RIFF....AVI |OggS|FLV\x01|GIF8"
    rb"|\x00\x00\x01[\xb3\xba]|\x47.{187}\x47",  # MPEG
    re.DOTALL,
)
"""First bytes of what FFmpeg receives. Playlists, which it would also try, open further files."""


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
    """

    name: str
    frames: tuple[bytes, ...]
    size: tuple[int, int]
    sent_size: tuple[int, int]
    fps: float
    note: str = ""

    @property
    def stem(self) -> str:
        """Name without suffix and without characters that file systems or HTTP headers reject."""
        return stem(self.name, "clip")

    def pictures(self) -> Iterator[ImageArray]:
        """Decode all frames in order: uint8 [height, width, 3]."""
        return map(images.read, self.frames)


def read(path: Path, limits: Limits, name: str) -> Clip:
    """Decode a clip within the limits. Its first bytes decide the format, not its suffix.

    Args:
        path: The file.
        limits: Upper bounds on bytes, pixels, frames and seconds.
        name: The user's name for the clip.
    """
    _check(path, limits, name)
    try:
        video = VideoFile(path)
        most = max(2, min(limits.max_frames, int(limits.max_clip_seconds * video.fps)))
        decoded, frames = iter(video), []
        for picture in islice(decoded, most):
            sent_size = picture.shape[0], picture.shape[1]
            small = shrunk(picture, FRAME_SIDE)
            frames.append(jpeg(small, JPEG_QUALITY, subsampling=0))
        more = len(frames) == most and next(decoded, None) is not None
    except VideoError as error:
        raise LabError(
            f"{name} has no frame that can be decoded: "
            "it is damaged, cut short, sound only, or of an unknown kind."
        ) from error
    if len(frames) < 2:
        raise LabError(f"{name} has {len(frames) or 'no'} readable frame: a clip needs at least two.")
    note = _note(len(frames), video.expected, more)
    return Clip(name, tuple(frames), (small.shape[0], small.shape[1]), sent_size, video.fps, note)


def _check(path: Path, limits: Limits, name: str) -> None:
    """Refuse a file by its size, its first bytes, or its header, before a frame is decoded."""
    if path.stat().st_size > limits.max_upload_bytes:
        raise LabError(f"{name} is larger than the {limits.max_upload_mb} MB allowed: send a smaller file.")
    with path.open("rb") as file:
        start = file.read(256)
    if not CONTAINERS.match(start):
        raise LabError(
            f"{name} is empty or not a known video format: "
            "send MP4, MOV, WebM, MKV, AVI, MPEG, OGG, FLV or an animated GIF."
        )
    capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
    width, height = (int(capture.get(side)) for side in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT))
    capture.release()
    if width * height > limits.max_frame_megapixels * MEGABYTE:
        raise LabError(
            f"{name} has frames of {width} × {height} pixels, more than the "
            f"{limits.max_frame_megapixels} million allowed: send smaller frames."
        )


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
        f"A video or an animated GIF, up to {limits.max_upload_mb} MB and "
        f"{limits.max_frame_megapixels} million pixels per frame. The first {limits.max_frames} frames "
        f"within {limits.max_clip_seconds} seconds are used, reduced to {FRAME_SIDE} pixels."
    )
