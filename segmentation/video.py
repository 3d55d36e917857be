"""Videos: reading frames from files and folders, writing videos, drawing attention and labels.

Frames stream: each is read, used and written before the next, so memory does not grow with the length.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, sqrt
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from dino_model import images
from dino_model.files import replacing
from segmentation import drawing
from segmentation.datasets import VideoError, frame_files
from segmentation.labels import Labels
from segmentation.masks import ImageArray, enlarge, keep_mass_of_maps

if TYPE_CHECKING:  # commands import this module before they need PyTorch
    from dino_model.predictor import AttentionPredictor

DEFAULT_FPS = 24.0
"""Frames per second of a folder of frames."""


class Frames(Protocol):
    """Frames of one video in order. Every iteration starts again.

    Attributes:
        name: Name of the video.
        fps: Frames per second.
        expected: Number of frames according to the file; 0 if unknown.
    """

    name: str
    fps: float
    expected: int

    def __iter__(self) -> Iterator[ImageArray]:
        """Iterate over the frames, uint8 [height, width, 3], RGB."""
        ...

    def sample(self, count: int) -> Iterator[ImageArray]:
        """Iterate over up to `count` frames at even distances."""
        ...

    def file_name(self, number: int) -> str:
        """Return the file name of a frame, for its mask and for COCO; `number` counts from 0."""
        ...

    def time(self, number: int) -> float:
        """Return the time of a frame in seconds from the first; known after the frame was read."""
        ...


def open_frames(path: Path, *, allow_gaps: bool = False) -> "VideoFile | FrameFolder":
    """Open a video file, or a folder of images numbered in their order.

    Raises:
        VideoError: No such file, no video, no frame, or a gap in the numbers (unless `allow_gaps`).
    """
    if path.is_dir():
        return FrameFolder(path, allow_gaps=allow_gaps)
    if not path.exists():
        raise VideoError(f"{path} does not exist; pass a video file or a folder of frames")
    return VideoFile(path)


class FrameFolder:
    """A folder of images as a video."""

    def __init__(self, folder: Path, *, allow_gaps: bool = False) -> None:
        self.files = frame_files(folder, allow_gaps=allow_gaps)
        self.name = folder.resolve().name
        self.fps = DEFAULT_FPS
        self.expected = len(self.files)

    def __iter__(self) -> Iterator[ImageArray]:
        """Iterate over the frames.

        Raises:
            ImageError, VideoError: A frame that cannot be read or has another size; both name its file.
        """
        size = None
        for file in self.files:
            image = images.read(file, name=str(file))
            size = check_size(image, size, f"the frame {file}")
            yield image

    def sample(self, count: int) -> Iterator[ImageArray]:
        """Iterate over up to `count` frames at even distances."""
        for index in _spread(len(self.files), count):
            yield images.read(self.files[index], name=str(self.files[index]))

    def file_name(self, number: int) -> str:
        """Return the name of the image file."""
        return self.files[number].name

    def time(self, number: int) -> float:
        """Return the time of a frame in seconds."""
        return number / self.fps


class VideoFile:
    """A video file, turned upright as its metadata say.

    Attributes:
        times: when each frame handed out in the latest pass is shown, in seconds from the first.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.stem
        self.times: list[float] = []
        with _opened(path) as container:
            stream = container.streams.video[0]
            rate = float(stream.average_rate or 0)
            self.fps = rate if 0 < rate < 1000 else DEFAULT_FPS
            if next(_decoded(container), None) is None:
                raise VideoError(f"no frame of {path} can be decoded; it is damaged, or of an unknown kind")
            self.expected = int(stream.frames)
        if not self.expected:
            self.expected = self._counted()

    def _counted(self) -> int:
        """Count the frames of a file without decoding them."""
        with _opened(self.path) as container:
            packets = sum(packet.size > 0 for packet in container.demux(video=0))
            seconds = (container.duration or 0) / 1e6
        # Some packets are never shown; some frames last longer than others.
        return min(packets, round(seconds * self.fps) or packets)

    def __iter__(self) -> Iterator[ImageArray]:
        """Iterate over the frames to the last that can be decoded.

        Raises:
            VideoError: a frame of another size than the first.
        """
        self.times = []
        size, start = None, 0.0
        with _opened(self.path) as container:
            for number, frame in enumerate(_decoded(container)):
                image = _upright(frame)
                size = check_size(image, size, f"frame {number} of {self.path}")
                # Without times in the file, frames are evenly spaced.
                time = number / self.fps if frame.time is None else frame.time
                start = start if number else time
                self.times.append(time - start)
                yield image

    def sample(self, count: int) -> Iterator[ImageArray]:
        """Iterate over up to `count` frames at even distances; without seeking, which some formats break."""
        chosen = set(_spread(self.expected or count, count))
        with _opened(self.path) as container:
            for number, frame in zip(range(max(chosen) + 1), _decoded(container), strict=False):
                if number in chosen:
                    yield _upright(frame)

    def file_name(self, number: int) -> str:
        """Return the number of the frame with five digits or more, as a PNG file name."""
        return f"{number:05d}.png"

    def time(self, number: int) -> float:
        """Return the time of a frame in seconds, exact for variable frame rates."""
        return self.times[number]


