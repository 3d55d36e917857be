"""Frames of videos: files that FFmpeg reads, animated images, and folders of images.

Each frame is read and used before the next, so memory does not grow with the length.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import numpy as np
from PIL import Image, ImageSequence

from dino_model.data import images
from segmentation.frames import describe_order, frame_files
from segmentation.labels import DataError, check_size
from segmentation.masks import ImageArray

DEFAULT_FPS = 24.0  # frames per second of a folder of frames
LEAST_STEP = 0.0015  # seconds between frames: WebM counts milliseconds
CONTAINERS = re.compile(
    rb"....(ftyp|moov|mdat|wide|free|skip)"  # MP4, MOV
    rb"|\x1a\x45\xdf\xa3.{0,60}(matroska|webm)"
    rb"|RIFF....AVI |OggS|FLV\x01|GIF8"
    rb"|\x00\x00\x01[\xb3\xba]|\x47.{187}\x47",  # MPEG
    re.DOTALL,
)
"""First bytes of what FFmpeg receives. Playlists, which it would also try, open further files."""
ANIMATED = re.compile(rb"RIFF....WEBP|\x89PNG|....ftypavi|\xff\xd8\xff|BM|II\*\0|MM\0\*", re.DOTALL)
"""First bytes of images, animated ones or stacks, that Pillow reads. FFmpeg reads GIF."""


def open_frames(path: Path, *, fps: float = DEFAULT_FPS, listed: Path | None = None) -> "Frames":
    """Open a video file or animated image, or a folder of images in their order, shown at `fps`.

    `listed` gives the order of a folder, see `frame_files`.

    Raises:
        DataError: No such file, no video, no frame, or frames without one sensible order.
    """
    if path.is_dir():
        return FrameFolder(path, fps, listed)
    if listed is not None:
        raise DataError(f"--frames gives the order of a folder; {path} is a file")
    if not path.exists():
        raise DataError(f"{path} does not exist; pass a video file or a folder of frames")
    with path.open("rb") as file:
        start = file.read(16)
    if not start or start.startswith(b"version https://"):
        found = "a Git LFS pointer: run `git lfs pull`" if start else "empty (0 bytes): copy it again"
        raise DataError(f"{path} is {found}")
    return AnimatedImage(path) if ANIMATED.match(start) else VideoFile(path)


class Frames:
    """Images of a video, in order. Every iteration starts again.

    Attributes:
        name, title: Name of the video; of a folder the title has the first and last frame.
        fps: Frames per second.
        expected: Number of frames according to the file.
        times: Time of each frame of the latest iteration, in seconds from the first, increasing.
        damaged: Parts of the latest iteration that could not be decoded, with the reasons.
    """

    fps: float
    expected: int

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.title = path, path.stem, path.name
        self.times, self.damaged = list[float](), list[str]()

    def __iter__(self) -> Iterator[ImageArray]:
        """Iterate over the frames; raises ImageError or DataError for an unusable one."""
        raise NotImplementedError

    def file_name(self, number: int) -> str:
        """Return the number of the frame with five digits or more, as a PNG file name."""
        return f"{number:05d}.png"


class FrameFolder(Frames):
    """A folder of images."""

    def __init__(self, folder: Path, fps: float = DEFAULT_FPS, listed: Path | None = None) -> None:
        super().__init__(folder.resolve())
        files = frame_files(folder, listed)
        self.files = [file for file in files if file.exists()]
        self.damaged = [f"{file.name} (a link to a missing file)" for file in files if not file.exists()]
        if not self.files:
            raise DataError(f"{folder} holds only links to missing files; fetch the files of the frames")
        self.name, self.fps, self.expected = self.path.name, fps, len(files)
        self.times = [number / fps for number in range(len(self.files))]
        self.title = f"{self.name}, {describe_order(self.files)}"

    def __iter__(self) -> Iterator[ImageArray]:
        read = (images.read(file, name=str(file)) for file in self.files)
        return _of_one_size(read, lambda number: f"the frame {self.files[number]}")

    def file_name(self, number: int) -> str:
        """Return the name of the image file."""
        return self.files[number].name


class AnimatedImage(Frames):
    """An animated WebP, PNG or AVIF, or a TIFF of pages, over white."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with self._open() as image:
            self.expected = int(getattr(image, "n_frames", 1))
            if image.mode[0] in "IF":
                raise DataError(f"{path} has values of more than 8 bits; scale them, as a folder of frames")
            durations = []
            for number in range(self.expected):
                image.seek(number)
                image.load()  # sets the duration of WebP
                durations.append(
                    max(LEAST_STEP, float(image.info.get("duration") or 1000 / DEFAULT_FPS) / 1000)
                )
        if self.expected < 2:
            raise DataError(f"{path} is an image of one frame; pass a video, an animated image or a folder")
        self.times = [sum(durations[:number]) for number in range(self.expected)]
        self.fps = min(1 / min(durations), 60.0)

    def __iter__(self) -> Iterator[ImageArray]:
        with self._open() as image:
            for frame in ImageSequence.Iterator(image):
                yield _over_white(np.asarray(frame.convert("RGBA")))

    @contextmanager
    def _open(self) -> Iterator[Image.Image]:
        try:
            with Image.open(self.path, formats=images.FORMATS) as image:
                yield image
        except (OSError, SyntaxError, EOFError, ValueError, Image.DecompressionBombError) as error:
            raise DataError(f"{self.path} cannot be read as an animated image: {error}") from error


