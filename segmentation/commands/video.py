"""`python -m segmentation video`: attention of a video, or the labels of some frames propagated."""

import re
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from dino_model.inference.options import ModelOptions
from dino_model.runtime.ahead import run_ahead
from dino_model.runtime.batch import BatchCommand, Inputs
from dino_model.runtime.errors import pluralize
from dino_model.runtime.outputs import OutputFolder, SkippedInputs
from dino_model.runtime.progress import progress
from segmentation.annotations import MaskReader
from segmentation.coco import CocoWriter
from segmentation.commands.common import MaskOptions, model_settings, propagation_predictor, report_lost
from segmentation.datasets import read_frame_mask
from segmentation.frames import frame_files
from segmentation.labels import DataError, Labels, object_ids, write_mask_png
from segmentation.masks import ImageArray, check_mass
from segmentation.video import VIEWS, VideoWriter, attention_video, draw_labels
from segmentation.video_input import FrameFolder, Frames, open_frames

if TYPE_CHECKING:
    from dino_model.inference.predictor import AttentionPredictor

Results = Generator[tuple[list[ImageArray], Labels]]
"""Drawings of each frame, one for each video, and labels."""


@dataclass(frozen=True)
class Video(MaskOptions, ModelOptions, BatchCommand[Inputs, dict[int, Labels]]):
    """Attention of a video; with --mask or --masks, the labels of some frames propagated.

    Writes three videos. heads has every head next to the frame, mean the heat map of the mean of the heads,
    mask the outline of the kept patches. With masks, writes the video labels instead. Also writes
    masks/FRAME.png (palette PNGs), masks.json and masks_images.json (COCO run lengths). After Ctrl-C the
    finished frames are kept. --resume restarts a video, because its frames depend on each other.
    """

    input: tyro.conf.Positional[Path]
    """Video file, or folder of images numbered in their order."""
    mask: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[FRAME=]FILE …")] = ()
    """Labels of frames to propagate, such as first.png or 12=later.png; frames count from 0."""
    masks: Path | None = None
    """Folder of labels of frames: files with the names of frames, or their numbers for a video file."""
    mass: float = 0.6
    """Share of the attention that a mask keeps, above 0 and up to 1."""
    preset: Literal["dino", "crw"] = "dino"
    """Protocol of the propagation, with masks."""
    format: Literal["webm", "mp4"] = "webm"
    """Format of the videos: WebM (VP8, which browsers play) or MPEG-4."""
    frames: Path | None = None
    """Text file with the names of the frames of a folder in their order, one a line."""
    fps: float = 24.0
    """Frames per second of a folder; a video file has its own."""

    kind: ClassVar[str] = "videos"

    @cached_property
    def _frames(self) -> Frames:
        return open_frames(self.input, fps=self.fps, listed=self.frames)

    @cached_property
    def _reader(self) -> MaskReader:
        return self.mask_reader(list(self._mask_files.values()))

    @cached_property
    def _predictor(self) -> "AttentionPredictor":
        return propagation_predictor(self, self.preset) if self._mask_files else self.predictor()

    def run(self) -> None:
        """Draw and write one frame at a time; name frames that could not be decoded."""
        super().run()
        frames, skipped = self._frames, SkippedInputs()
        for problem in frames.damaged:
            skipped.add(self.input.name, DataError(problem))
        kind = "frames" if isinstance(frames, FrameFolder) else "packets"
        skipped.check(len(frames.times) + len(frames.damaged), kind)

    def items(self) -> list[Inputs]:
        """Check the options; the video is one item."""
        check_mass(self.mass, "--mass")
        if not 0 < self.fps < 1000:
            raise DataError(f"--fps is {self.fps:g}; expected more than 0 and less than 1000")
        return [Inputs(self._frames.name, [self.input, *self._mask_files.values()])]

    def settings(self) -> dict[str, Any]:
        """Describe the model, and the attention or the propagation."""
        settings = model_settings(self._predictor) | {"fps": self.fps, "format": self.format}
        if not self._mask_files:
            return settings | {"mass": self.mass}
        names = {str(number): file.name for number, file in self._mask_files.items()}
        rules = {"mask_rules": asdict(self.mask_rules()), "values": self._reader.describe()}
        return settings | rules | {"preset": self.preset, "masks": names}

    def read(self, item: Inputs) -> dict[int, Labels]:
        """Read the first frame, for its size, and the masks."""
        height, width = next(iter(self._frames)).shape[:2]
        print(f"{self._frames.title}: {width}x{height}", flush=True)
        files = self._mask_files.items()
        first, reader = min(self._mask_files, default=0), self._reader
        return {
            number: read_frame_mask(reader, file, (height, width), may_be_empty=number > first)
            for number, file in files
        }

    def compute(self, item: Inputs, loaded: dict[int, Labels], output: OutputFolder) -> int:
        """Write videos, masks and COCO files; record the number of frames."""
        frames, names = self._frames, ("labels",) if loaded else VIEWS
        attention = partial(attention_video, run_ahead(frames), self._predictor, mass=self.mass)
        results = self._propagate(loaded) if loaded else attention()
        count, coco = 0, CocoWriter(output.path("masks.json"), output.path("masks_images.json"))
        try:
            with closing(results), ExitStack() as stack:
                files = (output.path(f"{name}.{self.format}") for name in names)
                opened = [VideoWriter(file, frames.fps) for file in files]
                writers = [stack.enter_context(writer) for writer in opened]
                for views, labels in progress(results, frames.name, frames.expected or None):
                    for writer, view in zip(writers, views, strict=True):
                        writer.write(view, frames.times[count])
                    file_name = frames.file_name(count)
                    write_mask_png(output.path("masks", f"{Path(file_name).stem}.png"), labels)
                    coco.add_labels(file_name, labels)
                    count += 1
        except KeyboardInterrupt:
            expected = f" of {frames.expected}" if frames.expected else ""
            print(f"{count}{expected} frames are finished and kept in {self.output}", flush=True)
            raise
        coco.write()
        return count

    def finish(self, items: Sequence[Inputs], output: OutputFolder) -> dict[str, Any]:
        """Print the number of frames."""
        count, expected = output.finished[items[0].name], self._frames.expected
        print(pluralize(count, "frame"))
        if count + len(self._frames.damaged) < expected:
            print(f"note: {self.input.name} promises {expected} frames, {count} could be decoded")
        return {"frames": count, "expected": expected, "model": self._predictor.model.name}

    @cached_property
    def _mask_files(self) -> dict[int, Path]:
        """The mask file of each frame that has one, by its number in ascending order."""
        frames = self._frames
        files: list[tuple[int, Path]] = []
        stems = [file.stem for file in frames.files[1:]] if isinstance(frames, FrameFolder) else []
        for text in map(str, self.mask):
            match = re.fullmatch(r"(\d+)=(.+)", text)
            if not match and (stem := Path(text).stem) in stems:
                number = stems.index(stem) + 1
                raise DataError(
                    f"{text} has the name of frame {number}: pass --mask {number}={text}, or 0={text}"
                )
            files.append((int(match[1]), Path(match[2])) if match else (0, Path(text)))
        if self.masks is not None:
            found, expected = frame_files(self.masks, self.frames), f"the name of a frame of {self.input}"
            if isinstance(frames, FrameFolder):
                numbers = {file.stem: number for number, file in enumerate(frames.files)}
            else:
                numbers = {file.stem: int(file.stem) for file in found if file.stem.isdecimal()}
                expected = "numbers of frames such as 00012.png"
            if wrong := [file.name for file in found if file.stem not in numbers]:
                raise DataError(f"{self.masks} has {wrong[0]}; expected {expected}")
            files += [(numbers[file.stem], file) for file in found]
        numbered = dict(sorted(files))
        if len(numbered) < len(files):
            raise DataError("two masks belong to one frame; pass one of them")
        if isinstance(frames, FrameFolder) and numbered and max(numbered) >= len(frames.files):
            raise DataError(f"a mask belongs to frame {max(numbered)}; the last is {len(frames.files) - 1}")
        return numbered

    def _propagate(self, masks: dict[int, Labels]) -> Results:
        """Propagate the labels of some frames, and draw those of all."""
        from segmentation.propagation import PRESETS
        from segmentation.tracking import object_changes, propagate_masks

        for number, mask in masks.items():
            report_lost(self._mask_files[number].name, mask, self._predictor, self.preset)
        print(f"masks of {pluralize(len(masks), 'frame')}: {', '.join(map(str, masks))}", flush=True)
        for number, changes in object_changes(masks):
            name = Path(self._frames.file_name(number)).stem
            print(f"frame {name}: {changes or 'the same objects'}", flush=True)
        ids = sorted(set().union(*map(object_ids, masks.values())))
        # The same video with its own position: its frames are read backward from later masks.
        again = open_frames(self.input, fps=self.fps, listed=self.frames)
        waiting: deque[ImageArray] = deque()  # frames whose labels are not computed yet: a few batches

        def read(start: int, stop: int | None) -> Iterator[ImageArray]:
            if stop is not None:
                yield from islice(again, start, stop)
                return
            for frame in self._frames:
                waiting.append(frame)
                yield frame

        for labels in propagate_masks(read, masks, self._predictor, PRESETS[self.preset], overlap=True):
            yield [draw_labels(waiting.popleft(), labels, ids)], labels
