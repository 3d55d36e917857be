"""`python -m segmentation video`: attention of any video, or labels of its first frame carried along."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import tee
from pathlib import Path
from typing import Literal, cast

import numpy as np
import tyro

from dino_model.predictor import AttentionPredictor, fed_size
from dino_model.weights import load_model
from segmentation import davis, memory, propagation
from segmentation.davis import MaskFolder
from segmentation.labels import LabelError, Labels, object_ids, read_labels
from segmentation.memory import MemoryEstimate
from segmentation.propagation import PRESETS
from segmentation.render import Picture
from segmentation.video import (
    VIEWS,
    FrameFolder,
    VideoError,
    VideoFile,
    VideoWriter,
    View,
    attention_video,
    colour_range,
    draw_labels,
    open_frames,
    shown_size,
)


@dataclass(frozen=True)
class Video:
    """Attention of any video or folder of frames, as videos and masks; with --mask, its labels carried along.

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
    model: str = "embedded"
    """Name of a model, checkpoint file or run; `python -m dino_model list` tells the names."""
    format: Literal["webm", "mp4"] = "webm"
    """webm (VP8) plays in browsers; mp4 (MPEG-4 Part 2) in most players, not in browsers."""
    fps: float | None = None
    """Frames a second of what is written; by default the input's, for a folder 24."""
    max_side: int = 1280
    """Longer side of the drawn videos at most, in pixels; masks keep the size of the frames."""
    size: int = 480
    """Pixels of the short side that the model sees."""
    batch: int = 4
    """Frames that are encoded at once, with --mask."""
    overwrite: bool = False
    """Replace the masks of an earlier run."""
    allow_gaps: bool = False
    """Let the numbers of frames in a folder jump."""
    precision: Literal["auto", "fp32", "bf16"] = "fp32"
    """Arithmetic of the model; fp32 by default, as in the command davis, which says why."""
    device: str = "auto"
    """Where the model runs: auto, cpu, cuda or mps."""

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
        with davis.MaskFolder(self.output / "masks") as masks:
            if mask is None:
                count = self._attention(frames, predictor, masks)
            else:
                count = self._propagate(frames, predictor, mask, masks)
        named = [frames.frame_name(number) for number in range(count)]
        files = ((name, self.output / "masks" / f"{name}.png") for name in named)
        davis.write_run_lengths(self.output, files)
        print(f"{count} frames written to {self.output}")
        if count < frames.expected:
            print(f"note: {self.input.name} promises {frames.expected} frames, {count} could be decoded")

    def _predictor(self) -> AttentionPredictor:
        model, propagates = load_model(self.model), self.mask is not None
        return AttentionPredictor(
            model,
            size=self.size,
            resize="davis" if propagates else "short-side",
            precision=self.precision,
            device=self.device,
            std=davis.official_std(model, PRESETS[self.preset]) if propagates else None,
        )

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

    def _attention(
        self, frames: VideoFile | FrameFolder, predictor: AttentionPredictor, masks: MaskFolder
    ) -> int:
        """Draw the attention of every frame; how many there were."""
        colours = colour_range(frames, predictor)
        drawn = attention_video(
            counted(frames),
            predictor,
            colours,
            views=self.views,
            mass=self.mass,
            head=self.head,
            max_side=self.max_side,
        )
        count = 0
        with ExitStack() as stack:
            writers = {view: stack.enter_context(self._writer(view, frames)) for view in self.views}
            for count, frame in enumerate(drawn, start=1):
                masks.write(frames.frame_name(count - 1), frame.mask.astype(np.uint8))
                for view, picture in frame.views.items():
                    writers[view].write(picture)
        return count

    def _propagate(
        self, frames: VideoFile | FrameFolder, predictor: AttentionPredictor, mask: Labels, masks: MaskFolder
    ) -> int:
        """Carry the labels through the video; how many frames there were."""
        ids = object_ids(mask)
        # The second of the twins runs at most a batch of frames behind the first.
        ahead, behind = tee(counted(frames))
        labelled = propagation.propagate_frames(ahead, mask, predictor, PRESETS[self.preset], self.batch)
        count = 0
        with self._writer("labels", frames) as writer:
            for count, (labels, frame) in enumerate(zip(labelled, behind, strict=True), start=1):
                masks.write(frames.frame_name(count - 1), labels)
                writer.write(draw_labels(frame, labels, ids, self.max_side))
        return count

    def _writer(self, view: str, frames: VideoFile | FrameFolder) -> VideoWriter:
        return VideoWriter(self.output / f"{view}.{self.format}", self.fps or frames.fps)


def first_size(frames: VideoFile | FrameFolder) -> tuple[int, int]:
    """Height and width of the first frame."""
    height, width = next(iter(frames)).shape[:2]
    return height, width


def counted(frames: VideoFile | FrameFolder) -> Iterator[Picture]:
    """The frames, while stderr tells after every tenth how many are done."""
    step = max(1, frames.expected // 10 or 100)
    started = time.monotonic()
    for number, frame in enumerate(frames, start=1):
        yield frame
        if number % step == 0:
            speed = number / max(time.monotonic() - started, 1e-9)
            print(
                f"{frames.name}: {number}/{frames.expected or '?'} frames, {speed:.1f} a second",
                file=sys.stderr,
            )
