"""`python -m segmentation video`: attention of any video, or labels of its first frame carried along."""

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np
import tyro

from dino_model.ahead import run_ahead
from dino_model.options import ModelOptions
from dino_model.predictor import AttentionPredictor
from dino_model.progress import progress
from dino_model.resize import fed_size
from segmentation import memory, propagation
from segmentation.frames import FrameFolder, VideoError, VideoFile, open_frames
from segmentation.labels import LabelError, Labels, object_ids, read_labels
from segmentation.mask_folder import MaskFolder, run_lengths
from segmentation.memory import MemoryEstimate
from segmentation.propagation import PRESETS, official_std
from segmentation.render import Picture
from segmentation.video import (
    VIEWS,
    VideoWriter,
    View,
    attention_video,
    colour_range,
    draw_labels,
    shown_size,
)


@dataclass(frozen=True)
class Video(ModelOptions):
    """Attention of any video, as videos and masks; with --mask, its first labels carried along.

    Writes to OUTPUT: heads.webm (every head beside the frame), mean.webm (heat map of the mean head),
    mask.webm (outline of the kept patches); with --mask labels.webm instead. And masks/FRAME.png (palette
    PNGs) with masks.json and masks_images.json (COCO run lengths).
    """

    input: tyro.conf.Positional[Path]
    """A video file, or a folder of pictures numbered in their order."""
    output: Path
    """Folder to write to; made if missing."""
    mask: Path | None = None
    """Labels of the first frame, a palette or grey PNG: carry them through the video."""
    binary: bool = False
    """Every value but 0 of --mask is object 1."""
    views: tuple[View, ...] = VIEWS
    """What to draw of the attention."""
    mass: float = 0.6
    """Share of the attention that a mask keeps, above 0 and up to 1."""
    head: int | None = None
    """Head whose attention the mask keeps; by default the mean over all heads."""
    preset: Literal["dino", "crw"] = "dino"
    """How labels travel, with --mask."""
    format: Literal["webm", "mp4"] = "webm"
    """webm (VP8) plays in browsers; mp4 (MPEG-4 Part 2) in most players, not in browsers."""
    fps: float | None = None
    """Frames a second of what is written; by default the input's, for a folder 24."""
    max_side: int = 1280
    """Longer side of the drawn videos at most, in pixels; masks keep the size of the frames."""
    batch: int = 4
    """Frames that are encoded at once, with --mask."""
    overwrite: bool = False
    """Replace the masks of an earlier run."""
    allow_gaps: bool = False
    """Let the numbers of frames in a folder jump."""

    def run(self) -> None:
        """Check, read, draw, write: one frame at a time."""
        if self.max_side < 16:
            raise VideoError(f"--max-side is {self.max_side}; expected at least 16 pixels")
        if self.fps is not None and not 0 < self.fps < 1000:
            raise VideoError(f"--fps is {self.fps:g}; expected more than 0 and less than 1000")
        if (self.output / "masks").exists() and not self.overwrite:
            raise VideoError(f"{self.output} holds masks already; pass --overwrite or another --output")
        frames = open_frames(self.input, allow_gaps=self.allow_gaps)
        size = first_size(frames)
        mask = None if self.mask is None else self._first_mask(self.mask, size)
        predictor = self._predictor()
        estimate = self._estimate(size, predictor, mask)
        print(f"{self.input.name}: {size[1]}x{size[0]}, memory {estimate}", flush=True)
        memory.check(estimate, predictor.device)
        count = 0
        found = (
            self._attention(frames, predictor) if mask is None else self._propagated(frames, predictor, mask)
        )
        with (
            closing(found),
            MaskFolder(self.output / "masks") as masks,
            run_lengths(self.output) as add,
        ):
            for count, labels in enumerate(progress(found, frames.name, frames.expected or None), start=1):
                name = frames.frame_name(count - 1)
                masks.write(name, labels)
                add(name, labels)
        print(f"{count} frames written to {self.output}")
        if count < frames.expected:
            print(f"note: {self.input.name} promises {frames.expected} frames, {count} could be decoded")

    def _predictor(self) -> AttentionPredictor:
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

    def _estimate(
        self, size: tuple[int, int], predictor: AttentionPredictor, mask: Labels | None
    ) -> MemoryEstimate:
        width = cast(int, predictor.model.backbone.embed_dim)
        fed = fed_size(size[0], size[1], predictor.size, predictor.resize, predictor.patch_size)
        shown = shown_size(size, self.max_side)
        if mask is not None:
            objects, preset = len(object_ids(mask)), PRESETS[self.preset]
            return memory.propagation_memory(
                size, fed, predictor.patch_size, width, objects, preset, self.batch, shown, videos=1
            )
        return memory.attention_memory(
            size,
            shown,
            fed,
            predictor.patch_size,
            width,
            predictor.blocks,
            predictor.heads,
            videos=len(self.views),
        )

    def _attention(self, frames: VideoFile | FrameFolder, predictor: AttentionPredictor) -> Generator[Labels]:
        """Draw the attention of every frame; the mask of each."""
        colours = colour_range(frames, predictor)
        drawn = attention_video(
            run_ahead(frames),
            predictor,
            colours,
            views=self.views,
            mass=self.mass,
            head=self.head,
            max_side=self.max_side,
        )
        with ExitStack() as stack:
            writers = {view: stack.enter_context(self._writer(view, frames)) for view in self.views}
            for number, frame in enumerate(drawn):
                for view, picture in frame.views.items():
                    writers[view].write(picture, self._time(frames, number))
                yield frame.mask.astype(np.uint8)

    def _propagated(
        self, frames: VideoFile | FrameFolder, predictor: AttentionPredictor, mask: Labels
    ) -> Generator[Labels]:
        """Carry the labels through the video and draw them; those of each frame."""
        ids = object_ids(mask)
        shown: deque[Picture] = deque()  # frames that wait for their labels: a few batches

        def read() -> Iterator[Picture]:
            for frame in frames:
                shown.append(frame)
                yield frame

        labelled = propagation.propagate_frames(
            read(), mask, predictor, PRESETS[self.preset], self.batch, overlap=True
        )
        with self._writer("labels", frames) as writer:
            for number, labels in enumerate(labelled):
                drawn = draw_labels(shown.popleft(), labels, ids, self.max_side)
                writer.write(drawn, self._time(frames, number))
                yield labels

    def _time(self, frames: VideoFile | FrameFolder, number: int) -> float | None:
        """When a frame is shown: as in the input, unless --fps says otherwise."""
        return frames.time(number) if self.fps is None else None

    def _writer(self, view: str, frames: VideoFile | FrameFolder) -> VideoWriter:
        return VideoWriter(self.output / f"{view}.{self.format}", self.fps or frames.fps)


def first_size(frames: VideoFile | FrameFolder) -> tuple[int, int]:
    """Height and width of the first frame."""
    height, width = next(iter(frames)).shape[:2]
    return height, width
