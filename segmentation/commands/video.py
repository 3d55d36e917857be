"""`python -m segmentation video`: attention of a video, or the labels of its first frame propagated."""

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tyro

from dino_model.ahead import run_ahead
from dino_model.options import ModelOptions
from dino_model.outputs import OutputFolder, OutputOptions
from dino_model.progress import progress
from segmentation.coco import coco_writer
from segmentation.commands.common import model_settings
from segmentation.labels import LabelError, Labels, object_ids, read_labels, write_mask_png
from segmentation.masks import ImageArray, check_mass
from segmentation.video import (
    VIEWS,
    FrameFolder,
    VideoError,
    VideoFile,
    VideoWriter,
    attention_video,
    draw_labels,
    open_frames,
)

if TYPE_CHECKING:
    from dino_model.predictor import AttentionPredictor

Frames = VideoFile | FrameFolder


@dataclass(frozen=True)
class Video(ModelOptions, OutputOptions):
    """Attention of a video; with --mask, the labels of its first frame propagated.

    Writes the videos heads (every head beside the frame), mean (heat map of the mean of the heads) and mask
    (outline of the kept patches); with --mask labels instead. Also masks/FRAME.png (palette PNGs) with
    masks.json and masks_images.json (COCO run lengths). After Ctrl-C the finished frames are kept in masks
    and in the videos; --resume starts an unfinished video again, because its frames depend on each other.
    """

    input: tyro.conf.Positional[Path]
    """Video file, or folder of images numbered in their order."""
    mask: Path | None = None
    """Labels of the first frame, a palette or gray PNG, to propagate through the video."""
    binary: bool = False
    """Every value other than 0 of --mask is object 1."""
    mass: float = 0.6
    """Share of the attention that a mask keeps, above 0 and up to 1."""
    preset: Literal["dino", "crw"] = "dino"
    """Protocol of the propagation, with --mask."""
    format: Literal["webm", "mp4"] = "webm"
    """Format of the videos: WebM (VP8, which browsers play) or MPEG-4."""
    fps: float = 24.0
    """Frames per second of a folder; a video file has its own."""

    def run(self) -> None:
        """Check, read, draw and write one frame at a time."""
        check_mass(self.mass, "--mass")
        if not 0 < self.fps < 1000:
            raise VideoError(f"--fps is {self.fps:g}; expected more than 0 and less than 1000")
        self.check_output()
        frames = open_frames(self.input, fps=self.fps)
        height, width = next(iter(frames)).shape[:2]
        mask = None if self.mask is None else self._first_mask(self.mask, (height, width))
        predictor = self._predictor()
        output = self.open_output(model_settings(predictor) | self._settings())
        inputs = [self.input] if self.mask is None else [self.input, self.mask]
        if output.has(frames.name, inputs):
            print(f"{self.output} is finished already")
            return
        output = OutputFolder(self.output, output.settings, overwrite=True)
        print(f"{self.input.name}: {width}x{height}", flush=True)
        found = (
            self._attention(frames, predictor, output)
            if mask is None
            else self._propagated(frames, predictor, mask, output)
        )
        count = 0
        results, images = output.path("masks.json"), output.path("masks_images.json")
        try:
            with closing(found), coco_writer(results, images) as writer:
                for labels in progress(found, frames.name, frames.expected or None):
                    file_name = frames.file_name(count)
                    write_mask_png(output.path("masks", f"{Path(file_name).stem}.png"), labels)
                    writer.add_labels(file_name, labels)
                    count += 1
        except BaseException:
            expected = f" of {frames.expected}" if frames.expected else ""
            print(f"{count}{expected} frames are finished and kept in {self.output}", flush=True)
            raise
        output.add(frames.name, count, inputs=inputs, files=[results])
        output.finish()
        print(f"{count} frames written to {self.output}")
        if count < frames.expected:
            print(f"note: {self.input.name} promises {frames.expected} frames, {count} could be decoded")

    def _settings(self) -> dict[str, Any]:
        if self.mask is None:
            return {"fps": self.fps, "format": self.format, "mass": self.mass}
        return {
            "fps": self.fps,
            "format": self.format,
            "preset": self.preset,
            "binary": self.binary,
        }

    def _predictor(self) -> "AttentionPredictor":
        from segmentation.propagation import PRESETS, official_std

        if self.mask is None:
            return self.predictor()
        model = self.load()
        std = official_std(model, PRESETS[self.preset])
        return self.predictor("davis", model=model, std=std, carries_labels=True)

    def _first_mask(self, file: Path, size: tuple[int, int]) -> Labels:
        mask = read_labels(file, binary=self.binary)
        if not object_ids(mask):
            raise LabelError(f"the mask {file} marks no object; if its object is 255, pass --binary")
        if mask.shape != size:
            raise LabelError(
                f"the mask {file} is {mask.shape[1]}x{mask.shape[0]} pixels, "
                f"the frames of {self.input.name} {size[1]}x{size[0]}; they must be of one size"
            )
        return mask

    def _attention(
        self, frames: Frames, predictor: "AttentionPredictor", output: OutputFolder
    ) -> Generator[Labels]:
        """Draw the attention of every frame; yields the masks."""
        drawn = attention_video(run_ahead(frames), predictor, mass=self.mass)
        with ExitStack() as stack:
            writers = {view: stack.enter_context(self._writer(view, frames, output)) for view in VIEWS}
            for number, frame in enumerate(drawn):
                for view, image in frame.views.items():
                    writers[view].write(image, frames.time(number))
                yield frame.mask.astype(np.uint8)

    def _propagated(
        self, frames: Frames, predictor: "AttentionPredictor", mask: Labels, output: OutputFolder
    ) -> Generator[Labels]:
        """Propagate the labels through the video and draw them; yields the labels."""
        from segmentation.propagation import PRESETS, propagate_frames

        ids = object_ids(mask)
        waiting: deque[ImageArray] = deque()  # frames whose labels are not computed yet: a few batches

        def read() -> Iterator[ImageArray]:
            for frame in frames:
                waiting.append(frame)
                yield frame

        labeled = propagate_frames(read(), mask, predictor, PRESETS[self.preset], overlap=True)
        with self._writer("labels", frames, output) as writer:
            for number, labels in enumerate(labeled):
                writer.write(draw_labels(waiting.popleft(), labels, ids), frames.time(number))
                yield labels

    def _writer(self, view: str, frames: Frames, output: OutputFolder) -> VideoWriter:
        return VideoWriter(output.path(f"{view}.{self.format}"), frames.fps, keep_partial=True)