def check_size(image: ImageArray, size: tuple[int, int] | None, name: str) -> tuple[int, int]:
    """Return the size of a frame and check that it is that of the frames before.

    Raises:
        VideoError: another size.
    """
    height, width = image.shape[:2]
    if size is not None and size != (height, width):
        raise VideoError(
            f"{name} is {width}x{height} pixels, the first {size[1]}x{size[0]}; "
            "all frames of a video must be of one size"
        )
    return height, width


@contextmanager
def _opened(path: Path) -> Iterator[av.container.InputContainer]:
    try:
        container = av.open(str(path))
    except (av.FFmpegError, OSError) as error:
        raise VideoError(
            f"{path} cannot be opened as a video; it is damaged, or of an unknown kind ({error.strerror})"
        ) from error
    with container:
        if not container.streams.video:
            raise VideoError(f"{path} holds no video, only {', '.join(s.type for s in container.streams)}")
        container.streams.video[0].thread_type = "AUTO"
        yield container


def _decoded(container: av.container.InputContainer) -> Iterator[av.VideoFrame]:
    """Yield the frames to the last that can be decoded."""
    try:
        yield from container.decode(video=0)
    except av.FFmpegError:  # truncated or damaged: the caller counts the frames
        return


def _upright(frame: av.VideoFrame) -> ImageArray:
    """Convert a frame to uint8 [height, width, 3] in its display rotation."""
    image = frame.to_ndarray(format="rgb24")
    return np.ascontiguousarray(np.rot90(image, round(frame.rotation / 90)))


def _spread(length: int, count: int) -> list[int]:
    """Return up to `count` different indices below `length` at even distances."""
    return sorted({int(index) for index in np.linspace(0, length - 1, min(count, length))})


View = Literal["heads", "mean", "mask"]

CODECS: dict[str, tuple[str, dict[str, str]]] = {
    ".webm": ("libvpx", {"deadline": "realtime", "cpu-used": "4"}),
    ".mp4": ("mpeg4", {}),
}
"""Codec and options by suffix. Browsers play VP8 in WebM, but not MPEG-4 Part 2 in MP4."""

BITS_PER_PIXEL = 0.2  # of a frame, at most: figures and outlines stay sharp

TIME_BASE = Fraction(1, 60_000)  # of a second: what every usual frame rate divides, 30000/1001 too


class VideoWriter:
    """Writes images of one size into a video file, whole or not at all.

    Use as a context: the file appears when the block ends without exception; `keep_partial` keeps the frames
    written before an exception. Odd sides grow by one repeated pixel: codecs halve the sides of color.

    Raises:
        VideoError: a suffix other than those of `CODECS`, no encoder for it, or images of different sizes.
    """

    def __init__(self, path: Path, fps: float, *, keep_partial: bool = False) -> None:
        if path.suffix.lower() not in CODECS:
            raise VideoError(f"cannot write {path.name}: choose a name that ends in {' or '.join(CODECS)}")
        self.path, self.fps, self._keep_partial = path, fps, keep_partial
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
        if self._keep_partial and self._count:
            kind = error = trace = None
        try:
            if self._size is not None and kind is None:
                self._container.mux(self._stream.encode(None))
            self._container.close()
        finally:
            self._replacing.__exit__(kind, error, trace)

    def write(self, image: ImageArray, time: float | None = None) -> None:
        """Append one image, uint8 [height, width, 3], RGB.

        Args:
            image: of the size of those before.
            time: when it is shown, in seconds from the first; None for evenly.
        """
        height, width = image.shape[0] + image.shape[0] % 2, image.shape[1] + image.shape[1] % 2
        if self._size is None:
            self._size = image.shape
            self._stream.height, self._stream.width = height, width
            self._stream.pix_fmt = "yuv420p"
            self._stream.bit_rate = int(BITS_PER_PIXEL * height * width * self.fps)
            self._stream.options = self._options
            self._stream.time_base = self._stream.codec_context.time_base = TIME_BASE
        if image.shape != self._size:
            raise VideoError(f"a frame of {self.path.name} is {image.shape}, the first was {self._size}")
        even = np.pad(image, ((0, height - image.shape[0]), (0, width - image.shape[1]), (0, 0)), "edge")
        frame = av.VideoFrame.from_ndarray(even, format="rgb24")
        frame.time_base = TIME_BASE
        frame.pts = round((self._count / self.fps if time is None else time) / TIME_BASE)
        self._count += 1
        self._container.mux(self._stream.encode(frame))


def _fraction(fps: float) -> Fraction:
    return Fraction(fps).limit_denominator(1001)  # 30000/1001 among them


@dataclass(frozen=True)
class ColorRange:
    """Attention value of the brightest color, fixed for a whole video to avoid flicker.

    Attributes:
        heads: one value per head, float32 [heads].
        mean: the value for the mean over the heads.
    """

    heads: NDArray[np.float32]
    mean: float


