"""Frames of any video file or folder, attention as a video, and the writing of videos.

Everything streams: a frame is read, used and written before the next, so memory does not grow with the
length.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, sqrt
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import cv2
import numpy as np
from numpy.typing import NDArray

from dino_model import images
from dino_model.files import replacing
from dino_model.predictor import AttentionPredictor
from segmentation import render
from segmentation.labels import Labels
from segmentation.masks import enlarge, keep_mass_of_maps
from segmentation.render import Picture

View = Literal["heads", "mean", "mask"]

DEFAULT_FPS = 24.0
"""Frames a second of a folder of frames, which does not say."""

CODECS = {".webm": "VP80", ".mp4": "mp4v"}
"""What is written into which kind of file. Browsers play VP8 in WebM; they refuse MPEG-4 Part 2 in MP4."""


class VideoError(ValueError):
    """A video or folder of frames that cannot be used. The message is one sentence for people."""


class Frames(Protocol):
    """Pictures of one video in order; every iteration starts anew.

    Attributes:
        name: of the video.
        fps: frames a second.
        expected: how many frames there should be; 0 where nobody knows.
    """

    name: str
    fps: float
    expected: int

    def __iter__(self) -> Iterator[Picture]:
        """Frames as uint8 [height, width, 3], RGB."""
        ...

    def sample(self, count: int) -> Iterator[Picture]:
        """Up to `count` frames spread evenly over the video, in order."""
        ...

    def frame_name(self, number: int) -> str:
        """Name of a frame, for the file of its mask; `number` counts from 0."""
        ...


def open_frames(path: Path, *, allow_gaps: bool = False) -> "VideoFile | FrameFolder":
    """The frames of a video file, or of a folder of pictures numbered in their order.

    Raises:
        VideoError: no such file, no video, no frame, or a gap in the numbers (unless `allow_gaps`).
    """
    if path.is_dir():
        return FrameFolder(path, allow_gaps=allow_gaps)
    if not path.exists():
        raise VideoError(f"{path} does not exist; pass a video file or a folder of frames")
    return VideoFile(path)


def frame_files(folder: Path, *, allow_gaps: bool = False) -> tuple[Path, ...]:
    """Pictures of a folder in the order of the numbers that end their names; without numbers, by name.

    A constant step between the numbers is no gap: some data sets keep every fifth frame.

    Raises:
        VideoError: no such folder, no picture in it, two frames of one number, or a gap (unless
        `allow_gaps`).
    """
    if not folder.is_dir():
        raise VideoError(f"{folder} is no folder; pass a folder of frames such as 00000.jpg, 00001.jpg")
    entries = [entry for entry in sorted(folder.iterdir()) if not entry.name.startswith(".")]
    files = [entry for entry in entries if entry.suffix.lower() in images.SUFFIXES]
    if not files:
        inside = ", ".join(entry.name for entry in entries if entry.is_dir())
        hint = f"; it has folders: {inside[:200]}. Pass one of them" if inside else ""
        raise VideoError(f"{folder} holds no picture{hint}")
    numbers = [_frame_number(file) for file in files]
    if any(number is None for number in numbers):
        return tuple(files)
    numbered = sorted(
        (number, file) for number, file in zip(numbers, files, strict=True) if number is not None
    )
    _check_numbers(numbered, folder, allow_gaps)
    return tuple(file for _, file in numbered)


def _frame_number(file: Path) -> int | None:
    digits = re.search(r"(\d+)\D*$", file.stem)
    return int(digits[1]) if digits else None


def _check_numbers(numbered: Sequence[tuple[int, Path]], folder: Path, allow_gaps: bool) -> None:
    steps = [(after[0] - before[0], before[1], after[1]) for before, after in pairwise(numbered)]
    smallest = min((step for step, _, _ in steps), default=1)
    for step, before, after in steps:
        if step == 0:
            raise VideoError(
                f"{folder} holds {before.name} and {after.name}, two frames of one number; remove one"
            )
        if step != smallest and not allow_gaps:
            raise VideoError(
                f"frames of {folder} jump from {before.name} to {after.name}, a gap of {step - smallest}; "
                "add what is missing, or pass --allow-gaps"
            )


class FrameFolder:
    """A folder of pictures as a video."""

    def __init__(self, folder: Path, *, allow_gaps: bool = False) -> None:
        self.files = frame_files(folder, allow_gaps=allow_gaps)
        self.name = folder.resolve().name
        self.fps = DEFAULT_FPS
        self.expected = len(self.files)

    def __iter__(self) -> Iterator[Picture]:
        """Frames in order; an unreadable one raises `ImageError` with its name."""
        return (images.read(file, name=str(file)) for file in self.files)

    def sample(self, count: int) -> Iterator[Picture]:
        """Up to `count` frames spread evenly."""
        return (
            images.read(self.files[index], name=str(self.files[index]))
            for index in _spread(len(self.files), count)
        )

    def frame_name(self, number: int) -> str:
        """Name of the picture file without its suffix."""
        return self.files[number].stem


class VideoFile:
    """A video that OpenCV reads, turned upright as its metadata say."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.stem
        with _capture(path) as capture:
            fps = capture.get(cv2.CAP_PROP_FPS)
            self.fps = fps if 0 < fps < 1000 else DEFAULT_FPS
            self.expected = max(0, int(capture.get(cv2.CAP_PROP_FRAME_COUNT)))
            if not capture.grab():
                raise VideoError(
                    f"no frame of {path} can be decoded; it is damaged, or of a kind OpenCV cannot read"
                )

    def __iter__(self) -> Iterator[Picture]:
        """Frames in order, to the last that can be decoded."""
        with _capture(self.path) as capture:
            while True:
                found, frame = capture.read()
                if not found:
                    return
                yield _rgb(frame)

    def sample(self, count: int) -> Iterator[Picture]:
        """Up to `count` frames spread evenly, found without seeking, which not every format does right."""
        chosen = set(_spread(self.expected or count, count))
        with _capture(self.path) as capture:
            for number in range(max(chosen) + 1):
                if not capture.grab():
                    return
                if number in chosen:
                    yield _rgb(capture.retrieve()[1])

    def frame_name(self, number: int) -> str:
        """Five digits, more where needed."""
        return f"{number:05d}"


