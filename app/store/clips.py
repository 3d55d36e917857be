"""Clips: decoding of uploads within the limits, tracking of objects by label propagation, and downloads.

Nothing beyond the limits is decoded. Frames are kept as JPEG files, and the model receives the decoded JPEGs:
a download reproduces the result.
"""

import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

from app.limits.bounds import MEGABYTE, Limits
from app.limits.errors import LabError
from app.store.engine import check_patches
from app.store.images import labels_png, stem
from app.values import jpeg
from dino_model.data import images
from dino_model.inference.predictor import AttentionPredictor
from segmentation import drawing, example_clips
from segmentation.coco import coco_annotation
from segmentation.labels import DataError, Labels, object_ids
from segmentation.masks import ImageArray
from segmentation.propagation import vanished_objects
from segmentation.tracking import propagate_steps
from segmentation.video import VideoWriter, shrunk
from segmentation.video_input import ANIMATED, CONTAINERS, open_frames

FRAME_SIDE = 854
"""Longer side of the kept frames in pixels: 16:9 at 480 lines, as in DAVIS."""

JPEG_QUALITY = 95
ANIMATION_FACTOR = 4  # frames of an animated image, relative to the frames of a clip
MAX_OBJECTS = 8
"""Largest number of objects that are tracked at once."""
COLORS = drawing.head_colors(MAX_OBJECTS + 1)[1:]
"""Colors of objects: uint8 [MAX_OBJECTS, 3]. The first head's color, that of fur and wood, is left out."""


