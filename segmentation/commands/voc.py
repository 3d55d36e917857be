"""`python -m segmentation voc`: Jaccard similarity of attention masks on PASCAL VOC 2012."""

import csv
import io
import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dino_model import images
from dino_model.ahead import load_ahead
from dino_model.feature_cache import image_features, model_fingerprint
from dino_model.files import make_room, write_json, write_text
from dino_model.options import ModelOptions
from dino_model.predictor import AttentionPredictor
from dino_model.progress import progress
from segmentation import export, render, voc
from segmentation.commands.journal import Journal
from segmentation.labels import VOID
from segmentation.masks import RunLengths, decode
from segmentation.render import Picture
from segmentation.voc import (
    Annotation,
    GroundTruth,
    PictureScore,
    TargetScore,
    VocProtocol,
    VocSample,
    Void,
)

Cells = dict[VocProtocol, list[PictureScore]]

_NO_MASK = RunLengths(size=[0, 0], counts="")
_TRUTH = ("ground truth", (255, 255, 255))  # its name and colour in legends


@dataclass(frozen=True)
class Voc(ModelOptions):
    """How well attention masks agree with the annotated objects of VOC 2012, and under which protocol.

    Prints the score with its protocol, a table of classes and the paper's figures; writes per_image.csv,
    contact_sheet.png (the best and worst pictures), masks/NAME.png, masks.json and masks_images.json (COCO
    run lengths; `score` is the mask's Jaccard); with --overlays also overlays/NAME.png.
    """

    root: Path
    """Folder VOCdevkit, which holds VOC2012."""
    mass: float = 0.6
    """Share of the attention that a mask keeps, above 0 and up to 1."""
    ground_truth: GroundTruth = "class"
    """What a mask is compared with: each class of a picture, each object, or all objects as one."""
    void: Void = "union"
    """Unannotated pixels (255) stay in the union, or are excluded."""
    head: Literal["best", "mean"] | int = "best"
    """The best head for each class or object, the mean of all heads' maps, or one head by number."""
    resize: Literal["squash", "short-side", "native"] = "squash"
    """How a picture is brought to the model's size."""
    block: int = -1
    """Block whose attention is taken; -1 is the last."""
    split: str = "val"
    """List of pictures in ImageSets/Segmentation."""
    baseline: Literal["none", "centred-box"] = "none"
    """Score a box of half the sides in the middle of every picture instead of a model."""
    grid: bool = False
    """Score every combination of mass (0.6, 0.8 and --mass), ground truth and void in one pass."""
    overlays: bool = False
    """Draw every picture: masks tinted, the ground truth outlined, classes with their heads and scores."""
    output: Path = Path("output/voc")
    """Folder to write to; made if missing."""
    json: Path | None = None
    """File for the figures: `jaccard` in percent, the `lift` of attention and the full `protocol`."""

    resume: bool = False
    """Go on where an earlier run with the same settings was stopped."""
    cache: Path | None = None
    """Folder that keeps attention maps, so that other masses and ground truths need no model."""

    def run(self) -> None:
        """Score, write, print; one picture after the other, each written before the next."""
        make_room(self.json)
        protocol = self._protocol()
        protocols = list(dict.fromkeys([protocol, *(_grid_around(protocol) if self.grid else ())]))
        samples = voc.list_samples(self.root, self.split)
        predictor = self.predictor(self.resize) if self.baseline == "none" else None
        weights = "" if predictor is None else model_fingerprint(predictor.model.backbone)
        made_by = {"weights": weights, **self._scored(), "protocols": [asdict(one) for one in protocols]}
        journal = Journal(self.output, made_by, resume=self.resume)
        todo = [sample for sample in samples if not journal.has(sample.name, *sample[1:])]
        read = zip(todo, load_ahead(_read, todo), strict=True)
        for sample, (picture, annotation) in progress(read, "voc", len(todo)):
            attention = None if predictor is None else self._attention(predictor, picture, weights)
            found = [_score_one(sample.name, attention, annotation, one) for one in protocols]
            _write_masks(self.output, sample, picture, annotation, found[0], overlay=self.overlays)
            journal.add(sample.name, _as_record(found), *sample[1:])
        scores = _from_records(
            [(sample.name, journal.finished[sample.name]) for sample in samples], protocols
        )
        figures = _figures(samples, scores, protocol) | self._scored()
        _write_results(self.output, samples, scores[protocol])
        print(_report(figures, scores, protocol))
        print(f"\nwritten to {self.output}: per_image.csv, contact_sheet.png, masks, masks.json")
        if self.json:
            write_json(self.json, figures)

    def _attention(
        self, predictor: AttentionPredictor, picture: Picture, weights: str
    ) -> NDArray[np.float32]:
        """[CLS] attention of a picture, from the cache where it is there."""

        def look() -> NDArray[np.float32]:
            predictor.set_image(picture)
            return predictor.cls_attention(self.block)

        return image_features(
            self.cache,
            look,
            picture,
            feature=f"attention of block {self.block}",
            weights=weights,
            view=f"{self.resize} {self.size}",
            computed=predictor.computed,
        )

    def _protocol(self) -> VocProtocol:
        return VocProtocol(
            mass=self.mass,
            ground_truth=self.ground_truth,
            void=self.void,
            head=self.head,
            resize=self.resize,
            size=self.size,
            block=self.block,
            split=self.split,
        )

    def _scored(self) -> dict[str, str]:
        """What is scored, for the figures."""
        if self.baseline != "none":
            return {"model": f"baseline {self.baseline}", "precision": "no model"}
        return {
            "model": self.model,
            "precision": self.chosen_precision(),
        }