class VideoFile(Frames):
    """A video file, turned upright as its metadata say, over white."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with self._open() as (container, stream):
            if (count := len(container.streams.video)) > 1:
                self.title += f", the first of {count} videos or images in it"
            rate = float(stream.average_rate or 0)
            self.fps = rate if 0 < rate < 1000 else DEFAULT_FPS
            if next(self._decode(container, stream), None) is None:
                raise DataError(f"no frame of {path} can be decoded; it is damaged, or of an unknown kind")
            self.expected = int(stream.frames)
        if not self.expected:  # count without decoding; some packets are never shown
            with self._open() as (container, stream):
                packets = sum(packet.size > 0 for packet in container.demux(stream))
                seconds = (container.duration or 0) / 1e6
            self.expected = min(packets, round(seconds * self.fps) or packets)

    def __iter__(self) -> Iterator[ImageArray]:
        return _of_one_size(self._upright(), lambda number: f"frame {number} of {self.path}")

    def _upright(self) -> Iterator[ImageArray]:
        self.times, self.damaged, offset = [], [], 0.0
        with self._open() as (container, stream):
            for frame in self._decode(container, stream):
                last, interval = (self.times[-1] if self.times else -1 / self.fps), 1 / self.fps
                time = last + interval if frame.time is None else frame.time + offset
                if not self.times or time < last - interval / 2:  # the first, or times that start again
                    offset, time = offset + last + interval - time, last + interval
                self.times.append(max(time, last + LEAST_STEP))
                yield _turn(_over_white(_decode(frame)), _display_matrix(frame))

    @contextmanager
    def _open(self) -> Iterator[tuple[av.container.InputContainer, av.VideoStream]]:
        try:
            container = av.open(str(self.path))
        except (av.FFmpegError, OSError) as error:
            raise DataError(f"{self.path} cannot be opened as a video ({error.strerror})") from error
        with container:
            covers = av.stream.Disposition.attached_pic
            streams = [stream for stream in container.streams.video if not stream.disposition & covers]
            if not streams:
                found = [stream.type for stream in container.streams if stream.type != "video"]
                cover = ["a cover image"] * bool(container.streams.video)
                raise DataError(f"{self.path} holds no video, only {', '.join([*found, *cover])}")
            streams[0].thread_type = "SLICE"  # decoding of several frames at once reports errors late
            yield container, streams[0]

    def _decode(
        self, container: av.container.InputContainer, stream: av.VideoStream
    ) -> Iterator[av.VideoFrame]:
        """Yield the frames; packets that cannot be decoded are added to `damaged`."""
        packets, number, decoder = container.demux(stream), 0, _alpha_decoder(stream)
        while True:
            try:
                packet = next(packets, None)
            except av.FFmpegError as error:  # the container is cut or damaged
                self.damaged.append(f"all after packet {number} ({error.strerror})")
                return
            if packet is None:
                return
            try:
                frames = decoder.decode(packet if packet.size else None) if decoder else packet.decode()
            except av.FFmpegError as error:
                self.damaged.append(f"packet {number} ({error.strerror})")
                frames = []
            number += 1
            yield from frames


def _alpha_decoder(stream: av.VideoStream) -> Any:
    """Return a decoder of the alpha of WebM, which FFmpeg's default decoders drop; None for other videos."""
    names = {"vp8": "libvpx", "vp9": "libvpx-vp9"}
    if stream.metadata.get("alpha_mode") != "1" or stream.codec_context.name not in names:
        return None
    decoder: Any = av.CodecContext.create(names[stream.codec_context.name], "r")
    return decoder


def _of_one_size(frames: Iterable[ImageArray], name: Callable[[int], str]) -> Iterator[ImageArray]:
    """Yield frames; raises DataError, with the name of the frame, if one differs in size from the first."""
    size = None
    for number, image in enumerate(frames):
        size = size or image.shape
        check_size(name(number), image.shape, "the first", size)
        yield image


def _decode(frame: av.VideoFrame) -> ImageArray:
    """Convert a frame to red, green, blue and, where it has some, alpha: [height, width, 3 or 4]."""
    has_alpha = frame.format.has_palette or any(part.is_alpha for part in frame.format.components)
    return np.asarray(frame.to_ndarray(format="rgba" if has_alpha else "rgb24"), dtype=np.uint8)


def _over_white(image: ImageArray) -> ImageArray:
    """Blend an image, if it has alpha [height, width, 4], with white: [height, width, 3]."""
    if image.shape[-1] == 3:
        return image
    color, alpha = image[..., :3], image[..., 3:]
    shares = alpha.astype(np.uint16)
    return ((color * shares + 255 * (255 - shares) + 127) // 255).astype(np.uint8)


def _display_matrix(frame: av.VideoFrame) -> tuple[int, int, int, int]:
    """Return a, b, c, d of the matrix that maps a pixel (x, y) to (ax + cy, bx + dy) on the screen."""
    data: Any = frame.side_data.get("DISPLAYMATRIX")
    a, b, _, c, d = (1, 0, 0, 0, 1) if data is None else np.frombuffer(data, np.int32)[:5].tolist()
    return a, b, c, d


def _turn(image: ImageArray, matrix: tuple[int, int, int, int]) -> ImageArray:
    """Turn and mirror an image by the multiple of 90 degrees that is nearest to a display matrix."""
    a, b, c, d = matrix
    across, down = a, d
    if abs(b) + abs(c) > abs(a) + abs(d):
        image, across, down = image.swapaxes(0, 1), c, b
    return np.ascontiguousarray(image[:: -1 if down < 0 else 1, :: -1 if across < 0 else 1])
