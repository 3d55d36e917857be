"""`python -m segmentation voc`: Jaccard similarity of attention masks on PASCAL VOC 2012."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from dino_model.data import images
from dino_model.inference.options import ModelOptions
from dino_model.runtime.files import make_room, write_csv, write_json
from dino_model.runtime.outputs import OutputFolder, OutputOptions, SkippedInputs
from segmentation import datasets, drawing, voc_eval
from segmentation.annotations import VOC_CLASSES
from segmentation.coco import CocoWriter
from segmentation.commands import common
from segmentation.datasets import Annotation, VocSample
from segmentation.labels import VOID, Labels, write_mask_png
from segmentation.masks import ImageArray, check_mass, decode
from segmentation.voc_eval import GroundTruth, ImageScore, TargetScore, VocProtocol, Void

if TYPE_CHECKING:
    from dino_model.inference.predictor import AttentionPredictor

AVERAGE = {"masks": "enlarged by nearest", "mean": "over the regions of each image, then over images"}


@dataclass(frozen=True)
class Voc(VocProtocol, common.MaskOptions, ModelOptions, OutputOptions):
    """Agreement of attention masks with the annotated objects of VOC 2012, and its protocol.

    Prints the score with its protocol, a table of classes and the paper's values. Writes per_image.csv,
    contact_sheet.png (the best and worst images), masks/NAME.png, and overlays/NAME.jpg (masks tinted, the
    ground truth outlined). Writes masks.json with masks_images.json (COCO run lengths; `score` is the mask's
    Jaccard similarity).
    """

    root: Path
    """Folder VOCdevkit, which holds VOC2012."""
    baseline: Literal["none", "centered-box"] = "none"
    """Score a box of half the sides in the middle of every image instead of a model."""
    grid: bool = False
    """Score every combination of mass (0.6, 0.8 and --mass), ground truth and void in one pass."""
    json: Path | None = None
    """File for the scores: `jaccard` in percent, the `lift` of attention and the full `protocol`."""

    def run(self) -> None:
        """Score and write one image after the other, then print."""
        check_mass(self.mass, "--mass")
        make_room(self.json)
        self.check_output()
        protocol = VocProtocol(**{each.name: getattr(self, each.name) for each in fields(VocProtocol)})
        protocols = list(dict.fromkeys([protocol, *(_grid_around(protocol) if self.grid else ())]))
        needs_objects = any(each.ground_truth == "object" for each in protocols)
        samples = datasets.list_voc_samples(self.root, self.split, objects=needs_objects)
        masks = datasets.VocMasks(samples, self.mask_rules())
        print(masks.table(), flush=True)
        predictor = self.predictor(self.resize) if self.baseline == "none" else None
        scored = {"model": f"baseline {self.baseline}", "precision": "no model"}
        if predictor is not None:
            scored = common.model_settings(predictor)
            if isinstance(self.head, int):
                common.check_head(self.head, predictor)
        read = {"masks": masks.classes.describe(), "mask_rules": asdict(self.mask_rules())}
        output = self.open_output({**scored, **read, "protocols": [asdict(each) for each in protocols]})
        skipped = self._score_images(samples, masks, predictor, protocols, output)
        finished = [sample for sample in samples if sample.name in output.finished]
        if not finished:
            skipped.check(len(samples))
        scores = {
            each: [
                ImageScore(sample.name, tuple(TargetScore(*t) for t in output.finished[sample.name][number]))
                for sample in finished
            ]
            for number, each in enumerate(protocols)
        }
        results = _results(finished, scores, protocol) | {key: scored[key] for key in ("model", "precision")}
        rows = [_row(score) for score in scores[protocol]]
        write_csv(output.path("per_image.csv"), [rows[0], *(row.values() for row in rows)])
        drawing.save_image(output.path("contact_sheet.png"), _contact_sheet(output, scores[protocol]))
        _write_coco(output, finished, scores[protocol])
        output.finish()
        print(_report(results))
        print(f"\nwritten to {self.output}: per_image.csv, contact_sheet.png, masks, overlays, masks.json")
        if self.json:
            write_json(self.json, results)
        skipped.check(len(samples))

    def _score_images(
        self,
        samples: list[VocSample],
        masks: datasets.VocMasks,
        predictor: "AttentionPredictor | None",
        protocols: list[VocProtocol],
        output: OutputFolder,
    ) -> SkippedInputs:
        """Score what is not finished; returns the images that could not be read."""

        def read(sample: VocSample) -> tuple[ImageArray, Annotation]:
            image = images.read(sample.image, name=str(sample.image))
            annotation = masks.read(sample, (image.shape[0], image.shape[1]))
            return image if predictor is None else predictor.check_patches(image), annotation

        skipped = SkippedInputs()
        todo = [sample for sample in samples if not output.has(sample.name, sample.files)]
        for sample, (image, annotation) in common.read_ahead(todo, read, skipped, "voc"):
            name, scores, files, attention = sample.name, [], [], None
            if predictor is not None:
                predictor.set_image(image)
                attention = predictor.cls_attention(self.block)
            for each in protocols:
                if attention is None:
                    box = {-1: voc_eval.centered_box((image.shape[0], image.shape[1]))}
                    score = voc_eval.score_masks(name, box, annotation, each.ground_truth, each.void)
                else:
                    score = voc_eval.score_attention(name, attention, annotation, each)
                scores.append(score)
            if scores[0].targets:
                files = [output.path("masks", f"{name}.png"), output.path("overlays", f"{name}.jpg")]
                write_mask_png(files[0], _label_map(scores[0]))
                drawing.save_image(files[1], _overlay(image, annotation, scores[0]))
            record = [[list(target) for target in score.targets] for score in scores]
            output.add(name, record, inputs=sample.files, files=files)
        return skipped


def _grid_around(protocol: VocProtocol) -> Iterator[VocProtocol]:
    """Vary mass, ground truth and void, which the paper leaves open."""
    masses = sorted({0.6, 0.8, protocol.mass})
    for mass, kind, void in itertools.product(masses, get_args(GroundTruth), get_args(Void)):
        yield replace(protocol, mass=mass, ground_truth=kind, void=void)


def _results(
    samples: list[VocSample], scores: dict[VocProtocol, list[ImageScore]], protocol: VocProtocol
) -> dict[str, Any]:
    own = scores[protocol]
    classes = voc_eval.per_class(own)
    return {
        "jaccard": voc_eval.mean_jaccard(own),
        "lift": voc_eval.mean_lift(own),
        "protocol": asdict(protocol),
        "voc12_val": len(samples) == 1449
        and all(re.fullmatch(r"20\d\d_\d{6}", each.name) for each in samples),
        "images": sum(bool(score.targets) for score in own),
        "images_without_target": sum(not score.targets for score in own),
        "per_class": {name: {"jaccard": mean, "masks": count} for name, (mean, count) in classes.items()},
        "paper": voc_eval.PAPER,
        "grid": [
            {"jaccard": voc_eval.mean_jaccard(values), "protocol": asdict(each)}
            for each, values in scores.items()
        ],
    }


def _report(results: dict[str, Any]) -> str:
    plural = "s" * (results["images"] != 1)
    data = "VOC12 val" if results["voc12_val"] else f"image{plural} laid out as VOC 2012 (not VOC12 val)"
    lines = [
        common.describe("protocol", results["protocol"] | {"precision": results["precision"]} | AVERAGE),
        f"Jaccard   {results['jaccard']:.1f} %   {results['model']} on {results['images']} {data}",
    ]
    if results["lift"] is not None:
        lines.append(
            f"lift      {results['lift']:.2f}     share of all heads' attention over share of the patches"
        )
    if results["images_without_target"]:
        lines.append(f"          {results['images_without_target']} more have no annotated object")
    lines += ["", f"{'class':<14} {'masks':>5} {'Jaccard':>8}"]
    for name, row in results["per_class"].items():
        lines.append(f"{name:<14} {row['masks']:>5} {row['jaccard']:>8.1f}")
    if len(results["grid"]) > 1:
        lines += ["", f"{'mass':>5} {'ground truth':<12} {'void':<8} {'Jaccard':>8}"]
        for score, each in ((row["jaccard"], row["protocol"]) for row in results["grid"]):
            lines.append(f"{each['mass']:>5.0%} {each['ground_truth']:<12} {each['void']:<8} {score:>8.1f}")
    lines += ["", *(common.describe(f"paper, {model}", row) for model, row in voc_eval.PAPER.items())]
    if not results["voc12_val"]:
        lines.append("These images are not VOC12 val: the values above and the paper's cannot be compared.")
    return "\n".join(lines)


def _write_coco(output: OutputFolder, samples: list[VocSample], scores: list[ImageScore]) -> None:
    categories = {0: "foreground"} | dict(enumerate(VOC_CLASSES, start=1))
    writer = CocoWriter(output.path("masks.json"), output.path("masks_images.json"), categories)
    for sample, score in zip(samples, scores, strict=True):
        if score.targets:
            height, width = score.targets[0].mask["size"]
            masks = ((each.category, decode(each.mask), each.jaccard) for each in score.targets)
            writer.add(sample.file_name, (height, width), masks)
    writer.write()


def _row(score: ImageScore) -> dict[str, str]:
    """Make a line of the CSV; labels, heads and scores of an image are separated by spaces."""
    return {
        "image": score.name,
        "jaccard": f"{100 * score.jaccard:.4f}" if score.targets else "",
        "labels": " ".join(str(target.label) for target in score.targets),
        "heads": " ".join(str(target.head) for target in score.targets),
        "jaccards": " ".join(f"{100 * target.jaccard:.4f}" for target in score.targets),
    }


def _label_map(score: ImageScore) -> Labels:
    """Combine the chosen masks to labels uint8 [height, width]; the better mask is on top."""
    labels = np.zeros(score.targets[0].mask["size"], dtype=np.uint8)
    for target in sorted(score.targets, key=lambda target: target.jaccard):
        labels[decode(target.mask)] = target.label
    return labels


def _overlay(image: ImageArray, annotation: Annotation, score: ImageScore) -> ImageArray:
    """Tint the masks, outline the ground truth, and name classes, heads and scores in a legend."""
    masks = np.stack([decode(target.mask) for target in score.targets])
    tinted = drawing.overlay_masks(image, masks, contour=0)
    truth = (annotation.classes != 0) & (annotation.classes != VOID)
    white = np.full((1, 3), 255, dtype=np.uint8)
    outlined = drawing.overlay_masks(tinted, truth, colors=white, opacity=0, contour=2)
    names = [
        f"{datasets.voc_class_name(target.category)}: {100 * target.jaccard:.1f}"
        + (f", head {target.head}" if target.head >= 0 else "")
        for target in score.targets
    ]
    entries = zip(["ground truth", *names], [white[0], *drawing.head_colors(len(names))], strict=True)
    return drawing.with_legend(outlined, list(entries))


def _contact_sheet(output: OutputFolder, scores: list[ImageScore], count: int = 8) -> ImageArray:
    """Show the overlays of the images with the highest and lowest Jaccard, four in a row."""
    ordered = sorted((score for score in scores if score.targets), key=lambda score: -score.jaccard)
    best, worst = ordered[:count], ordered[max(count, len(ordered) - count) :][::-1]
    rows = []
    for word, chosen in (("best", best), ("worst", worst)):
        cells = [
            (
                f"{word} {rank}: {score.name}, Jaccard {100 * score.jaccard:.1f} %",
                images.read(output.folder / "overlays" / f"{score.name}.jpg"),
            )
            for rank, score in enumerate(chosen, start=1)
        ]
        rows += [cells[start : start + 4] for start in range(0, len(cells), 4)]
    return drawing.contact_sheet(rows, height=240)