@contextmanager
def _capture(path: Path) -> Iterator[cv2.VideoCapture]:
    with _silent_opencv():
        capture = cv2.VideoCapture(str(path))
    try:
        if not capture.isOpened():
            raise VideoError(
                f"{path} cannot be opened as a video; it is damaged, or of a kind OpenCV cannot read"
            )
        yield capture
    finally:
        capture.release()


def _rgb(frame: Any) -> Picture:
    return np.asarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB), dtype=np.uint8)


def _spread(length: int, count: int) -> list[int]:
    """Up to `count` different indices below `length`, evenly apart."""
    return sorted({int(index) for index in np.linspace(0, length - 1, min(count, length))})


class VideoWriter:
    """Writes pictures of one size into a video file, whole or not at all.

    Use as a context: the file appears under its name when the block ends well; after an exception nothing of
    it stays. Odd sides grow by one pixel, repeated from the edge, because video codecs halve the sides of
    colour.

    Raises:
        VideoError: a suffix other than those of `CODECS`, no encoder for it, or pictures of different sizes.
    """

    def __init__(self, path: Path, fps: float) -> None:
        if path.suffix.lower() not in CODECS:
            raise VideoError(f"cannot write {path.name}: choose a name that ends in {' or '.join(CODECS)}")
        self.path, self.fps = path, fps
        self._replacing = replacing(path)
        self._size: tuple[int, ...] | None = None
        self._writer: cv2.VideoWriter | None = None

    def __enter__(self) -> Self:
        self._beside = self._replacing.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.release()
        self._replacing.__exit__(kind, error, trace)

    def write(self, picture: Picture) -> None:
        """Append one picture, uint8 [height, width, 3], RGB."""
        if self._writer is None:
            self._size = picture.shape
            self._writer = self._open(
                picture.shape[0] + picture.shape[0] % 2, picture.shape[1] + picture.shape[1] % 2
            )
        if picture.shape != self._size:
            raise VideoError(f"a frame of {self.path.name} is {picture.shape}, the first was {self._size}")
        even = np.pad(picture, ((0, picture.shape[0] % 2), (0, picture.shape[1] % 2), (0, 0)), mode="edge")
        self._writer.write(cv2.cvtColor(even, cv2.COLOR_RGB2BGR))

    def _open(self, height: int, width: int) -> cv2.VideoWriter:
        codec = CODECS[self.path.suffix.lower()]
        with _silent_opencv():
            writer = cv2.VideoWriter(
                str(self._beside), cv2.VideoWriter.fourcc(*codec), self.fps, (width, height)
            )
        if not writer.isOpened():
            others = " or ".join(suffix for suffix in CODECS if suffix != self.path.suffix.lower())
            raise VideoError(
                f"this build of OpenCV cannot encode {codec} for {self.path.name}; try a {others} file"
            )
        return writer


@contextmanager
def _silent_opencv() -> Iterator[None]:
    """Keep OpenCV's own lines off stderr while a file is opened.

    It remarks on VP8 in WebM, which works, and tells at length what `VideoError` says in a sentence. It
    prints from C, so the file descriptor itself has to move.
    """
    try:
        kept = os.dup(2)
    except OSError:  # no stderr at all, as in a service
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@dataclass(frozen=True)
class ColourRange:
    """Attention shown by the brightest colour, fixed for a whole video so that it does not flicker.

    Attributes:
        heads: one value per head, float32 [heads].
        mean: the value for the mean over the heads.
    """

    heads: NDArray[np.float32]
    mean: float


def colour_range(
    frames: Frames, predictor: AttentionPredictor, samples: int = 8, quantile: float = 0.995
) -> ColourRange:
    """The range that suits frames spread over the whole video: a quantile of their attention, 0 being black.

    Args:
        frames: the video.
        predictor: computes the attention of its frames.
        samples: how many frames to look at.
        quantile: share of the patches that stay below the brightest colour.
    """
    maps = np.concatenate(
        [_attention(predictor, frame).reshape(predictor.heads, -1) for frame in frames.sample(samples)], 1
    )
    return ColourRange(
        np.quantile(maps, quantile, axis=1).astype(np.float32), float(np.quantile(maps.mean(0), quantile))
    )


