"""`python -m segmentation voc`: Jaccard similarity of attention masks on PASCAL VOC 2012."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from dino_model.data import images
from dino_model.inference.options import ModelOptions
from dino_model.runtime.batch import BatchCommand
from dino_model.runtime.files import write_csv
from dino_model.runtime.outputs import OutputFolder
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

Loaded = tuple[ImageArray, Annotation]
AVERAGE = {"masks": "enlarged by nearest", "mean": "over the regions of each image, then over images"}


@dataclass(frozen=True)
class Voc(VocProtocol, common.MaskOptions, ModelOptions, BatchCommand[VocSample, Loaded]):
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

    @cached_property
    def _protocols(self) -> list[VocProtocol]:
        """The protocol of the options; with --grid also others in mass, ground truth and void."""
        own = VocProtocol(**{field.name: getattr(self, field.name) for field in fields(VocProtocol)})
        choices = sorted({0.6, 0.8, self.mass}), get_args(GroundTruth), get_args(Void)
        grid = [
            replace(own, mass=mass, ground_truth=kind, void=void) for mass, kind, void in product(*choices)
        ]
        return list(dict.fromkeys([own, *(grid if self.grid else ())]))

    @cached_property
    def _samples(self) -> list[VocSample]:
        needs_objects = any(each.ground_truth == "object" for each in self._protocols)
        return datasets.list_voc_samples(self.root, self.split, objects=needs_objects)

    @cached_property
    def _masks(self) -> datasets.VocMasks:
        return datasets.VocMasks(self._samples, self.mask_rules())

    @cached_property
    def _predictor(self) -> "AttentionPredictor | None":
        return self.predictor(self.resize) if self.baseline == "none" else None

    def items(self) -> list[VocSample]:
        """List the images of the split, and print the values of their masks."""
        check_mass(self.mass, "--mass")
        print(self._masks.table(), flush=True)
        return self._samples

    def settings(self) -> dict[str, Any]:
        """Describe the model, the masks and the protocols."""
        settings: dict[str, Any] = {"model": f"baseline {self.baseline}", "precision": "no model"}
        if self._predictor is not None:
            settings = common.model_settings(self._predictor)
            if isinstance(self.head, int):
                common.check_head(self.head, self._predictor)
        settings |= {"masks": self._masks.classes.describe(), "mask_rules": asdict(self.mask_rules())}
        return settings | {"protocols": [asdict(each) for each in self._protocols]}

    def read(self, item: VocSample) -> Loaded:
        """Read an image and its annotation."""
        image = images.read(item.image, name=str(item.image))
        annotation = self._masks.read(item, image.shape[:2])
        return image if self._predictor is None else self._predictor.check_patches(image), annotation

    def compute(self, item: VocSample, loaded: Loaded, output: OutputFolder) -> list[list[TargetScore]]:
        """Score an image by every protocol, and draw the first one."""
        image, annotation = loaded
        if self._predictor is None:
            box = {-1: voc_eval.centered_box(image.shape[:2])}
            score = partial(voc_eval.score_masks, item.name, box, annotation)
        else:
            self._predictor.set_image(image)
            attention = self._predictor.cls_attention(self.block)
            score = partial(voc_eval.score_attention, item.name, attention, annotation)
        scores = [score(each) for each in self._protocols]
        if scores[0].targets:
            write_mask_png(output.path("masks", f"{item.name}.png"), _label_map(scores[0]))
            overlay = output.path("overlays", f"{item.name}.jpg")
            drawing.save_image(overlay, _overlay(image, annotation, scores[0]))
        return [list(score.targets) for score in scores]

    def finish(self, items: Sequence[VocSample], output: OutputFolder) -> dict[str, Any]:
        """Write tables, COCO files and the contact sheet; print the scores."""
        finished = [(item.name, output.finished[item.name]) for item in items]
        by_protocol = [
            [ImageScore.of(name, record[number]) for name, record in finished]
            for number in range(len(self._protocols))
        ]
        scores = by_protocol[0]
        rows = [_row(score) for score in scores]
        write_csv(output.path("per_image.csv"), [rows[0], *(row.values() for row in rows)])
        drawing.save_image(output.path("contact_sheet.png"), _contact_sheet(output, scores))
        _write_coco(output, items, scores)
        is_val = len(items) == 1449 and all(re.fullmatch(r"20\d\d_\d{6}", item.name) for item in items)
        classes, settings = voc_eval.per_class(scores), output.settings
        results = {
            "jaccard": voc_eval.mean_jaccard(scores),
            "lift": voc_eval.mean_lift(scores),
            "protocol": settings["protocols"][0],
            "voc12_val": is_val,
            "images": sum(bool(score.targets) for score in scores),
            "images_without_target": sum(not score.targets for score in scores),
            "per_class": {name: {"jaccard": mean, "masks": count} for name, (mean, count) in classes.items()},
            "paper": voc_eval.PAPER,
            "grid": [
                {"jaccard": voc_eval.mean_jaccard(each), "protocol": protocol}
                for each, protocol in zip(by_protocol, settings["protocols"], strict=True)
            ],
            "model": settings["model"],
            "precision": settings["precision"],
        }
        print(_report(results))
        return results


def _report(results: Mapping[str, Any]) -> str:
    plural = "s" * (results["images"] != 1)
    data = "VOC12 val" if results["voc12_val"] else f"image{plural} laid out as VOC 2012 (not VOC12 val)"
    lines = [
        common.format_settings(
            "protocol", results["protocol"] | {"precision": results["precision"]} | AVERAGE
        ),
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
    lines += ["", *(common.format_settings(f"paper, {model}", row) for model, row in voc_eval.PAPER.items())]
    if not results["voc12_val"]:
        lines.append("These images are not VOC12 val: the values above and the paper's cannot be compared.")
    return "\n".join(lines)


def _write_coco(output: OutputFolder, samples: Sequence[VocSample], scores: list[ImageScore]) -> None:
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
        cells = []
        for rank, score in enumerate(chosen, start=1):
            title = f"{word} {rank}: {score.name}, Jaccard {100 * score.jaccard:.1f} %"
            cells.append((title, images.read(output.folder / "overlays" / f"{score.name}.jpg")))
        rows += [cells[start : start + 4] for start in range(0, len(cells), 4)]
    return drawing.contact_sheet(rows)
