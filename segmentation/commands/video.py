"""`python -m segmentation video`: attention of a video, or the labels of some frames propagated."""

import re
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from dino_model.inference.options import ModelOptions
from dino_model.runtime.ahead import run_ahead
from dino_model.runtime.errors import pluralize
from dino_model.runtime.outputs import OutputFolder, OutputOptions, SkippedInputs
from dino_model.runtime.progress import progress
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
class Video(MaskOptions, ModelOptions, OutputOptions):
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

    def run(self) -> None:
        """Check, read, draw and write one frame at a time."""
        check_mass(self.mass, "--mass")
        if not 0 < self.fps < 1000:
            raise DataError(f"--fps is {self.fps:g}; expected more than 0 and less than 1000")
        self.check_output()
        frames = open_frames(self.input, fps=self.fps, listed=self.frames)
        height, width = next(iter(frames)).shape[:2]
        mask_files = self._mask_files(frames)
        if mask_files:
            predictor = propagation_predictor(self, self.preset)
            results, settings = self._propagate(frames, predictor, mask_files, (height, width))
        else:
            predictor, settings = self.predictor(), {"mass": self.mass}
            results = attention_video(run_ahead(frames), predictor, mass=self.mass)
        settings |= {"fps": self.fps, "format": self.format}
        output = self.open_output(model_settings(predictor) | settings)
        inputs = [self.input, *mask_files.values()]
        if output.has(frames.name, inputs):
            print(f"{self.output} is finished already")
            return
        output = OutputFolder(self.output, output.settings, overwrite=True)
        print(f"{frames.title}: {width}x{height}", flush=True)
        count = self._write(frames, results, output, ("labels",) if mask_files else VIEWS)
        output.add(frames.name, count, inputs=inputs, files=[output.path("masks.json")])
        output.finish()
        print(f"{pluralize(count, 'frame')} written to {self.output}")
        if count + len(frames.damaged) < frames.expected:
            print(f"note: {self.input.name} promises {frames.expected} frames, {count} could be decoded")
        skipped = SkippedInputs()
        for problem in frames.damaged:
            skipped.add(self.input.name, DataError(problem))
        skipped.check(count + len(frames.damaged), "frames" if isinstance(frames, FrameFolder) else "packets")

    def _write(self, frames: Frames, results: Results, output: OutputFolder, names: Sequence[str]) -> int:
        """Write the videos of these names, masks and COCO files; returns the number of frames."""
        count, coco = 0, CocoWriter(output.path("masks.json"), output.path("masks_images.json"))
        try:
            with closing(results), ExitStack() as stack:
                files = (output.path(f"{name}.{self.format}") for name in names)
                opened = [VideoWriter(file, frames.fps, keep_partial=True) for file in files]
                writers = [stack.enter_context(writer) for writer in opened]
                for views, labels in progress(results, frames.name, frames.expected or None):
                    for writer, view in zip(writers, views, strict=True):
                        writer.write(view, frames.times[count])
                    file_name = frames.file_name(count)
                    write_mask_png(output.path("masks", f"{Path(file_name).stem}.png"), labels)
                    coco.add_labels(file_name, labels)
                    count += 1
        except BaseException:
            expected = f" of {frames.expected}" if frames.expected else ""
            print(f"{count}{expected} frames are finished and kept in {self.output}", flush=True)
            raise
        coco.write()
        return count

    def _mask_files(self, frames: Frames) -> dict[int, Path]:
        """Return the mask file of each frame that has one, by its number in ascending order."""
        files: list[tuple[int, Path]] = []
        for text in map(str, self.mask):
            match = re.fullmatch(r"(\d+)=(.+)", text)
            files.append((int(match[1]), Path(match[2])) if match else (0, Path(text)))
        if self.masks is not None:
            found = frame_files(self.masks, self.frames)
            if isinstance(frames, FrameFolder):
                numbers = {file.stem: number for number, file in enumerate(frames.files)}
                if alone := [file.name for file in found if file.stem not in numbers]:
                    raise DataError(
                        f"{self.masks} has {alone[0]}, but {self.input} has no frame of this name"
                    )
                files += [(numbers[file.stem], file) for file in found]
            else:
                if wrong := [file.name for file in found if not file.stem.isdecimal()]:
                    expected = "expected numbers of frames such as 00012.png"
                    raise DataError(f"{self.masks} has {wrong[0]}; {expected}")
                files += [(int(file.stem), file) for file in found]
        numbered = dict(sorted(files))
        if len(numbered) < len(files):
            raise DataError("two masks belong to one frame; pass one of them")
        if isinstance(frames, FrameFolder) and numbered and max(numbered) >= len(frames.files):
            raise DataError(f"a mask belongs to frame {max(numbered)}; the last is {len(frames.files) - 1}")
        return numbered

    def _propagate(
        self,
        frames: Frames,
        predictor: "AttentionPredictor",
        files: dict[int, Path],
        size: tuple[int, int],
    ) -> tuple[Results, dict[str, Any]]:
        """Read masks of frames of a size; returns the propagation of their labels, and its settings."""
        reader = self.mask_reader(list(files.values()))
        masks = {number: read_frame_mask(reader, file, size) for number, file in files.items()}
        for number, mask in masks.items():
            report_lost(files[number].name, mask, predictor, self.preset)
        print(f"masks of {pluralize(len(masks), 'frame')}: {', '.join(map(str, masks))}", flush=True)
        rules = asdict(self.mask_rules())
        settings = {"preset": self.preset, "mask_rules": rules, "values": reader.describe()}
        again = open_frames(self.input, fps=self.fps, listed=self.frames)  # its own times and position
        results = _draw_propagation(frames, again, predictor, masks, self.preset)
        return results, settings | {"masks": {str(number): file.name for number, file in files.items()}}


def _draw_propagation(
    frames: Frames,
    again: Frames,
    predictor: "AttentionPredictor",
    masks: dict[int, Labels],
    preset: str,
) -> Results:
    """Propagate labels; `again` is the same video, whose frames are read backward from later masks."""
    from segmentation.propagation import PRESETS
    from segmentation.tracking import propagate_masks

    ids = sorted(set().union(*map(object_ids, masks.values())))
    waiting: deque[ImageArray] = deque()  # frames whose labels are not computed yet: a few batches

    def read(start: int, stop: int | None) -> Iterator[ImageArray]:
        if stop is not None:
            yield from islice(again, start, stop)
            return
        for frame in frames:
            waiting.append(frame)
            yield frame

    for labels in propagate_masks(read, masks, predictor, PRESETS[preset], overlap=True):
        yield [draw_labels(waiting.popleft(), labels, ids)], labels