def _read(sample: VocSample) -> tuple[Picture, Annotation]:
    picture = images.read(sample.picture, name=str(sample.picture))
    return picture, voc.read_annotation(sample, (picture.shape[0], picture.shape[1]))


def _as_record(found: list[PictureScore]) -> list[list[list[Any]]]:
    """One picture under every protocol, as JSON; only the first one's masks are kept."""
    own, *others = found
    return [
        [list(target) for target in own.targets],
        *([list(target._replace(mask=_NO_MASK)) for target in other.targets] for other in others),
    ]


def _from_records(records: list[tuple[str, list[list[list[Any]]]]], protocols: list[VocProtocol]) -> Cells:
    """The inverse of `_as_record`, for all pictures by name."""
    scores: Cells = {protocol: [] for protocol in protocols}
    for name, record in records:
        for protocol, targets in zip(protocols, record, strict=True):
            scores[protocol].append(PictureScore(name, tuple(TargetScore(*target) for target in targets)))
    return scores


def _score_one(
    name: str, attention: np.ndarray | None, annotation: Annotation, protocol: VocProtocol
) -> PictureScore:
    if attention is not None:
        return voc.score_attention(name, attention, annotation, protocol)
    box = voc.centred_box((annotation.classes.shape[0], annotation.classes.shape[1]))
    return voc.score_masks(name, {-1: box}, annotation, protocol.ground_truth, protocol.void)


def _grid_around(protocol: VocProtocol) -> Iterator[VocProtocol]:
    """Every mass, ground truth and void handling that the paper's text leaves open."""
    masses = sorted({0.6, 0.8, protocol.mass})
    kinds: tuple[GroundTruth, ...] = ("class", "object", "foreground")
    voids: tuple[Void, ...] = ("union", "exclude")
    for mass, kind, void in itertools.product(masses, kinds, voids):
        yield replace(protocol, mass=mass, ground_truth=kind, void=void)


def _figures(samples: list[VocSample], scores: Cells, protocol: VocProtocol) -> dict[str, Any]:
    """What --json writes."""
    own = scores[protocol]
    figures: dict[str, Any] = {
        "jaccard": voc.mean_jaccard(own),
        "lift": voc.mean_lift(own),
        "protocol": asdict(protocol),
        "voc12_val": voc.is_voc12_val(samples),
        "pictures": sum(bool(score.targets) for score in own),
        "pictures_without_target": sum(not score.targets for score in own),
        "per_class": {
            name: {"jaccard": mean, "masks": count} for name, (mean, count) in voc.per_class(own).items()
        },
        "paper": voc.PAPER,
    }
    if len(scores) > 1:
        figures["grid"] = [
            {"jaccard": voc.mean_jaccard(found), "protocol": asdict(cell)} for cell, found in scores.items()
        ]
    return figures


def _report(figures: dict[str, Any], scores: Cells, protocol: VocProtocol) -> str:
    """The figures as text."""
    plural = "s" * (figures["pictures"] != 1)
    data = "VOC12 val" if figures["voc12_val"] else f"picture{plural} laid out as VOC 2012 (not VOC12 val)"
    lines = [
        f"protocol  {protocol}; {figures['precision']}",
        f"Jaccard   {figures['jaccard']:.1f} %   {figures['model']} on {figures['pictures']} {data}",
    ]
    if figures["lift"] is not None:
        lines.append(
            f"lift      {figures['lift']:.2f}     share of all heads' attention over share of the patches"
        )
    if figures["pictures_without_target"]:
        lines.append(f"          {figures['pictures_without_target']} more have no annotated object")
    lines += ["", f"{'class':<14} {'masks':>5} {'Jaccard':>8}"]
    lines += [
        f"{name:<14} {row['masks']:>5} {row['jaccard']:>8.1f}" for name, row in figures["per_class"].items()
    ]
    if len(scores) > 1:
        lines += ["", f"{'mass':>5} {'ground truth':<12} {'void':<8} {'Jaccard':>8}"]
        lines += [
            f"{cell.mass:>5.0%} {cell.ground_truth:<12} {cell.void:<8} {voc.mean_jaccard(found):>8.1f}"
            for cell, found in scores.items()
        ]
    lines += ["", "paper, VOC12 val, best head: " + _paper()]
    if not figures["voc12_val"]:
        lines.append(
            "These pictures are not VOC12 val: the figures above and the paper's cannot be compared."
        )
    return "\n".join(lines)


