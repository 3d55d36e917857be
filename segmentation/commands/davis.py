"""`python -m segmentation davis`: labels of the first frame carried through DAVIS, or through any frames."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch

from dino_model import images
from dino_model.feature_cache import model_fingerprint
from dino_model.files import make_room
from dino_model.options import ModelOptions
from dino_model.predictor import AttentionPredictor
from dino_model.resize import fed_size
from segmentation import memory, propagation, render, scoring
from segmentation.baselines import ColourPatches, copied
from segmentation.commands import score
from segmentation.davis import Clip, DavisError, DavisFolder, open_davis, read_first_mask, read_frames
from segmentation.frames import DEFAULT_FPS, frame_files
from segmentation.labels import Labels, object_ids, read_labels
from segmentation.mask_folder import Predictions, run_lengths
from segmentation.propagation import PRESETS, official_std
from segmentation.render import Picture
from segmentation.scoring import Evaluation
from segmentation.video import VideoWriter, draw_labels

Source = AttentionPredictor | ColourPatches
Cell = tuple[str, Picture]  # what stands below a picture, and the picture


@dataclass(frozen=True)
class Davis(ModelOptions):
    """Carry the labels of first frames through DAVIS by nearest neighbours of features, and score.

    Writes OUTPUT/SEQUENCE/FRAME.png, palette PNGs whose values are the labels, and OUTPUT/predictions.json,
    which says how they were made; with --overlays also overlays/SEQUENCE.webm. With --frames and --mask any
    folder of frames takes the place of DAVIS.
    """

    output: Path
    """Folder for the predicted masks; made if missing."""
    root: Path | None = None
    """DAVIS: the folder that holds ImageSets, JPEGImages and Annotations."""
    preset: Literal["dino", "crw"] = "dino"
    """How labels travel: as in the official DINO code, or as in the contrastive random walk."""
    features: Literal["model", "colour", "copy"] = "model"
    """Patch features of the model; or a baseline: mean-subtracted 8x8 colour patches, or the first mask
    copied."""
    year: Literal[2016, 2017] = 2017
    """Layout and masks of DAVIS: 2017 has labelled objects, 2016 binary masks."""
    split: str = "val"
    """List of sequences in ImageSets."""
    resolution: str = "480p"
    """Folder of pictures and masks within JPEGImages and Annotations."""
    sequences: tuple[str, ...] = ()
    """Only these sequences."""
    frames: Path | None = None
    """A folder of frames to use instead of DAVIS."""
    mask: Path | None = None
    """Labels of the first of these frames: a palette or grey PNG."""
    binary: bool = False
    """Every value but 0 of the masks is object 1."""
    resume: bool = False
    """Keep the finished sequences of an earlier run with the same settings."""
    allow_gaps: bool = False
    """Let the numbers of frames jump."""
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
        make_room(self.csv, self.json)
        dataset, clips = self._clips()
        comparable = () if dataset is None else dataset.with_ground_truth()
        if not comparable and (self.csv or self.json):
            raise DavisError(
                "--csv and --json hold scores, and there are no masks beyond the first to compare with: "
                "leave them out"
            )
        masks = [read_first_mask(clip) for clip in clips]
        source = self._source()
        settings = self._settings(source)
        print(score.described("settings", settings))
        predictions = Predictions(self.output, settings, resume=self.resume)
        finished = [predictions.has(clip) for clip in clips]
        drawn = []
        with run_lengths(self.output) as add:
            for number, (clip, mask, done) in enumerate(zip(clips, masks, finished, strict=True), start=1):
                started = time.monotonic()
                computed = self._propagated(clip, mask, source)
                masks_of = predictions.read(clip) if done else predictions.write(clip, computed)
                with closing(masks_of) as labels:
                    drawn.append(list(listed_and_sampled(clip, labels, object_ids(mask), add)))
                took = "finished before" if done else _took(time.monotonic() - started, len(clip.frames))
                print(f"{number}/{len(clips)} {clip.name}: {len(clip.frames)} frames, {took}", flush=True)
        evaluation = self._score(dataset, comparable, settings) if dataset and comparable else None
        render.save_png(self.output / "overview.png", overview(clips, drawn, evaluation))
        if self.overlays:
            for clip, mask in zip(clips, masks, strict=True):
                draw_sequence(clip, mask, self.output, evaluation)
        print(f"written to {self.output}: masks, masks.json, masks_images.json, overview.png")
        if evaluation is None:
            print("not scored: there are no masks beyond the first to compare with")

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

    def _source(self) -> Source | None:
        """What computes patch features; None copies the first mask."""
        if self.features == "copy":
            return None
        if self.features == "colour":
            return ColourPatches(size=self.size)
        model = self.load()
        std = official_std(model, PRESETS[self.preset])
        return self.predictor("davis", model=model, std=std, carries_labels=True)

    def _settings(self, source: Source | None) -> dict[str, Any]:
        """Everything the predictions depend on but the frames: what --resume compares."""
        if source is None:
            return {"features": "first mask copied"}
        how = {"preset": self.preset, **asdict(PRESETS[self.preset])}
        del how["name"]
        settings = {**how, "size": self.size, "patch_size": source.patch_size}
        if isinstance(source, ColourPatches):
            return {"features": "colour patches, mean subtracted", **settings}
        weights = model_fingerprint(source.model.backbone)
        return {
            "features": f"last block of {source.model.name}",
            "weights": weights,
            "precision": source.precision,
            "device": source.device.type,
            **settings,
        }

    def _propagated(self, clip: Clip, mask: Labels, source: Source | None) -> Iterator[Labels]:
        """The labels of every frame of one sequence."""
        if source is None:
            yield from copied(mask, len(clip.frames))
            return
        self._check(clip, mask, source)
        frames = read_frames(clip, (mask.shape[0], mask.shape[1]))
        preset = PRESETS[self.preset]
        yield from propagation.propagate_frames(frames, mask, source, preset, self.batch, overlap=True)

    def _check(self, clip: Clip, mask: Labels, source: Source) -> None:
        """Say what a sequence will cost and what it cannot follow, before it starts."""
        height, width = mask.shape
        fed = fed_size(height, width, source.size, source.resize, source.patch_size)
        dimension = 3 * source.patch_size**2
        if isinstance(source, AttentionPredictor):
            dimension = cast(int, source.model.backbone.embed_dim)
        preset, ids = PRESETS[self.preset], object_ids(mask)
        estimate = memory.propagation_memory(
            (height, width), fed, source.patch_size, dimension, len(ids), preset, self.batch
        )
        print(f"{clip.name}: {width}x{height}, {len(ids)} objects, memory {estimate}")
        memory.check(estimate, getattr(source, "device", torch.device("cpu")))
        if lost := propagation.vanished_objects(mask, fed, source.patch_size, preset):
            print(f"{clip.name}: objects {lost} are smaller than a patch and will not be found")

    def _score(
        self, dataset: DavisFolder, comparable: tuple[str, ...], settings: dict[str, Any]
    ) -> Evaluation:
        pairs, faults = scoring.pair_masks(
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


def _took(seconds: float, frames: int) -> str:
    return f"{seconds:.1f} s ({seconds / frames:.2f} s a frame)"


def listed_and_sampled(
    clip: Clip, labels: Iterable[Labels], ids: Sequence[int], add: Callable[[str, Labels], None]
) -> Iterator[Cell]:
    """Every mask of a sequence handed to `add`; five frames spread over it, drawn with theirs."""
    last = len(clip.frames) - 1
    chosen = {round(place * last) for place in (0, 0.25, 0.5, 0.75, 1)}
    for number, (frame, found) in enumerate(zip(clip.frames, labels, strict=True)):
        add(f"{clip.name}/{frame.name}", found)
        if number in chosen:
            yield frame.stem, draw_labels(images.read(frame), found, ids, max_side=480)


def overview(clips: Sequence[Clip], drawn: Sequence[list[Cell]], evaluation: Evaluation | None) -> Picture:
    """One row per sequence: some of its frames with their predicted masks, and its score."""
    rows = []
    for clip, ((first, picture), *others) in zip(clips, drawn, strict=True):
        title = clip.name
        if evaluation is not None and clip.name in evaluation.per_sequence:
            title += f", J&F {evaluation.per_sequence[clip.name]['J&F_mean'] * 100:.1f}"
        rows.append([(f"{title}, frame {first}", picture), *others])
    return render.contact_sheet(rows, height=200)


def draw_sequence(clip: Clip, mask: Labels, output: Path, evaluation: Evaluation | None) -> None:
    """Write OUTPUT/overlays/SEQUENCE.webm: predicted masks over the frames, objects with their scores."""
    scored = () if evaluation is None else evaluation.objects
    figures = {one.label: one.statistics for one in scored if one.sequence == clip.name}
    ids = object_ids(mask)
    names = [f"object {label}" + _described(figures.get(label)) for label in ids]
    with VideoWriter(output / "overlays" / f"{clip.name}.webm", DEFAULT_FPS) as video:
        for frame in clip.frames:
            labels = read_labels(output / clip.name / f"{frame.stem}.png")
            video.write(draw_labels(images.read(frame), labels, ids, names=names))


def _described(figures: Mapping[str, float] | None) -> str:
    return f": J {figures['J_mean'] * 100:.1f}, F {figures['F_mean'] * 100:.1f}" if figures else ""