def _attention(predictor: AttentionPredictor, frame: Picture) -> NDArray[np.float32]:
    predictor.set_image(frame)
    return predictor.cls_attention()


@dataclass(frozen=True)
class AttentionFrame:
    """One frame of an attention video.

    Attributes:
        views: pictures uint8 [height, width, 3] by name: `heads` (every head beside the frame), `mean` (heat
            map over the frame), `mask` (outline of the kept patches).
        mask: patches that hold the kept share of the attention, enlarged to the frame: Boolean [H, W].
    """

    views: Mapping[View, Picture]
    mask: NDArray[np.bool_]


VIEWS: tuple[View, ...] = ("heads", "mean", "mask")


def attention_video(
    frames: Iterable[Picture],
    predictor: AttentionPredictor,
    colours: ColourRange,
    *,
    views: Sequence[View] = VIEWS,
    mass: float = 0.6,
    head: int | None = None,
    max_side: int = 1280,
) -> Iterator[AttentionFrame]:
    """[CLS] attention of every frame of a video, drawn.

    Args:
        frames: uint8 [height, width, 3], all of one size.
        predictor: computes the attention.
        colours: what the brightest colour stands for, see `colour_range`.
        views: which pictures to draw, of `VIEWS`.
        mass: share of the attention that the mask keeps.
        head: whose attention that is; None takes the mean over the heads.
        max_side: longer side of the pictures at most, in pixels.

    Raises:
        ValueError: an unknown view or head, or a mass outside (0, 1].
    """
    if unknown := [view for view in views if view not in VIEWS]:
        raise ValueError(f"unknown view {unknown[0]!r}; choose among {', '.join(VIEWS)}")
    if head is not None and not 0 <= head < predictor.heads:
        raise ValueError(
            f"there is no head {head}; {predictor.model.name} has heads 0 to {predictor.heads - 1}"
        )
    for frame in frames:
        attention = _attention(predictor, frame)  # [heads, rows, columns]
        mean = attention.mean(0)
        kept = keep_mass_of_maps(mean if head is None else attention[head], mass)
        small = shrunk(frame, max_side)
        drawn: dict[View, Picture] = {}
        if "heads" in views:
            drawn["heads"] = _mosaic(frame, attention, colours.heads, max_side)
        if "mean" in views:
            drawn["mean"] = render.overlay_heat(small, mean, value_range=(0.0, colours.mean))
        if "mask" in views:
            drawn["mask"] = render.overlay_masks(small, enlarge(kept, small.shape[:2]))
        yield AttentionFrame(drawn, enlarge(kept, frame.shape[:2]))


def shrunk(picture: Picture, max_side: int) -> Picture:
    """The picture with its longer side at most `max_side` pixels."""
    height, width = shown_size(picture.shape[:2], max_side)
    if (height, width) == picture.shape[:2]:
        return picture
    return np.asarray(cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA), dtype=np.uint8)


def shown_size(size: tuple[int, int], max_side: int) -> tuple[int, int]:
    """Height and width of a picture whose longer side is to be at most `max_side`."""
    scale = min(1.0, max_side / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def draw_labels(
    frame: Picture,
    labels: Labels,
    ids: Sequence[int],
    max_side: int = 1280,
    names: Sequence[str] = (),
) -> Picture:
    """Objects of a frame, tinted and outlined, with a legend below.

    Args:
        frame: uint8 [height, width, 3].
        labels: uint8 [height, width].
        ids: the objects, whether they are in this frame or not: the legend stays the same for a whole video.
        max_side: longer side of the frame in the picture at most, in pixels.
        names: of the objects in the legend; by default their numbers.
    """
    small = shrunk(frame, max_side)
    shown = enlarge(labels, small.shape[:2])
    colours = render.head_colors(max(ids))[np.array(ids) - 1]
    drawn = render.overlay_masks(small, np.stack([shown == label for label in ids]), colors=colours)
    names = names or [f"object {label}" for label in ids]
    return render.with_legend(drawn, list(zip(names, colours, strict=True)))


def _mosaic(
    frame: Picture, attention: NDArray[np.float32], brightest: NDArray[np.float32], max_side: int
) -> Picture:
    """The frame and the heat map of each head in a square of tiles, about `max_side` wide or high."""
    tiles = 1 + len(attention)
    columns = ceil(sqrt(tiles))
    small = shrunk(frame, max_side // columns)
    size = small.shape[:2]
    text_size = max(10, min(16, size[1] // 12))
    named = [render.caption(small, "frame", text_size)]
    for number, (head, most) in enumerate(zip(attention, brightest, strict=True)):
        heat = render.heat_map(head, size, value_range=(0.0, float(most)), interpolation="bilinear")
        named.append(render.caption(heat, f"head {number}", text_size))
    named += [np.full_like(named[0], 255)] * (-tiles % columns)
    rows = [np.concatenate(named[start : start + columns], 1) for start in range(0, len(named), columns)]
    return np.concatenate(rows)