@dataclass(frozen=True)
class Clip:
    """A few seconds of video: JPEG files of one size, (height, width), and a sentence if frames are left out.

    `sent_size` is that of the frames before they were reduced.
    """

    name: str
    frames: tuple[bytes, ...]
    size: tuple[int, int]
    sent_size: tuple[int, int]
    fps: float
    note: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of the frames."""
        return sum(map(len, self.frames))

    @property
    def stem(self) -> str:
        """Name for files."""
        return stem(self.name, "clip")

    def decode(self, start: int = 0, stop: int | None = None) -> Iterator[ImageArray]:
        """Decode the frames from one number up to another, in order: uint8 [height, width, 3]."""
        return map(images.read, self.frames[start:stop])


def example(name: str) -> Clip:
    """Draw one of `example_clips.EXAMPLES`."""
    frames = example_clips.draw_frames(name)
    files = tuple(jpeg(frame, JPEG_QUALITY, subsampling=0) for frame in frames)
    return Clip(name, files, example_clips.SIZE, example_clips.SIZE, example_clips.FPS)


def read(path: Path, limits: Limits, name: str) -> Clip:
    """Decode a clip within the limits. Its first bytes decide the format; errors have its name."""
    _check(path, limits, name)
    try:
        video = open_frames(path)
        most = max(2, min(limits.max_frames, int(limits.max_clip_seconds * video.fps)))
        decoded, frames = iter(video), []
        for image in islice(decoded, most):
            sent_size = image.shape[0], image.shape[1]
            small = shrunk(image, FRAME_SIDE)
            frames.append(jpeg(small, JPEG_QUALITY, subsampling=0))
        more = len(frames) == most and next(decoded, None) is not None
    except DataError as error:
        raise LabError(
            f"{name} has no frame that can be decoded: "
            "it is damaged, cut short, sound only, or of an unknown kind."
        ) from error
    if len(frames) < 2:
        raise LabError(f"{name} has {len(frames) or 'no'} readable frame: a clip needs at least two.")
    missing, note = video.expected - len(frames), ""
    first = f"Only the first {len(frames)}{f' of {video.expected:,}' if missing > 0 else ''} frames"
    if more:
        note = f"{first} are used: that is the limit."
    elif missing > max(2, video.expected // 20):
        note = f"{first} can be decoded: the file is damaged or cut short."
    return Clip(name, tuple(frames), (small.shape[0], small.shape[1]), sent_size, video.fps, note)


def _check(path: Path, limits: Limits, name: str) -> None:
    """Refuse a file by its size, its first bytes, or its header, before a frame is decoded."""
    if path.stat().st_size > limits.max_upload_bytes:
        raise LabError(f"{name} is larger than the {limits.max_upload_mb} MB allowed: send a smaller file.")
    with path.open("rb") as file:
        start = file.read(256)
    if not (animated := ANIMATED.match(start)) and not CONTAINERS.match(start):
        raise LabError(
            f"{name} is empty or not a known video format: "
            "send MP4, MOV, WebM, MKV, AVI, MPEG, OGG, FLV or an animated GIF, WebP, PNG or AVIF."
        )
    if animated:
        width, height = _animation_size(path, limits, name)
    else:
        capture, sides = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG), ("WIDTH", "HEIGHT")
        width, height = (int(capture.get(getattr(cv2, f"CAP_PROP_FRAME_{side}"))) for side in sides)
        capture.release()
    if width * height > limits.max_frame_megapixels * MEGABYTE:
        raise LabError(
            f"{name} has frames of {width} × {height} pixels, more than the "
            f"{limits.max_frame_megapixels} million allowed: send smaller frames."
        )


def _animation_size(path: Path, limits: Limits, name: str) -> tuple[int, int]:
    """Return width and height; refuse too many frames, all of which are read for their times."""
    most = ANIMATION_FACTOR * limits.max_frames
    try:
        with Image.open(path, formats=images.FORMATS) as image:
            count, size = getattr(image, "n_frames", 1), image.size
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return 0, 0  # `open_frames` refuses it
    if count > most:
        raise LabError(f"{name} has {count:,} frames, more than the {most:,} allowed: send a shorter one.")
    return size


def runs_of(labels: Labels) -> tuple[int, ...]:
    """Encode labels [height, width] as run lengths in reading order: [label, pixels, label, pixels, …]."""
    flat = labels.ravel()
    starts = np.concatenate(([0], np.flatnonzero(np.diff(flat)) + 1))
    lengths = np.diff(np.append(starts, len(flat)))
    return tuple(np.stack([flat[starts].astype(int), lengths], axis=1).ravel().tolist())


def limits_in_words(limits: Limits) -> str:
    """Describe what may be uploaded."""
    return (
        f"A video or an animated image, up to {limits.max_upload_mb} MB and "
        f"{limits.max_frame_megapixels} million pixels per frame. The first {limits.max_frames} frames "
        f"within {limits.max_clip_seconds} seconds are used, reduced to {FRAME_SIDE} pixels."
    )


@dataclass
class TrackedClip:
    """Labels of objects that are tracked through a clip, and palette PNGs of the finished frames."""

    clip: Clip
    ids: tuple[int, ...]
    masks: list[bytes] = field(default_factory=list)

    def labels(self) -> Iterator[Labels]:
        """Decode the labels of every finished frame, uint8 [height, width]."""
        return (np.array(Image.open(io.BytesIO(mask))) for mask in self.masks)


def track(
    clip: Clip,
    masks: Mapping[int, Labels],
    predictor: AttentionPredictor,
    model: str,
    limits: Limits,
    objects: Mapping[int, Sequence[int]] | None = None,
) -> Generator[TrackedClip]:
    """Track the objects of marked frames through a clip, forward and backward, as `propagate_steps`.

    Args:
        masks: Labels of marked frames by their number, uint8 [height, width]; 0 is background.
        model: Name of the model in errors.
        objects: Objects that each mask decides, as `propagate_steps`.

    Yields:
        The same result after every step; a step of the backward direction adds no frame to it.
    """
    ids = set().union(*map(object_ids, masks.values()))
    if not ids:
        raise LabError("Nothing is marked yet: click an object on a frame, or paint it.")
    if max(masks) >= len(clip.frames):
        raise LabError("The marked frames belong to another clip: mark the objects again.")
    tracked = TrackedClip(clip, tuple(sorted(ids)))
    check_patches(clip.size, predictor.size, predictor.patch_size, limits)
    for number, mask in masks.items():
        if vanished := vanished_objects(mask, predictor):
            raise LabError(
                f"Object {vanished[0]} in frame {number + 1} is smaller than a patch of the model: "
                "paint more of it, or choose a higher resolution."
            )
    try:
        for labels in propagate_steps(clip.decode, masks, predictor, batch=1, objects=objects):
            if labels is not None:
                tracked.masks.append(labels_png(labels))
            yield tracked
    except ValueError as error:
        raise LabError(f"{model} computes no usable features of this clip: choose another model.") from error


def from_runs(runs: Any, size: tuple[int, int], most: int = MAX_OBJECTS) -> Labels:
    """Decode a client's run lengths, any JSON, as `runs_of`: labels up to `most`, uint8 [height, width]."""
    is_valid = isinstance(runs, Sequence) and all(type(value) is int and value >= 0 for value in runs)
    if is_valid and len(runs) % 2 == 0:
        labels, lengths = runs[::2], runs[1::2]
        if max(labels, default=0) <= most and sum(lengths) == size[0] * size[1]:
            return np.repeat(np.array(labels, np.uint8), lengths).reshape(size)
    raise LabError("The mask does not fit this image: open the image again.")


