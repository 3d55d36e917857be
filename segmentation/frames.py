"""Frames of any video: a file, or a folder of pictures numbered in their order.

Everything streams: a frame is read and used before the next, so memory does not grow with the length.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from dino_model import images

if TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer

Picture = NDArray[np.uint8]
"""RGB: [height, width, 3]."""

DEFAULT_FPS = 24.0
"""Frames a second of a folder of frames, which does not say."""


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

    def time(self, number: int) -> float:
        """When a frame is shown, in seconds from the first; known once the frame was handed out."""
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
        """Frames in order.

        Raises:
            ImageError, VideoError: one that cannot be read, or of another size; both name its file.
        """
        size = None
        for file in self.files:
            picture = images.read(file, name=str(file))
            size = check_size(picture, size, f"the frame {file}")
            yield picture

    def sample(self, count: int) -> Iterator[Picture]:
        """Up to `count` frames spread evenly."""
        return (
            images.read(self.files[index], name=str(self.files[index]))
            for index in _spread(len(self.files), count)
        )

    def frame_name(self, number: int) -> str:
        """Name of the picture file without its suffix."""
        return self.files[number].stem

    def time(self, number: int) -> float:
        """When a frame is shown."""
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
        """How many frames a file that does not say holds, without decoding them."""
        with _opened(self.path) as container:
            packets = sum(packet.size > 0 for packet in container.demux(video=0))
            seconds = (container.duration or 0) / 1e6
        # Some packets hold what is only referred to and never shown; some frames last longer than others.
        return min(packets, round(seconds * self.fps) or packets)

    def __iter__(self) -> Iterator[Picture]:
        """Frames in order, to the last that can be decoded.

        Raises:
            VideoError: a frame of another size than the first.
        """
        self.times = []
        size, start = None, 0.0
        with _opened(self.path) as container:
            for number, frame in enumerate(_decoded(container)):
                picture = _upright(frame)
                size = check_size(picture, size, f"frame {number} of {self.path}")
                # A file may not tell times: its frames then come evenly.
                time = number / self.fps if frame.time is None else frame.time
                start = start if number else time
                self.times.append(time - start)
                yield picture

    def sample(self, count: int) -> Iterator[Picture]:
        """Up to `count` frames spread evenly, found without seeking, which not every format does right."""
        chosen = set(_spread(self.expected or count, count))
        with _opened(self.path) as container:
            for number, frame in zip(range(max(chosen) + 1), _decoded(container), strict=False):
                if number in chosen:
                    yield _upright(frame)

    def frame_name(self, number: int) -> str:
        """Five digits, more where needed."""
        return f"{number:05d}"

    def time(self, number: int) -> float:
        """When a frame is shown, exact where frames last differently."""
        return self.times[number]


def check_size(picture: Picture, size: tuple[int, int] | None, name: str) -> tuple[int, int]:
    """The size of a frame, which must be that of the frames before it, if there are any.

    Raises:
        VideoError: another size.
    """
    height, width = picture.shape[:2]
    if size is not None and size != (height, width):
        raise VideoError(
            f"{name} is {width}x{height} pixels, the first {size[1]}x{size[0]}; "
            "all frames of a video must be of one size"
        )
    return height, width


@contextmanager
def _opened(path: Path) -> Iterator["InputContainer"]:
    import av  # not needed for folders of frames

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


def _decoded(container: "InputContainer") -> Iterator["VideoFrame"]:
    """Frames to the last that can be decoded."""
    import av

    try:
        yield from container.decode(video=0)
    except av.FFmpegError:  # cut short or damaged: who asks notices how many came
        return


def _upright(frame: "VideoFrame") -> Picture:
    """uint8 [height, width, 3]."""
    picture = frame.to_ndarray(format="rgb24")
    return np.ascontiguousarray(np.rot90(picture, round(frame.rotation / 90)))


def _spread(length: int, count: int) -> list[int]:
    """Up to `count` different indices below `length`, evenly apart."""
    return sorted({int(index) for index in np.linspace(0, length - 1, min(count, length))})
