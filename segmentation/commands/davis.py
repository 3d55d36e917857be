"""`python -m segmentation davis`: labels of first frames propagated through DAVIS or any frames."""

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dino_model import images
from dino_model.files import make_room
from dino_model.options import ModelOptions
from dino_model.outputs import OutputFolder, OutputOptions, SkippedInputs
from dino_model.resize import fed_size
from segmentation import davis_eval, drawing
from segmentation.coco import CocoWriter, coco_writer
from segmentation.commands import score
from segmentation.commands.common import check_at_least, model_settings
from segmentation.datasets import (
    Clip,
    DavisError,
    DavisFolder,
    frame_files,
    open_davis,
    read_first_mask,
    read_frames,
)
from segmentation.davis_eval import Evaluation
from segmentation.labels import Labels, object_ids, read_labels, write_mask_png
from segmentation.masks import ImageArray
from segmentation.video import DEFAULT_FPS, VideoWriter, draw_labels

if TYPE_CHECKING:
    from dino_model.predictor import AttentionPredictor
    from segmentation.propagation import ColorPatches

Cell = tuple[str, ImageArray]  # title and image on the contact sheet


@dataclass(frozen=True)
class Davis(ModelOptions, OutputOptions):
    """Labels of first frames propagated through DAVIS by nearest neighbors, and their scores.

    Writes OUTPUT/SEQUENCE/FRAME.png, palette PNGs whose values are the labels, masks.json with
    masks_images.json (COCO run lengths) and overview.png; with --overlays also overlays/SEQUENCE.webm. With
    --frames and --mask any folder of frames takes the place of DAVIS.
    """

    root: Path | None = None
    """DAVIS: the folder that holds ImageSets, JPEGImages and Annotations."""
    preset: Literal["dino", "crw"] = "dino"
    """Protocol of the propagation: official DINO code, or contrastive random walk."""
    features: Literal["model", "color", "copy"] = "model"
    """Patch features of the model; or a baseline: mean-subtracted 8x8 color patches, or the first mask
    copied."""
    year: Literal[2016, 2017] = 2017
    """Layout and masks of DAVIS: 2017 has labeled objects, 2016 binary masks."""
    split: str = "val"
    """List of sequences in ImageSets."""
    resolution: str = "480p"
    """Folder of images and masks within JPEGImages and Annotations."""
    sequences: tuple[str, ...] = ()
    """Only these sequences."""
    frames: Path | None = None
    """Folder of frames to use instead of DAVIS."""
    mask: Path | None = None
    """Labels of the first of these frames: a palette or gray PNG."""
    binary: bool = False
    """Every value other than 0 of the masks is object 1."""
    allow_gaps: bool = False
    """Accept gaps in the numbers of frames."""
    overlays: bool = False
    """Draw every sequence as a video: masks tinted and outlined, objects with their scores."""
    batch: int = 4
    """Frames that are encoded at once."""
    csv: Path | None = None
    """File for the table of scores."""
    json: Path | None = None
    """File for the scores: `dataset`, `per_sequence`, `per_object`, `protocol`."""

    def run(self) -> None:
        """Check everything, propagate what is not finished, score."""
        check_at_least(self, batch=1)
        make_room(self.csv, self.json)
        dataset, clips = self._clips()
        self.check_output()
        comparable = () if dataset is None else dataset.with_ground_truth()
        if not comparable and (self.csv or self.json):
            raise DavisError(
                "--csv and --json hold scores, and there are no masks beyond the first to compare with: "
                "leave them out"
            )
        masks = {clip.name: read_first_mask(clip) for clip in clips}
        source = self._source()
        settings = self._settings(source)
        print(score.described("settings", settings))
        output, skipped = self.open_output(settings), SkippedInputs()
        drawn: dict[str, list[Cell]] = {}
        results, images_file = output.path("masks.json"), output.path("masks_images.json")
        with coco_writer(results, images_file) as writer:
            for number, clip in enumerate(clips, start=1):
                try:
                    took = self._finish_clip(clip, masks[clip.name], source, output)
                except ValueError as error:  # a frame that is damaged or has another size
                    skipped.add(clip.name, error)
                    continue
                drawn[clip.name] = list(_add_and_sample(clip, output, object_ids(masks[clip.name]), writer))
                print(f"{number}/{len(clips)} {clip.name}: {len(clip.frames)} frames, {took}", flush=True)
        finished = [clip for clip in clips if clip.name in drawn]
        if not finished:
            skipped.check(len(clips), "sequences")
        evaluation = self._score(dataset, comparable, settings) if dataset and comparable else None
        drawing.save_png(output.path("overview.png"), overview(finished, drawn, evaluation))
        if self.overlays:
            for clip in finished:
                draw_sequence(clip, masks[clip.name], output, evaluation)
        output.finish()
        print(f"written to {self.output}: masks, masks.json, masks_images.json, overview.png")
        if evaluation is None:
            print("not scored: there are no masks beyond the first to compare with")
        skipped.check(len(clips), "sequences")

    def _clips(self) -> tuple[DavisFolder | None, list[Clip]]:
        if self.root is not None and self.frames is None and self.mask is None:
            dataset = open_davis(
                self.root,
                year=self.year,
                split=self.split,
                resolution=self.resolution,
                sequences=self.sequences,
                binary=self.binary,
            )
            return dataset, [dataset.clip(name, allow_gaps=self.allow_gaps) for name in dataset.sequences]
        if self.root is None and self.frames is not None and self.mask is not None:
            files = frame_files(self.frames, allow_gaps=self.allow_gaps)
            return None, [Clip(self.frames.resolve().name, files, self.mask, self.binary)]
        raise DavisError("pass either --root DAVIS, or --frames FOLDER with --mask FILE")

    def _source(self) -> "AttentionPredictor | ColorPatches | None":
        """Return what computes patch features; None copies the first mask."""
        if self.features == "copy":
            return None
        from segmentation.propagation import PRESETS, ColorPatches, official_std

        if self.features == "color":
            return ColorPatches(size=self.size)
        model = self.load()
        std = official_std(model, PRESETS[self.preset])
        return self.predictor("davis", model=model, std=std, carries_labels=True)

    def _settings(self, source: "AttentionPredictor | ColorPatches | None") -> dict[str, Any]:
        """Everything the predictions depend on, apart from the frames."""
        if source is None:
            return {"features": "first mask copied"}
        from segmentation.propagation import PRESETS, ColorPatches

        preset = {"preset": self.preset, **asdict(PRESETS[self.preset])}
        del preset["name"]
        how = {**preset, "size": self.size, "patch_size": source.patch_size}
        if isinstance(source, ColorPatches):
            return {"features": "color patches, mean subtracted", **how}
        return {"features": f"last block of {source.model.name}", **model_settings(source), **how}

    def _finish_clip(
        self,
        clip: Clip,
        mask: Labels,
        source: "AttentionPredictor | ColorPatches | None",
        output: OutputFolder,
    ) -> str:
        """Write the masks of one sequence unless they are there; returns how long it took."""
        inputs = [*clip.frames, clip.first_mask]
        if output.has(clip.name, inputs):
            return "finished before"
        started = time.monotonic()
        folder = output.path(clip.name)
        partial = folder.with_name(f".{clip.name}.partial")  # a sequence appears when it is complete
        shutil.rmtree(partial, ignore_errors=True)
        try:
            for frame, labels in zip(clip.frames, self._propagated(clip, mask, source), strict=True):
                write_mask_png(partial / f"{frame.stem}.png", labels)
            shutil.rmtree(folder, ignore_errors=True)
            partial.replace(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        output.add(clip.name, inputs=inputs, files=[folder / f"{frame.stem}.png" for frame in clip.frames])
        seconds = time.monotonic() - started
        return f"{seconds:.1f} s ({seconds / len(clip.frames):.2f} s a frame)"

    def _propagated(
        self, clip: Clip, mask: Labels, source: "AttentionPredictor | ColorPatches | None"
    ) -> Iterator[Labels]:
        """Compute the labels of every frame of one sequence."""
        from segmentation import propagation

        if source is None:
            return propagation.copy_first_mask(mask, len(clip.frames))
        preset, size = propagation.PRESETS[self.preset], (mask.shape[0], mask.shape[1])
        fed = fed_size(*size, source.size, source.resize, source.patch_size)
        if lost := propagation.vanished_objects(mask, fed, source.patch_size, preset):
            print(f"{clip.name}: objects {lost} are smaller than a patch and cannot be followed")
        frames = read_frames(clip, size)
        return propagation.propagate_frames(frames, mask, source, preset, self.batch, overlap=True)

    def _score(
        self, dataset: DavisFolder, comparable: tuple[str, ...], settings: dict[str, Any]
    ) -> Evaluation:
        pairs, faults = davis_eval.pair_masks(
            dataset.masks, self.output, sequences=comparable, allow_gaps=self.allow_gaps
        )
        for name in dataset.sequences:
            if name not in comparable:
                faults[name] = DavisError("it has no mask beyond the first to compare with")
        evaluation = score.evaluate(
            pairs, faults, "semi-supervised", binary=dataset.binary, settings=settings
        )
        print(score.table(evaluation))
        score.write(evaluation, self.csv, self.json)
        return evaluation


def _add_and_sample(
    clip: Clip, output: OutputFolder, ids: Sequence[int], writer: CocoWriter
) -> Iterator[Cell]:
    """Add every mask of a sequence to the COCO files; yields five frames with their masks drawn."""
    last = len(clip.frames) - 1
    chosen = {round(place * last) for place in (0, 0.25, 0.5, 0.75, 1)}
    for number, frame in enumerate(clip.frames):
        labels = read_labels(output.folder / clip.name / f"{frame.stem}.png")
        writer.add(f"{clip.name}/{frame.name}", labels)
        if number in chosen:
            yield frame.stem, draw_labels(images.read(frame), labels, ids, max_side=480)


def overview(
    clips: Iterable[Clip], drawn: Mapping[str, Sequence[Cell]], evaluation: Evaluation | None
) -> ImageArray:
    """Draw one row per sequence: some of its frames with their predicted masks, and its score."""
    rows = []
    for clip in clips:
        (first, image), *others = drawn[clip.name]
        title = clip.name
        if evaluation is not None and clip.name in evaluation.per_sequence:
            title += f", J&F {evaluation.per_sequence[clip.name]['J&F_mean'] * 100:.1f}"
        rows.append([(f"{title}, frame {first}", image), *others])
    return drawing.contact_sheet(rows, height=200)


def draw_sequence(clip: Clip, mask: Labels, output: OutputFolder, evaluation: Evaluation | None) -> None:
    """Write OUTPUT/overlays/SEQUENCE.webm: predicted masks over the frames, objects with their scores."""
    scored = () if evaluation is None else evaluation.objects
    scores = {each.label: each.statistics for each in scored if each.sequence == clip.name}
    ids = object_ids(mask)
    names = [f"object {label}" + _score_text(scores.get(label)) for label in ids]
    with VideoWriter(output.path("overlays", f"{clip.name}.webm"), DEFAULT_FPS) as video:
        for frame in clip.frames:
            labels = read_labels(output.folder / clip.name / f"{frame.stem}.png")
            video.write(draw_labels(images.read(frame), labels, ids, names=names))


def _score_text(scores: Mapping[str, float] | None) -> str:
    return f": J {scores['J_mean'] * 100:.1f}, F {scores['F_mean'] * 100:.1f}" if scores else ""