def color_range(
    frames: Frames, predictor: "AttentionPredictor", samples: int = 8, quantile: float = 0.995
) -> ColorRange:
    """Choose the color range from frames of the whole video: a quantile of their attention, 0 is black.

    Args:
        frames: the video.
        predictor: computes the attention of its frames.
        samples: how many frames to look at.
        quantile: share of the patches that stay below the brightest color.
    """
    maps = np.concatenate(
        [_attention(predictor, frame).reshape(predictor.heads, -1) for frame in frames.sample(samples)], 1
    )
    return ColorRange(
        np.quantile(maps, quantile, axis=1).astype(np.float32), float(np.quantile(maps.mean(0), quantile))
    )


def _attention(predictor: "AttentionPredictor", frame: ImageArray) -> NDArray[np.float32]:
    predictor.set_image(frame)
    return predictor.cls_attention()


@dataclass(frozen=True)
class AttentionFrame:
    """One frame of an attention video.

    Attributes:
        views: images uint8 [height, width, 3] by name: `heads` (every head beside the frame), `mean` (heat
            map over the frame), `mask` (outline of the kept patches).
        mask: patches that hold the kept share of the attention, enlarged to the frame: Boolean [H, W].
    """

    views: Mapping[View, ImageArray]
    mask: NDArray[np.bool_]


VIEWS: tuple[View, ...] = ("heads", "mean", "mask")


def attention_video(
    frames: Iterable[ImageArray],
    predictor: "AttentionPredictor",
    colors: ColorRange,
    *,
    views: Sequence[View] = VIEWS,
    mass: float = 0.6,
    head: int | None = None,
    max_side: int = 1280,
) -> Iterator[AttentionFrame]:
    """Draw the [CLS] attention of every frame of a video.

    Args:
        frames: uint8 [height, width, 3], all of one size.
        predictor: computes the attention.
        colors: what the brightest color stands for, see `color_range`.
        views: which images to draw, of `VIEWS`.
        mass: share of the attention that the mask keeps.
        head: whose attention that is; None takes the mean over the heads.
        max_side: longer side of the images at most, in pixels.

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
        drawn: dict[View, ImageArray] = {}
        if "heads" in views:
            drawn["heads"] = _mosaic(frame, attention, colors.heads, max_side)
        if "mean" in views:
            drawn["mean"] = drawing.overlay_heat(small, mean, value_range=(0.0, colors.mean))
        if "mask" in views:
            drawn["mask"] = drawing.overlay_masks(small, enlarge(kept, small.shape[:2]))
        yield AttentionFrame(drawn, enlarge(kept, frame.shape[:2]))


def shrunk(image: ImageArray, max_side: int) -> ImageArray:
    """Shrink an image so that its longer side is at most `max_side` pixels."""
    height, width = shown_size(image.shape[:2], max_side)
    if (height, width) == image.shape[:2]:
        return image
    return np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), dtype=np.uint8)


def shown_size(size: tuple[int, int], max_side: int) -> tuple[int, int]:
    """Return height and width of an image shrunk to a longer side of at most `max_side`."""
    scale = min(1.0, max_side / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def draw_labels(
    frame: ImageArray,
    labels: Labels,
    ids: Sequence[int],
    max_side: int = 1280,
    names: Sequence[str] = (),
) -> ImageArray:
    """Tint and outline the objects of a frame, with a legend below.

    Args:
        frame: uint8 [height, width, 3].
        labels: uint8 [height, width].
        ids: the objects, whether they are in this frame or not: the legend stays the same for a whole video.
        max_side: longer side of the frame in the image at most, in pixels.
        names: of the objects in the legend; by default their numbers.
    """
    small = shrunk(frame, max_side)
    shown = enlarge(labels, small.shape[:2])
    colors = drawing.head_colors(max(ids))[np.array(ids) - 1]
    drawn = drawing.overlay_masks(small, np.stack([shown == label for label in ids]), colors=colors)
    names = names or [f"object {label}" for label in ids]
    return drawing.with_legend(drawn, list(zip(names, colors, strict=True)))


def _mosaic(
    frame: ImageArray, attention: NDArray[np.float32], brightest: NDArray[np.float32], max_side: int
) -> ImageArray:
    """Draw the frame and the heat map of each head as tiles, about `max_side` wide or high."""
    tiles = 1 + len(attention)
    columns = ceil(sqrt(tiles))
    small = shrunk(frame, max_side // columns)
    size = small.shape[:2]
    text_size = max(10, min(16, size[1] // 12))
    named = [drawing.caption(small, "frame", text_size)]
    for number, (head, most) in enumerate(zip(attention, brightest, strict=True)):
        heat = drawing.heat_map(head, size, value_range=(0.0, float(most)), interpolation="bilinear")
        named.append(drawing.caption(heat, f"head {number}", text_size))
    named += [np.full_like(named[0], 255)] * (-tiles % columns)
    rows = [np.concatenate(named[start : start + columns], 1) for start in range(0, len(named), columns)]
    return np.concatenate(rows)
