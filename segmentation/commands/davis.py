"""`python -m segmentation davis` and `score`: labels propagated through DAVIS; J and F of any masks."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from dino_model.data import images
from dino_model.inference.options import ModelOptions
from dino_model.runtime.batch import BatchCommand, Inputs
from dino_model.runtime.errors import pluralize
from dino_model.runtime.files import make_room
from dino_model.runtime.outputs import JsonOptions, OutputFolder
from segmentation import davis_eval, drawing
from segmentation.annotations import MaskReader, read_labels
from segmentation.coco import CocoWriter
from segmentation.commands import common
from segmentation.datasets import Clip, open_davis
from segmentation.davis_eval import DavisTask, Objects
from segmentation.frames import describe_order
from segmentation.labels import VOID, DataError, Labels, check_size, object_ids, without_void, write_mask_png
from segmentation.masks import ImageArray
from segmentation.video import draw_labels

if TYPE_CHECKING:
    from dino_model.inference.predictor import AttentionPredictor
    from segmentation.propagation import ColorPatches

COLUMNS = ("J&F_mean", "J_mean", "J_recall", "J_decay", "F_mean", "F_recall", "F_decay")
SHOWN = 0, 0.25, 0.5, 0.75, 1  # frames of a sequence in the overview


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(common.MaskOptions):
    """Options of the commands that compute J and F."""

    objects: Objects = "first-mask"
    """first-mask: labels 1 to the highest of the first true mask, as officially. appearance: every label from
    the first true mask on that has it, scored after this mask, as in YouTube-VOS."""
    sequences: tuple[str, ...] = ()
    """Only these sequences."""


@dataclass(frozen=True)
class Davis(ScoreOptions, ModelOptions, BatchCommand[Inputs, dict[int, Labels]]):
    """Labels of first frames propagated through DAVIS by nearest neighbors, and their scores.

    Writes OUTPUT/SEQUENCE/FRAME.png, palette PNGs whose values are the labels, masks.json with
    masks_images.json (COCO run lengths) and overview.png. The command `video` does the same for any frames.
    """

    root: Path
    """DAVIS: the folder that holds ImageSets, JPEGImages/480p and Annotations/480p. Or a part of YouTube-VOS:
    the folder that holds meta.json, JPEGImages and Annotations."""
    preset: Literal["dino", "crw"] = "dino"
    """Protocol of the propagation: official DINO code, or contrastive random walk."""
    features: Literal["model", "color", "copy"] = "model"
    """Patch features of the model; or a baseline: mean-subtracted 8x8 color patches, or the first mask
    copied."""
    split: str = "val"
    """List of sequences in ImageSets/2017, or in another folder of ImageSets, such as 480p/val."""

    kind: ClassVar[str] = "sequences"

    @cached_property
    def _clips(self) -> dict[str, Clip]:
        appearance = self.objects == "appearance"
        clips = open_davis(self.root, split=self.split, sequences=self.sequences, appearance=appearance)
        return {clip.name: clip for clip in clips}

    @cached_property
    def _readers(self) -> dict[str, MaskReader]:
        return {name: self.mask_reader(clip.masks, title=f"{name}: ") for name, clip in self._clips.items()}

    @cached_property
    def _source(self) -> "AttentionPredictor | ColorPatches | None":
        """The extractor of patch features; None to copy the first mask."""
        from segmentation.propagation import ColorPatches

        if self.features == "model":
            return common.propagation_predictor(self, self.preset)
        return ColorPatches(size=self.size) if self.features == "color" else None

    def items(self) -> list[Inputs]:
        if self.json and not any(clip.has_truth for clip in self._clips.values()):
            raise DataError("--json holds scores, but there are no masks beyond the first; leave it out")
        last = 1 if self.objects == "first-mask" else None
        return [
            Inputs(name, [*self._clips[name].frames, *self._clips[name].masks[:last]])
            for name in self._readers
        ]

    def settings(self) -> dict[str, Any]:
        from segmentation.propagation import PRESETS, ColorPatches

        settings: dict[str, Any] = {"features": "first mask copied"}
        if self._source is not None:
            settings = {"features": "color patches, mean subtracted"}
            if not isinstance(self._source, ColorPatches):
                name = self._source.model.name
                settings = {"features": f"last block of {name}", **common.model_settings(self._source)}
            preset = asdict(PRESETS[self.preset])
            settings |= {"preset": preset.pop("name")} | preset
            settings |= {"size": self.size, "patch_size": self._source.patch_size}
        settings |= {"masks": self.objects, "mask_rules": asdict(self.mask_rules())}
        print(common.format_settings("settings", settings))
        return settings

    def read(self, item: Inputs) -> dict[int, Labels]:
        clip, known, masks = self._clips[item.name], set[int](), dict[int, Labels]()
        size = images.read(clip.frames[0], name=str(clip.frames[0])).shape
        numbers = {frame.stem: number for number, frame in enumerate(clip.frames)}
        for file in item.files[len(clip.frames) :]:
            labels = self._readers[item.name].read(file)
            check_size(f"the mask {file}", labels.shape, "the frames", size)
            if new := {*object_ids(labels)} - known:
                masks[numbers[file.stem]] = labels * np.isin(labels, [*new, VOID])
                known |= new
        if not masks:
            raise DataError(f"the mask {clip.masks[0]} marks no object; pass --binary if masks are binary")
        return masks

    def compute(self, item: Inputs, loaded: dict[int, Labels], output: OutputFolder) -> list[int]:
        """Write the masks of a sequence; record its objects."""
        clip, started, colors = self._clips[item.name], time.monotonic(), self._readers[item.name].palette()
        for frame, labels in zip(clip.frames, self._propagate(clip, loaded), strict=True):
            write_mask_png(output.path(clip.name, f"{frame.stem}.png"), labels, colors)
        span = f"{pluralize(len(clip.frames), 'frame')}, {describe_order(clip.frames)}"
        span += f", objects {clip.objects}" if clip.objects else ""
        seconds = time.monotonic() - started
        per_frame = seconds / len(clip.frames)
        print(f"{clip.name}: {span}, {seconds:.1f} s ({per_frame:.2f} s a frame)", flush=True)
        return sorted(set().union(*map(object_ids, loaded.values())))

    def _propagate(self, clip: Clip, masks: dict[int, Labels]) -> Iterator[Labels]:
        """Yield the labels of each frame of a sequence."""
        from segmentation.propagation import PRESETS
        from segmentation.tracking import propagate_masks

        def read(start: int, stop: int | None) -> Iterator[ImageArray]:
            return (images.read(file, name=str(file)) for file in clip.frames[start:stop])

        if self._source is None:
            labels = np.zeros_like(masks[min(masks)])
            for number in range(len(clip.frames)):
                mask = without_void(masks[number]) if number in masks else labels
                labels = np.where(mask > 0, mask, labels).astype(np.uint8)
                yield labels
            return
        for mask in masks.values():
            common.report_lost(clip.name, mask, self._source, self.preset)
        decided = {number: object_ids(mask) for number, mask in masks.items()}
        options: dict[str, Any] = {"objects": decided, "overlap": True, "backward": False}
        yield from propagate_masks(read, masks, self._source, PRESETS[self.preset], **options)

    def finish(self, items: Sequence[Inputs], output: OutputFolder) -> dict[str, Any]:
        clips, scores, rows = [self._clips[item.name] for item in items], dict[str, Any](), []
        if names := [clip.name for clip in clips if clip.has_truth]:
            truth = clips[0].masks[0].parent.parent
            options: dict[str, Any] = {"objects": self.objects, "rules": self.mask_rules()}
            scores = davis_eval.score_folders(truth, self.output, sequences=names, **options)
            scores["protocol"] |= output.settings
            reason = "it has no masks beyond the first, or no prediction"
            scores["not_scored"] |= {name: reason for name in self._clips if name not in names}
            print(format_scores(scores))
        else:
            print("not scored: there are no masks beyond the first to compare with")
        writer = CocoWriter(output.path("masks.json"), output.path("masks_images.json"))
        for clip in clips:
            chosen = {round(place * (len(clip.frames) - 1)) for place in SHOWN}
            row: list[tuple[str, ImageArray]] = []
            mean = scores["per_sequence"].get(clip.name) if scores else None
            title = clip.name + (f", J&F {100 * mean['J&F_mean']:.1f}" if mean else "") + ", frame "
            for number, frame in enumerate(clip.frames):
                labels = read_labels(output.folder / clip.name / f"{frame.stem}.png")
                writer.add_labels(f"{clip.name}/{frame.name}", labels)
                if number in chosen:
                    drawn = draw_labels(images.read(frame), labels, output.finished[clip.name], max_side=480)
                    row.append((title * (not row) + frame.stem, drawn))
            rows.append(row)
        writer.write()
        drawing.save_image(output.path("overview.png"), drawing.contact_sheet(rows, height=200))
        return scores


@dataclass(frozen=True, kw_only=True)
class Score(ScoreOptions, JsonOptions):
    """Region similarity J and contour accuracy F of predicted masks, as DAVIS defines them.

    Both folders hold one folder of PNGs per sequence; their values (palette indices or gray) are the labels.
    A sequence whose masks are missing or do not fit is named and left out of the means; the exit code is then
    1. --json has `dataset`, `per_sequence`, and `per_object` with the scores of every frame.
    """

    ground_truth: Path
    """Folder of the true masks, such as DAVIS/Annotations/480p."""
    predictions: Path
    """Folder of the predicted masks."""
    protocol: DavisTask = "semi-supervised"
    """Predictions have the labels of the objects, or are proposals that are matched to them."""

    def run(self) -> None:
        make_room(self.json)
        scores = davis_eval.score_folders(
            self.ground_truth,
            self.predictions,
            task=self.protocol,
            objects=self.objects,
            sequences=self.sequences,
            rules=self.mask_rules(),
        )
        print(format_scores(scores))
        self.save(scores)
        if missing := list(scores["not_scored"]):
            raise DataError(f"{len(missing)} sequences are not scored: {', '.join(missing)[:300]}")


def format_scores(scores: Mapping[str, Any]) -> str:
    """Format the result of `score_folders` in percent: objects, then sequences, then the data set."""
    objects = {name: davis_eval.mean_scores([each]) for name, each in scores["per_object"].items()}
    width = max(map(len, ("protocol", *objects)))
    lines = [common.format_settings("protocol", scores["protocol"])]
    lines.append(" " * width + "".join(f"{column.replace('_', ' '):>10}" for column in COLUMNS))
    for rows in (objects, scores["per_sequence"], {"all": scores["dataset"]}):
        lines.append("")
        for name, row in rows.items():
            cells = (f"{row[column] * 100:>10.1f}" for column in COLUMNS)
            lines.append(f"{name:<{width}}" + "".join(cells))
    if scores["notes"]:
        lines += ["", *(f"note: {note}" for note in scores["notes"])]
    if not_scored := scores["not_scored"]:
        lines += ["", f"not scored, and in none of the means: {len(not_scored)}"]
        lines += [f"  {name}: {reason}" for name, reason in not_scored.items()]
    return "\n".join(lines)
