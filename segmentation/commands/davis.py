"""`python -m segmentation davis`: labels of first frames propagated through DAVIS."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dino_model.data import images
from dino_model.inference.options import ModelOptions
from dino_model.runtime.errors import pluralize
from dino_model.runtime.files import make_room, write_json
from dino_model.runtime.outputs import OutputFolder, OutputOptions, SkippedInputs
from segmentation import davis_eval, drawing
from segmentation.annotations import MaskReader, read_labels
from segmentation.coco import CocoWriter
from segmentation.commands import common, score
from segmentation.datasets import Clip, open_davis, read_frame_mask
from segmentation.davis_eval import Objects
from segmentation.frames import describe_order
from segmentation.labels import DataError, Labels, check_size, object_ids, without_void, write_mask_png
from segmentation.masks import ImageArray
from segmentation.video import draw_labels

if TYPE_CHECKING:
    from segmentation.propagation import Source


@dataclass(frozen=True)
class Davis(common.MaskOptions, ModelOptions, OutputOptions):
    """Labels of first frames propagated through DAVIS by nearest neighbors, and their scores.

    Writes OUTPUT/SEQUENCE/FRAME.png, palette PNGs whose values are the labels, masks.json with
    masks_images.json (COCO run lengths) and overview.png. The command `video` does the same for any frames.
    """

    root: Path
    """DAVIS: the folder that holds ImageSets/2017, JPEGImages/480p and Annotations/480p."""
    preset: Literal["dino", "crw"] = "dino"
    """Protocol of the propagation: official DINO code, or contrastive random walk."""
    features: Literal["model", "color", "copy"] = "model"
    """Patch features of the model; or a baseline: mean-subtracted 8x8 color patches, or the first mask
    copied."""
    split: str = "val"
    """List of sequences in ImageSets/2017."""
    frames: Path | None = None
    """Text file with frames in their order, one SEQUENCE/FRAME a line."""
    sequences: tuple[str, ...] = ()
    """Only these sequences."""
    objects: Objects = "first-mask"
    """first-mask: objects of the first true mask, scored as officially. appearance: every object from the
    first true mask that has it on, as in YouTube-VOS."""
    json: Path | None = None
    """File for the scores: `dataset`, `per_sequence`, `per_object`, `protocol`."""

    def run(self) -> None:
        """Check everything, propagate what is not finished, score."""
        make_room(self.json)
        clips = open_davis(self.root, split=self.split, sequences=self.sequences, listed=self.frames)
        self.check_output()
        if self.json and all(len(clip.masks) == 1 for clip in clips):
            raise DataError("--json holds scores, but there are no masks beyond the first; leave it out")
        readers = {clip.name: self.mask_reader(clip.masks, title=f"{clip.name}: ") for clip in clips}
        masks = {clip.name: _given_masks(clip, readers[clip.name], self.objects) for clip in clips}
        source, settings = self._source()
        settings |= {"masks": self.objects, "mask_rules": asdict(self.mask_rules())}
        print(common.describe("settings", settings))
        output, skipped = self.open_output(settings), SkippedInputs()
        drawn: dict[str, list[tuple[str, ImageArray]]] = {}
        writer = CocoWriter(output.path("masks.json"), output.path("masks_images.json"))
        for number, clip in enumerate(clips, start=1):
            try:
                colors = readers[clip.name].palette(clip.masks[0].parent)
                duration = self._finish_clip(clip, masks[clip.name], source, output, colors)
            except ValueError as error:  # a frame that is damaged or has another size
                skipped.add(clip.name, error)
                continue
            span = f"{pluralize(len(clip.frames), 'frame')}, {describe_order(clip.frames)}"
            print(f"{number}/{len(clips)} {clip.name}: {span}, {duration}", flush=True)
            ids = sorted(set().union(*map(object_ids, masks[clip.name].values())))
            drawn[clip.name] = list(_add_and_sample(clip, output, ids, writer))
        if not drawn:
            skipped.check(len(clips), "sequences")
        writer.write()
        scores = self._score([clip for clip in clips if clip.name in drawn], clips, settings)
        drawing.save_image(output.path("overview.png"), _overview(drawn, scores))
        output.finish()
        print(f"written to {self.output}: masks by sequence, masks.json, masks_images.json, overview.png")
        if not scores:
            print("not scored: there are no masks beyond the first to compare with")
        skipped.check(len(clips), "sequences")

    def _source(self) -> tuple["Source | None", dict[str, Any]]:
        """Return the extractor of patch features, None to copy the first mask; and the settings."""
        from segmentation.propagation import PRESETS, ColorPatches

        source: Source
        match self.features:
            case "copy":
                return None, {"features": "first mask copied"}
            case "model":
                source = common.propagation_predictor(self, self.preset)
                features = {"features": f"last block of {source.model.name}", **common.model_settings(source)}
            case "color":
                source = ColorPatches(size=self.size)
                features = {"features": "color patches, mean subtracted"}
        preset = asdict(PRESETS[self.preset])
        protocol = {"preset": preset.pop("name")} | preset
        return source, features | protocol | {"size": self.size, "patch_size": source.patch_size}

    def _finish_clip(
        self,
        clip: Clip,
        masks: dict[int, Labels],
        source: "Source | None",
        output: OutputFolder,
        colors: NDArray[np.uint8],
    ) -> str:
        """Write the masks of one sequence unless they are there; returns how long it took."""
        from segmentation.propagation import PRESETS
        from segmentation.tracking import propagate_masks

        numbers = {frame.stem: number for number, frame in enumerate(clip.frames)}
        inputs = [*clip.frames, *(mask for mask in clip.masks if numbers[mask.stem] in masks)]
        if output.has(clip.name, inputs):
            return "finished before"
        started, preset = time.monotonic(), PRESETS[self.preset]
        if source is None:
            propagated = _copy(masks, len(clip.frames))
        else:
            for mask in masks.values():
                common.report_lost(clip.name, mask, source, self.preset)

            def read(start: int, stop: int | None) -> Iterator[ImageArray]:
                return (images.read(file, name=str(file)) for file in clip.frames[start:stop])

            propagated = propagate_masks(read, masks, source, preset, overlap=True, backward=False)
        files = [output.path(clip.name, f"{frame.stem}.png") for frame in clip.frames]
        for file, labels in zip(files, propagated, strict=True):
            write_mask_png(file, labels, colors)
        output.add(clip.name, inputs=inputs, files=files)
        seconds = time.monotonic() - started
        return f"{seconds:.1f} s ({seconds / len(clip.frames):.2f} s a frame)"

    def _score(self, finished: list[Clip], clips: list[Clip], settings: dict[str, Any]) -> dict[str, Any]:
        """Score the finished sequences with masks beyond the first; empty if there is none."""
        names = [clip.name for clip in finished if len(clip.masks) > 1]
        if not names:
            return {}
        truth = clips[0].masks[0].parent.parent
        scores = davis_eval.score_folders(
            truth,
            self.output,
            objects=self.objects,
            sequences=names,
            rules=self.mask_rules(),
            listed=self.frames,
            progress=score.track,
        )
        scores["protocol"] |= settings
        reason = "it has no masks beyond the first, or no prediction"
        scores["not_scored"] |= {clip.name: reason for clip in clips if clip.name not in names}
        print(score.table(scores))
        if self.json:
            write_json(self.json, scores)
        return scores


def _given_masks(clip: Clip, reader: MaskReader, objects: Objects) -> dict[int, Labels]:
    """Read the masks to propagate, by number of the frame: the first one, or each object's first one."""
    frame = images.read(clip.frames[0], name=str(clip.frames[0]))
    if objects == "first-mask":
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


def _copy(masks: dict[int, Labels], count: int) -> Iterator[Labels]:
    """Yield the masks of a video of `count` frames that does not move."""
    labels = np.zeros_like(next(iter(masks.values())))
    for number in range(count):
        mask = without_void(masks.get(number, labels))
        labels = np.where(mask > 0, mask, labels).astype(np.uint8)
        yield labels


def _add_and_sample(
    clip: Clip, output: OutputFolder, ids: Sequence[int], writer: CocoWriter
) -> Iterator[tuple[str, ImageArray]]:
    """Add every mask of a sequence to the COCO files; yields five frames with their masks drawn."""
    last = len(clip.frames) - 1
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
    return drawing.contact_sheet(rows, height=200)
