"""Videos: writing files, drawing attention and labels.

Each frame is drawn and written before the next, so memory does not grow with the length.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from math import ceil, sqrt
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import av
import numpy as np
from numpy.typing import NDArray

from dino_model.runtime.files import replace_file
from segmentation import drawing
from segmentation.labels import DataError, Labels
from segmentation.masks import ImageArray, enlarge, keep_mass_of_maps

if TYPE_CHECKING:  # commands import this module before they need PyTorch
    from dino_model.inference.predictor import AttentionPredictor

MAX_SIDE = 1280  # of drawn videos, in pixels
BITS_PER_PIXEL = 0.2  # of a frame, at most: figures and outlines stay sharp
TIME_BASE = Fraction(1, 60_000)  # of a second: what every usual frame rate divides, 30000/1001 too
CODECS = {".webm": "libvpx", ".mp4": "mpeg4"}
"""Encoders by suffix. Browsers play WebM (VP8); MPEG-4 is for programs that read no WebM."""


class VideoWriter:
    """Writes images of one size into a video file with a suffix of `CODECS`, whole or not at all.

    Use as a context: the file appears when the block ends, or with the frames so far when Ctrl-C ends it; an
    error leaves none. Odd sides grow by one repeated pixel: codecs halve the sides of color.
    """

    def __init__(self, path: Path, fps: float) -> None:
        if path.suffix.lower() not in CODECS:
            raise DataError(f"cannot write {path.name}; expected a name that ends in {' or '.join(CODECS)}")
        self.path, self.fps = path, fps
        self._replacing = replace_file(path)
        self._size: tuple[int, ...] | None = None
        self._count = 0

    def __enter__(self) -> Self:
        with _name_errors(self.path):
            self._container = av.open(str(self._replacing.__enter__()), "w")
        rate = Fraction(self.fps).limit_denominator(1001)  # 30000/1001 among them
        self._stream: Any = self._container.add_stream(CODECS[self.path.suffix.lower()], rate=rate)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._count and isinstance(error, KeyboardInterrupt):
            kind = error = trace = None
        try:
            with _name_errors(self.path):
                if self._size is not None and kind is None:
                    self._container.mux(self._stream.encode(None))
                self._container.close()
        finally:
            self._replacing.__exit__(kind, error, trace)

    def write(self, image: ImageArray, time: float | None = None) -> None:
        """Append one image, uint8 [height, width, 3], shown at `time` in seconds; None for evenly."""
        height, width = image.shape[0] + image.shape[0] % 2, image.shape[1] + image.shape[1] % 2
        if self._size is None:
            self._size = image.shape
            self._stream.height, self._stream.width = height, width
            self._stream.pix_fmt = "yuv420p"
            self._stream.bit_rate = int(BITS_PER_PIXEL * height * width * self.fps)
            if self.path.suffix.lower() == ".webm":
                self._stream.options = {"deadline": "realtime", "cpu-used": "4"}
            self._stream.time_base = self._stream.codec_context.time_base = TIME_BASE
        if image.shape != self._size:
            raise DataError(f"a frame of {self.path.name} is {image.shape}, the first was {self._size}")
        even = np.pad(image, ((0, height - image.shape[0]), (0, width - image.shape[1]), (0, 0)), "edge")
        frame = av.VideoFrame.from_ndarray(even, format="rgb24")
        frame.time_base = TIME_BASE
        frame.pts = round((self._count / self.fps if time is None else time) / TIME_BASE)
        self._count += 1
        with _name_errors(self.path):
            self._container.mux(self._stream.encode(frame))


@contextmanager
def _name_errors(path: Path) -> Iterator[None]:
    """Name the file in errors of FFmpeg, which knows the temporary one."""
    try:
        yield
    except av.FFmpegError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}") from error


VIEWS = ("heads", "mean", "mask")


def attention_video(
    frames: Iterable[ImageArray], predictor: "AttentionPredictor", *, mass: float = 0.6
) -> Generator[tuple[list[ImageArray], Labels]]:
    """Draw the [CLS] attention of every frame of a video.

    The brightest color is the 99.5th percentile of the first frame, for all frames.

    Yields:
        The `VIEWS` heads (every head next to the frame), mean (heat map over the frame) and mask (outline of
        the patches that keep `mass` of the mean attention). The mask also as labels 0 and 1 [height, width].
    """
    brightest: NDArray[np.floating] | None = None  # of each head, and of the mean
    for frame in frames:
        predictor.set_image(frame)
        attention = predictor.cls_attention()  # [heads, rows, columns]
        mean = attention.mean(0)
        if brightest is None:
            brightest = np.quantile([*attention, mean], 0.995, axis=(1, 2))
        kept = keep_mass_of_maps(mean, mass)
        small = shrunk(frame)
        views = [
            _mosaic(frame, attention, brightest[:-1]),
            drawing.overlay_heat(small, mean, (0.0, float(brightest[-1]))),
            drawing.overlay_masks(small, enlarge(kept, small.shape[:2])),
        ]
        yield views, enlarge(kept, frame.shape[:2]).astype(np.uint8)


def shrunk(image: ImageArray, max_side: int = MAX_SIDE) -> ImageArray:
    """Shrink an image so that its longer side is at most `max_side` pixels."""
    scale = max_side / max(image.shape[:2])
    return image if scale >= 1 else drawing.rescale(image, scale)


def draw_labels(
    frame: ImageArray, labels: Labels, ids: Sequence[int], max_side: int = MAX_SIDE
) -> ImageArray:
    """Tint and outline the objects of a frame, at most `max_side` pixels large, with a legend below.

    `ids` are the labels of all objects of the video, so that the legend is the same in every frame.
    """
    small = shrunk(frame, max_side)
    shown = enlarge(labels, small.shape[:2])
    colors = drawing.head_colors(max(ids))[np.array(ids) - 1]
    drawn = drawing.overlay_masks(small, np.stack([shown == label for label in ids]), colors=colors)
    names = [f"object {label}" for label in ids]
    return drawing.with_legend(drawn, list(zip(names, colors, strict=True)))


def _mosaic(frame: ImageArray, attention: NDArray[np.float32], brightest: NDArray[np.floating]) -> ImageArray:
    """Draw the frame and the heat map of each head as tiles, about `MAX_SIDE` wide or high."""
    columns = ceil(sqrt(1 + len(attention)))
    small = shrunk(frame, MAX_SIDE // columns)
    tiles = [("frame", small)]
    for number, (head, most) in enumerate(zip(attention, brightest.tolist(), strict=True)):
        heat = drawing.heat_map(head, small.shape[:2], value_range=(0, most), interpolation="bilinear")
        tiles.append((f"head {number}", heat))
    rows = [tiles[start : start + columns] for start in range(0, len(tiles), columns)]
    return drawing.contact_sheet(rows, height=small.shape[0])
