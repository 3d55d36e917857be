"""`python -m segmentation video`: attention of a video, or the labels of some frames propagated."""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import tyro

from dino_model.inference.options import ModelOptions
from dino_model.runtime.ahead import run_ahead
from dino_model.runtime.batch import BatchCommand, Inputs
from dino_model.runtime.errors import pluralize
from dino_model.runtime.outputs import OutputFolder, SkippedInputs
from dino_model.runtime.progress import progress
from segmentation.coco import CocoWriter
from segmentation.commands.common import MaskOptions, model_settings, propagation_predictor, report_lost
from segmentation.frames import frame_files
from segmentation.labels import DataError, Labels, check_size, object_ids, write_mask_png
from segmentation.masks import ImageArray, check_mass
from segmentation.video import VIEWS, VideoWriter, attention_video, draw_labels
from segmentation.video_input import FrameFolder, Frames, open_frames

if TYPE_CHECKING:
    from dino_model.inference.predictor import AttentionPredictor
    from segmentation.annotations import MaskReader

Results = Generator[tuple[list[ImageArray], Labels]]
"""Drawings of each frame, one for each video, and labels."""


@dataclass(frozen=True)
class Video(MaskOptions, ModelOptions, BatchCommand[Inputs, dict[int, Labels]]):
    """Attention of a video; with --masks, the labels of some frames propagated.

    Writes three videos. heads has every head next to the frame, mean the heat map of the mean of the heads,
    mask the outline of the kept patches. With masks, writes the video labels instead. Also writes
    masks/FRAME.png (palette PNGs), masks.json and masks_images.json (COCO run lengths). After Ctrl-C the
    finished frames are kept. --resume restarts a video, because its frames depend on each other.
    """

    input: tyro.conf.Positional[Path]
    """Video file, or folder of images numbered in their order."""
    masks: Path | None = None
    """Labels to propagate: a file for the first frame, or a folder of files with the names of frames, for a
    video file their numbers from 0."""
    mass: float = 0.6
    """Share of the attention that a mask keeps, above 0 and up to 1."""
    preset: Literal["dino", "crw"] = "dino"
    """Protocol of the propagation, with masks."""
    format: Literal["webm", "mp4"] = "webm"
    """Format of the videos: WebM (VP8, which browsers play) or MPEG-4."""
    fps: float = 24.0
    """Frames per second of a folder; a video file has its own."""

    kind: ClassVar[str] = "videos"

    @cached_property
    def _frames(self) -> Frames:
        return open_frames(self.input, fps=self.fps)

    @cached_property
    def _reader(self) -> "MaskReader":
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
        check_mass(self.mass, "--mass")
        if not 0 < self.fps < 1000:
            raise DataError(f"--fps is {self.fps:g}; expected more than 0 and less than 1000")
        return [Inputs(self._frames.name, [self.input, *self._mask_files.values()])]

    def settings(self) -> dict[str, Any]:
        settings = model_settings(self._predictor) | {"fps": self.fps, "format": self.format}
        if not self._mask_files:
            return settings | {"mass": self.mass}
        names = {str(number): file.name for number, file in self._mask_files.items()}
        rules = {"mask_rules": asdict(self.mask_rules()), "values": self._reader.label_set.describe()}
        return settings | rules | {"preset": self.preset, "masks": names}

    def read(self, item: Inputs) -> dict[int, Labels]:
        size, masks = next(iter(self._frames)).shape, dict[int, Labels]()
        print(f"{self._frames.title}: {size[1]}x{size[0]}", flush=True)
        for number, file in self._mask_files.items():
            labels = self._reader.read(file)
            if not masks and not object_ids(labels):
                raise DataError(f"the mask {file} marks no object: every pixel is 0 or 255 (void)")
            check_size(f"the mask {file}", labels.shape, "the frames", size)
            masks[number] = labels
        return masks

    def compute(self, item: Inputs, loaded: dict[int, Labels], output: OutputFolder) -> int:
        """Write videos, masks and COCO files; record the number of frames."""
        frames, names = self._frames, ("labels",) if loaded else VIEWS
        results = self._propagate(loaded) if loaded else self._attention()
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
        count, expected = output.finished[items[0].name], self._frames.expected
        print(pluralize(count, "frame"))
        if count + len(self._frames.damaged) < expected:
            print(f"note: {self.input.name} promises {expected} frames, {count} could be decoded")
        return {"frames": count, "expected": expected, "model": self._predictor.model.name}

    @cached_property
    def _mask_files(self) -> dict[int, Path]:
        """The mask file of each frame that has one, by its number in ascending order."""
        files, frames = dict[int, Path](), self._frames
        names = [file.stem for file in frames.files] if isinstance(frames, FrameFolder) else []
        if self.masks and not self.masks.is_dir():
            if self.masks.stem in names[1:]:
                raise DataError(f"{self.masks} has the name of a later frame: pass a folder that holds it")
            return {0: self.masks}
        for file in frame_files(self.masks) if self.masks else ():
            if file.stem not in names and (names or not file.stem.isdecimal()):
                expected = f"the name of a frame of {self.input}" if names else "numbers such as 00012.png"
                raise DataError(f"{self.masks} has {file.name}; expected {expected}")
            files[names.index(file.stem) if names else int(file.stem)] = file
        return dict(sorted(files.items()))

    def _attention(self) -> Results:
        return attention_video(run_ahead(self._frames), self._predictor, mass=self.mass)

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
        again = open_frames(self.input, fps=self.fps)
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
