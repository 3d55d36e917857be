"""Attention and labels of a video as pictures, and the writing of videos.

Everything streams: a frame is read, used and written before the next, so memory does not grow with the
length.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, sqrt
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from dino_model.files import replacing
from dino_model.predictor import AttentionPredictor
from segmentation import render
from segmentation.frames import Frames, VideoError
from segmentation.labels import Labels
from segmentation.masks import enlarge, keep_mass_of_maps
from segmentation.render import Picture

View = Literal["heads", "mean", "mask"]

CODECS: dict[str, tuple[str, dict[str, str]]] = {
    ".webm": ("libvpx", {"deadline": "realtime", "cpu-used": "4"}),
    ".mp4": ("mpeg4", {}),
}
"""What is written into which kind of file, and how. Browsers play VP8 in WebM; they refuse MPEG-4 Part 2 in
MP4."""

BITS_PER_PIXEL = 0.2  # of a frame, at most: figures and outlines stay sharp

TIME_BASE = Fraction(1, 60_000)  # of a second: what every usual frame rate divides, 30000/1001 too


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
        self._codec, self._options = CODECS[path.suffix.lower()]
        self._replacing = replacing(path)
        self._size: tuple[int, ...] | None = None
        self._count = 0

    def __enter__(self) -> Self:
        self._beside = self._replacing.__enter__()
        try:
            self._container = av.open(str(self._beside), "w")
            self._stream: Any = self._container.add_stream(self._codec, rate=_fraction(self.fps))
        except (av.FFmpegError, ValueError) as error:  # a build without the encoder
            self._replacing.__exit__(type(error), error, None)
            others = " or ".join(suffix for suffix in CODECS if suffix != self.path.suffix.lower())
            raise VideoError(
                f"this build of FFmpeg cannot encode {self._codec} for {self.path.name}; try a {others} file"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._size is not None and kind is None:
                self._container.mux(self._stream.encode(None))
            self._container.close()
        finally:
            self._replacing.__exit__(kind, error, trace)

    def write(self, picture: Picture, time: float | None = None) -> None:
        """Append one picture, uint8 [height, width, 3], RGB.

        Args:
            picture: of the size of those before.
            time: when it is shown, in seconds from the first; None for evenly.
        """
        height, width = picture.shape[0] + picture.shape[0] % 2, picture.shape[1] + picture.shape[1] % 2
        if self._size is None:
            self._size = picture.shape
            self._stream.height, self._stream.width = height, width
            self._stream.pix_fmt = "yuv420p"
            self._stream.bit_rate = int(BITS_PER_PIXEL * height * width * self.fps)
            self._stream.options = self._options
            self._stream.time_base = self._stream.codec_context.time_base = TIME_BASE
        if picture.shape != self._size:
            raise VideoError(f"a frame of {self.path.name} is {picture.shape}, the first was {self._size}")
        even = np.pad(
            picture, ((0, height - picture.shape[0]), (0, width - picture.shape[1]), (0, 0)), "edge"
        )
        frame = av.VideoFrame.from_ndarray(even, format="rgb24")
        frame.time_base = TIME_BASE
        frame.pts = round((self._count / self.fps if time is None else time) / TIME_BASE)
        self._count += 1
        self._container.mux(self._stream.encode(frame))


def _fraction(fps: float) -> Fraction:
    return Fraction(fps).limit_denominator(1001)  # 30000/1001 among them


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