def overlay_webm(tracked: TrackedClip) -> bytes:
    """Encode the finished frames with their objects tinted and a legend below, as VP8."""
    colors = COLORS[np.array(tracked.ids) - 1]
    names = [(f"object {label}", color) for label, color in zip(tracked.ids, colors, strict=True)]
    with tempfile.TemporaryDirectory(prefix="dino-lab-clip-") as folder:  # the writer needs a file
        path = Path(folder, "overlay.webm")
        with VideoWriter(path, tracked.clip.fps) as video:
            for image, labels in zip(tracked.clip.decode(), tracked.labels(), strict=False):
                masks = np.stack([labels == label for label in tracked.ids])
                colored = drawing.overlay_masks(image, masks, colors=colors)
                video.write(drawing.with_legend(colored, names))
        return path.read_bytes()


def davis_zip(tracked: TrackedClip) -> bytes:
    """Pack all frames and the finished masks in the layout of DAVIS, for `python -m segmentation davis`."""
    clip, buffer = tracked.clip, io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:  # stored: JPEG and PNG are compressed already
        for number, frame in enumerate(clip.frames):
            archive.writestr(f"JPEGImages/480p/{clip.stem}/{number:05d}.jpg", frame)
        for number, mask in enumerate(tracked.masks):
            archive.writestr(f"Annotations/480p/{clip.stem}/{number:05d}.png", mask)
        archive.writestr("ImageSets/2017/val.txt", f"{clip.stem}\n")
    return buffer.getvalue()


def coco(tracked: TrackedClip) -> dict[str, Any]:
    """Convert the finished masks to a data set that `pycocotools.coco.COCO` reads.

    Image ids are frame numbers from 1; categories are the objects.
    """
    height, width = tracked.clip.size
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, labels in enumerate(tracked.labels(), 1):
        name = f"{tracked.clip.stem}/{number - 1:05d}.jpg"
        images.append({"id": number, "file_name": name, "height": height, "width": width})
        for label in object_ids(labels):
            annotations.append(coco_annotation(len(annotations) + 1, number, label, labels == label))
    return {
        "info": {"description": tracked.clip.name, "fps": tracked.clip.fps},
        "images": images,
        "annotations": annotations,
        "categories": [{"id": label, "name": f"object {label}"} for label in tracked.ids],
    }


FILES: Mapping[str, Callable[[TrackedClip], bytes]] = {
    "overlay.webm": overlay_webm,
    "davis.zip": davis_zip,
    "masks.json": lambda tracked: json.dumps(coco(tracked)).encode(),
}
"""Downloads of a tracked clip by name."""
