"""`python -m segmentation davis` and `score`: labels propagated through DAVIS; J and F of any masks."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import tyro

from dino_model.data import images
from dino_model.inference.options import ModelOptions
from dino_model.runtime.batch import BatchCommand, Inputs
from dino_model.runtime.errors import pluralize
from dino_model.runtime.files import make_room
from dino_model.runtime.outputs import JsonOptions, OutputFolder
from dino_model.runtime.progress import progress
from segmentation import davis_eval, drawing
from segmentation.annotations import MaskReader, read_labels
from segmentation.coco import CocoWriter
from segmentation.commands import common
from segmentation.datasets import Clip, open_davis, read_frame_mask, read_names
from segmentation.davis_eval import DavisTask, Objects
from segmentation.frames import describe_order
from segmentation.labels import DataError, Labels, check_size, object_ids, without_void, write_mask_png
from segmentation.masks import ImageArray
from segmentation.video import draw_labels

if TYPE_CHECKING:
    from dino_model.inference.predictor import AttentionPredictor
    from segmentation.propagation import ColorPatches

COLUMNS = ("J&F_mean", "J_mean", "J_recall", "J_decay", "F_mean", "F_recall", "F_decay")


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(common.MaskOptions):
    """Options of the commands that compute J and F."""

    frames: Path | None = None
    """Text file with frames in their order, one SEQUENCE/FRAME a line."""
    objects: Objects = "first-mask"
    """first-mask: labels 1 to the highest of the first true mask, as officially. appearance: every label from
    the first true mask on that has it, scored after this mask, as in YouTube-VOS."""

    def score(
        self, ground_truth: Path, predictions: Path, sequences: Sequence[str], task: DavisTask
    ) -> dict[str, Any]:
        """Score a folder of predicted masks, see `score_folders`."""
        return davis_eval.score_folders(
            ground_truth,
            predictions,
            task=task,
            objects=self.objects,
            sequences=sequences,
            rules=self.mask_rules(),
            listed=self.frames,
            progress=partial(progress, name="score"),
        )


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
    sequences: tuple[str, ...] = ()
    """Only these sequences."""

    kind: ClassVar[str] = "sequences"

    @cached_property
    def _clips(self) -> dict[str, Clip]:
        clips = open_davis(
            self.root,
            split=self.split,
            sequences=self.sequences,
            listed=self.frames,
            appearance=self.objects == "appearance",
        )
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
        """List the sequences, and print the values of their masks."""
        clips = self._clips.values()
        if self.json and not any(clip.has_truth for clip in clips):
            raise DataError("--json holds scores, but there are no masks beyond the first; leave it out")
        is_first = self.objects == "first-mask"
        given = [clip.masks[:1] if is_first else clip.masks for clip in clips if self._readers]
        return [Inputs(clip.name, [*clip.frames, *masks]) for clip, masks in zip(clips, given, strict=True)]

    def settings(self) -> dict[str, Any]:
        """Describe the features, the protocol and the masks, and print that."""
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
        """Read the masks to propagate, by number of the frame: the first one, or each object's first one."""
        clip, reader = self._clips[item.name], self._readers[item.name]
        frame = images.read(clip.frames[0], name=str(clip.frames[0]))
        if self.objects == "first-mask":
            return {0: read_frame_mask(reader, clip.masks[0], frame.shape)}
        given, known = dict[int, Labels](), set[int]()
        numbers = {frame.stem: number for number, frame in enumerate(clip.frames)}
        for file in clip.masks:
            labels = without_void(reader.read(file))
            check_size(f"the mask {file}", labels.shape, "the frames", frame.shape)
            if new := set(object_ids(labels)) - known:
                given[numbers[file.stem]], known = labels * np.isin(labels, list(new)), known | new
        if not given:
            raise DataError(f"{clip.masks[0].parent} marks no object; if masks are binary, pass --binary")
        return given

    def compute(self, item: Inputs, loaded: dict[int, Labels], output: OutputFolder) -> list[int]:
        """Write the masks of a sequence; record its objects."""
        from segmentation.propagation import PRESETS
        from segmentation.tracking import propagate_masks

        clip, started, source = self._clips[item.name], time.monotonic(), self._source
        colors = self._readers[clip.name].palette()

        def read(start: int, stop: int | None) -> Iterator[ImageArray]:
            return (images.read(file, name=str(file)) for file in clip.frames[start:stop])

        if source is None:
            propagated = _copy(loaded, len(clip.frames))
        else:
            for mask in loaded.values():
                common.report_lost(clip.name, mask, source, self.preset)
            preset = PRESETS[self.preset]
            decided = {number: object_ids(mask) for number, mask in loaded.items()}
            propagated = propagate_masks(
                read, loaded, source, preset, objects=decided, overlap=True, backward=False
            )
        for frame, labels in zip(clip.frames, propagated, strict=True):
            write_mask_png(output.path(clip.name, f"{frame.stem}.png"), labels, colors)
        span = f"{pluralize(len(clip.frames), 'frame')}, {describe_order(clip.frames)}"
        span += f", objects {clip.objects}" if clip.objects else ""
        seconds = time.monotonic() - started
        per_frame = seconds / len(clip.frames)
        print(f"{clip.name}: {span}, {seconds:.1f} s ({per_frame:.2f} s a frame)", flush=True)
        return sorted(set().union(*map(object_ids, loaded.values())))

    def finish(self, items: Sequence[Inputs], output: OutputFolder) -> dict[str, Any]:
        """Write COCO files and an overview; score the sequences with masks beyond the first."""
        writer = CocoWriter(output.path("masks.json"), output.path("masks_images.json"))
        clips = [self._clips[item.name] for item in items]
        drawn = {clip.name: list(_add_and_sample(clip, output, writer)) for clip in clips}
        writer.write()
        scores: dict[str, Any] = {}
        if names := [clip.name for clip in clips if clip.has_truth]:
            truth = clips[0].masks[0].parent.parent
            scores = self.score(truth, self.output, names, "semi-supervised")
            scores["protocol"] |= output.settings
            reason = "it has no masks beyond the first, or no prediction"
            scores["not_scored"] |= {name: reason for name in self._clips if name not in names}
            print(format_scores(scores))
        else:
            print("not scored: there are no masks beyond the first to compare with")
        drawing.save_image(output.path("overview.png"), _overview(drawn, scores))
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
    sequence_list: Annotated[Path | None, tyro.conf.arg(name="list")] = None
    """Text file of sequences to score, one per line, such as ImageSets/2017/val.txt; all by default."""
    protocol: DavisTask = "semi-supervised"
    """Predictions have the labels of the objects, or are proposals that are matched to them."""

    def run(self) -> None:
        """Score, print, write."""
        make_room(self.json)
        known = [folder.name for folder in self.ground_truth.glob("*/")]
        sequences = read_names(self.sequence_list, known) if self.sequence_list else ()
        scores = self.score(self.ground_truth, self.predictions, sequences, self.protocol)
        print(format_scores(scores))
        self.save(scores)
        if missing := list(scores["not_scored"]):
            raise DataError(f"{len(missing)} sequences are not scored: {', '.join(missing)[:300]}")


