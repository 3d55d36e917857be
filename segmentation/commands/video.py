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
from segmentation.commands.common import check_at_least, check_head, model_settings
from segmentation.labels import LabelError, Labels, object_ids, read_labels, write_mask_png
from segmentation.masks import ImageArray, check_mass
from segmentation.video import (
    VIEWS,
    FrameFolder,
    VideoError,
    VideoFile,
    VideoWriter,
    View,
    attention_video,
    color_range,
    draw_labels,
    open_frames,
)

if TYPE_CHECKING:
    from dino_model.predictor import AttentionPredictor

Frames = VideoFile | FrameFolder


@dataclass(frozen=True)
class Video(ModelOptions, OutputOptions):
    """Attention of a video; with --mask, the labels of its first frame propagated.

    Writes heads.webm (every head beside the frame), mean.webm (heat map of the mean of the heads), mask.webm
    (outline of the kept patches); with --mask labels.webm instead. Also masks/FRAME.png (palette PNGs) with
    masks.json and masks_images.json (COCO run lengths). After Ctrl-C the finished frames are kept in masks
    and in the videos; --resume starts an unfinished video again, because its frames depend on each other.
    """

    input: tyro.conf.Positional[Path]
    """Video file, or folder of images numbered in their order."""
    mask: Path | None = None
    """Labels of the first frame, a palette or gray PNG, to propagate through the video."""
    binary: bool = False
    """Every value other than 0 of --mask is object 1."""
    views: tuple[View, ...] = VIEWS
    """Views of the attention to draw."""
    mass: float = 0.6
    """Share of the attention that a mask keeps, above 0 and up to 1."""
    head: int | None = None
    """Attention head of the mask; by default the mean over all heads."""
    preset: Literal["dino", "crw"] = "dino"
    """Protocol of the propagation, with --mask."""
    format: Literal["webm", "mp4"] = "webm"
    """webm (VP8) plays in browsers; mp4 (MPEG-4 Part 2) in most players, not in browsers."""
    fps: float | None = None
    """Frames per second of the written videos; by default those of the input, 24 for a folder."""
    max_side: int = 1280
    """Largest side of the drawn videos in pixels; masks keep the size of the frames."""
    batch: int = 4
    """Frames that are encoded at once, with --mask."""
    allow_gaps: bool = False
    """Accept gaps in the numbers of the frames of a folder."""

    def run(self) -> None:
        """Check, read, draw and write one frame at a time."""
        self._check()
        self.check_output()
        frames = open_frames(self.input, allow_gaps=self.allow_gaps)
        size = first_size(frames)
        mask = None if self.mask is None else self._first_mask(self.mask, size)
        predictor = self._predictor()
        output = self.open_output(model_settings(predictor) | self._settings())
        if output.has(frames.name, self._inputs()):
            print(f"{self.output} is finished already")
            return
        output.clear()
        print(f"{self.input.name}: {size[1]}x{size[0]}", flush=True)
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
                    writer.add(file_name, labels)
                    count += 1
        except BaseException:
            expected = f" of {frames.expected}" if frames.expected else ""
            print(f"{count}{expected} frames are finished and kept in {self.output}", flush=True)
            raise
        output.add(frames.name, count, inputs=self._inputs(), files=[results])
        output.finish()
        print(f"{count} frames written to {self.output}")
        if count < frames.expected:
            print(f"note: {self.input.name} promises {frames.expected} frames, {count} could be decoded")

    def _check(self) -> None:
        check_at_least(self, max_side=16, batch=1)
        check_mass(self.mass, "--mass")
        if self.fps is not None and not 0 < self.fps < 1000:
            raise VideoError(f"--fps is {self.fps:g}; expected more than 0 and less than 1000")

    def _inputs(self) -> list[Path]:
        return [self.input] if self.mask is None else [self.input, self.mask]

    def _settings(self) -> dict[str, Any]:
        drawn = {"format": self.format, "fps": self.fps, "max_side": self.max_side}
        if self.mask is not None:
            return drawn | {"preset": self.preset, "binary": self.binary}
        return drawn | {"views": self.views, "mass": self.mass, "head": self.head}

    def _predictor(self) -> "AttentionPredictor":
        from segmentation.propagation import PRESETS, official_std

        if self.mask is None:
            predictor = self.predictor()
            if self.head is not None:
                check_head(self.head, predictor)
            return predictor
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
        drawn = attention_video(
            run_ahead(frames),
            predictor,
            color_range(frames, predictor),
            views=self.views,
            mass=self.mass,
            head=self.head,
            max_side=self.max_side,
        )
        with ExitStack() as stack:
            writers = {view: stack.enter_context(self._writer(view, frames, output)) for view in self.views}
            for number, frame in enumerate(drawn):
                for view, image in frame.views.items():
                    writers[view].write(image, self._time(frames, number))
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

        labeled = propagate_frames(read(), mask, predictor, PRESETS[self.preset], self.batch, overlap=True)
        with self._writer("labels", frames, output) as writer:
            for number, labels in enumerate(labeled):
                drawn = draw_labels(waiting.popleft(), labels, ids, self.max_side)
                writer.write(drawn, self._time(frames, number))
                yield labels

    def _time(self, frames: Frames, number: int) -> float | None:
        """Return the time of a frame as in the input; None if --fps sets an even rate."""
        return frames.time(number) if self.fps is None else None

    def _writer(self, view: str, frames: Frames, output: OutputFolder) -> VideoWriter:
        file = output.path(f"{view}.{self.format}")
        return VideoWriter(file, self.fps or frames.fps, keep_partial=True)


def first_size(frames: Frames) -> tuple[int, int]:
    """Return height and width of the first frame."""
    height, width = next(iter(frames)).shape[:2]
    return height, width