def _paper() -> str:
    return "; ".join(
        f"{model} " + ", ".join(f"{kind} {value}" for kind, value in row.items())
        for model, row in voc.PAPER.items()
    )


def _write_masks(
    folder: Path,
    sample: VocSample,
    picture: Picture,
    annotation: Annotation,
    score: PictureScore,
    *,
    overlay: bool,
) -> None:
    """The mask of one picture, and the picture with it where that is wished."""
    if not score.targets:
        return
    export.write_mask_png(folder / "masks" / f"{sample.name}.png", _label_map(score))
    if overlay:
        names = [_described(target) for target in score.targets]
        entries = [_TRUTH, *zip(names, render.head_colors(len(names)), strict=True)]
        drawn = render.with_legend(_drawn(picture, annotation, score), entries)
        render.save_png(folder / "overlays" / f"{sample.name}.png", drawn)


def _write_results(folder: Path, samples: list[VocSample], scores: list[PictureScore]) -> None:
    """What needs all pictures: CSV, contact sheet, run lengths."""
    write_text(folder / "per_image.csv", _csv(scores))
    pairs = [(sample, score) for sample, score in zip(samples, scores, strict=True) if score.targets]
    render.save_png(folder / "contact_sheet.png", _contact_sheet(pairs))
    records, listed = [], {}
    for number, (sample, score) in enumerate(pairs, start=1):
        height, width = score.targets[0].mask["size"]
        listed[number] = (sample.picture.name, (height, width))
        records += [
            export.coco_record(number, target.category, decode(target.mask), target.jaccard)
            for target in score.targets
        ]
    categories = {0: "foreground"} | dict(enumerate(voc.CLASSES, start=1))
    export.write_coco_results(folder / "masks.json", records)
    export.write_coco_images(folder / "masks_images.json", listed, categories)


def _csv(scores: list[PictureScore]) -> str:
    """One line a picture; a picture's several labels, heads and scores are separated by spaces."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["image", "jaccard", "labels", "heads", "jaccards"])
    for score in scores:
        columns = (
            " ".join(str(target.label) for target in score.targets),
            " ".join(str(target.head) for target in score.targets),
            " ".join(f"{100 * target.jaccard:.4f}" for target in score.targets),
        )
        table.writerow([score.name, f"{100 * score.jaccard:.4f}" if score.targets else "", *columns])
    return text.getvalue()


def _label_map(score: PictureScore) -> np.ndarray:
    """The chosen masks with their labels, uint8 [height, width]; where they overlap, the better one's."""
    height, width = score.targets[0].mask["size"]
    labels = np.zeros((height, width), dtype=np.uint8)
    for target in sorted(score.targets, key=lambda target: target.jaccard):
        labels[decode(target.mask)] = target.label
    return labels


def _contact_sheet(pairs: list[tuple[VocSample, PictureScore]], count: int = 8, per_row: int = 4) -> Picture:
    """Pictures with the highest and lowest Jaccard, none twice: masks tinted, the ground truth outlined."""
    ordered = sorted(pairs, key=lambda pair: -pair[1].jaccard)
    best, worst = ordered[:count], ordered[max(count, len(ordered) - count) :][::-1]
    rows: list[list[tuple[str, Picture]]] = []
    for word, chosen in (("best", best), ("worst", worst)):
        cells = [
            (
                f"{word} {rank}: {sample.name}, Jaccard {100 * score.jaccard:.1f} %",
                _drawn(*_read(sample), score),
            )
            for rank, (sample, score) in enumerate(chosen, start=1)
        ]
        rows += [cells[start : start + per_row] for start in range(0, len(cells), per_row)]
    sheet = render.contact_sheet(rows, height=200)
    most = max(len(score.targets) for _, score in (*best, *worst))
    names = ["mask"] if most == 1 else [f"mask of region {number}" for number in range(1, most + 1)]
    return render.with_legend(sheet, [_TRUTH, *zip(names, render.head_colors(most), strict=True)])


def _described(target: TargetScore) -> str:
    head = f", head {target.head}" if target.head >= 0 else ""
    return f"{voc.class_name(target.category)}: {100 * target.jaccard:.1f}{head}"


def _drawn(picture: Picture, annotation: Annotation, score: PictureScore) -> Picture:
    masks = np.stack([decode(target.mask) for target in score.targets])
    tinted = render.overlay_masks(picture, masks, contour=0)
    truth = (annotation.classes != 0) & (annotation.classes != VOID)
    white = np.array([_TRUTH[1]], dtype=np.uint8)
    return render.overlay_masks(tinted, truth, colors=white, opacity=0, contour=2)