def format_scores(scores: Mapping[str, Any]) -> str:
    """Format the result of `score_folders` in percent: objects, then sequences, then the data set."""
    objects = {name: davis_eval.mean_scores([each]) for name, each in scores["per_object"].items()}
    groups = objects, scores["per_sequence"], {"all": scores["dataset"]}
    width = max(map(len, ("protocol", *objects)))
    lines = [common.format_settings("protocol", scores["protocol"])]
    lines.append(" " * width + "".join(f"{column.replace('_', ' '):>10}" for column in COLUMNS))
    for rows in groups:
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


def _copy(masks: dict[int, Labels], count: int) -> Iterator[Labels]:
    """Yield the masks of a video of `count` frames that does not move."""
    labels = np.zeros_like(next(iter(masks.values())))
    for number in range(count):
        mask = without_void(masks.get(number, labels))
        labels = np.where(mask > 0, mask, labels).astype(np.uint8)
        yield labels


def _add_and_sample(clip: Clip, output: OutputFolder, writer: CocoWriter) -> Iterator[tuple[str, ImageArray]]:
    """Add every mask of a sequence to the COCO files; yields five frames with their masks drawn."""
    ids, last = output.finished[clip.name], len(clip.frames) - 1
    chosen = {round(place * last) for place in (0, 0.25, 0.5, 0.75, 1)}
    for number, frame in enumerate(clip.frames):
        labels = read_labels(output.folder / clip.name / f"{frame.stem}.png")
        writer.add_labels(f"{clip.name}/{frame.name}", labels)
        if number in chosen:
            yield frame.stem, draw_labels(images.read(frame), labels, ids, max_side=480)


def _overview(drawn: Mapping[str, Iterable[tuple[str, ImageArray]]], scores: Mapping[str, Any]) -> ImageArray:
    """Draw one row per sequence: some of its frames with their predicted masks, and its score."""
    by_name, rows = scores.get("per_sequence", {}), []
    for name, ((first, image), *others) in drawn.items():
        score_text = f", J&F {by_name[name]['J&F_mean'] * 100:.1f}" if name in by_name else ""
        rows.append([(f"{name}{score_text}, frame {first}", image), *others])
    return drawing.contact_sheet(rows)
