"""`python -m segmentation discover`: objects without labels, in images and in scored data sets."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args

import numpy as np
import tyro
from numpy.typing import NDArray

from dino_model.data import images
from dino_model.inference.options import ModelOptions
from dino_model.runtime.batch import BatchCommand
from dino_model.runtime.files import write_csv
from dino_model.runtime.outputs import OutputFolder
from segmentation import datasets, discovery, discovery_eval, drawing, edges
from segmentation.coco import CocoWriter
from segmentation.commands import common
from segmentation.commands.common import InputImage
from segmentation.commands.truth import TrueMasks
from segmentation.discovery import METHODS
from segmentation.labels import VOID, Labels, write_mask_png
from segmentation.masks import ImageArray, Mask, bounding_box, components, decode, rle
from segmentation.metrics import jaccard

if TYPE_CHECKING:
    from dino_model.inference.predictor import AttentionPredictor

MASS = 0.6  # of the attention that is kept
Loaded = tuple[ImageArray, Labels | None]
ImageResize = Literal["pad", "native", "short-side", "squash"]


class FoundObjects(NamedTuple):
    """The objects of one image, in its pixels, by one method."""

    masks: list[Mask]
    confidences: list[float]
    soft: NDArray[np.float32]  # their union in [0, 1], for maxF: [height, width]


@dataclass(frozen=True)
class Discover(common.NamedMaskOptions, ModelOptions, BatchCommand[InputImage, Loaded]):
    """Objects without labels or training: LOST, TokenCut, MaskCut, with one pass of the model.

    Writes contact_sheet.png, masks/METHOD/NAME.png (labels 1, 2, …), overlays/METHOD/NAME.jpg, METHOD.json
    with METHOD_images.json (COCO run lengths, boxes and confidences) and per_image.csv. Scores are CorLoc
    (first object) with --dataset, and maxF, IoU and accuracy (union of the objects) with --masks.
    """

    inputs: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Images: files, folders, tars, lists of paths, or glob patterns."""
    masks: Path | None = None
    """True masks of the images: a folder of files with their names, or a COCO .json file."""
    dataset: Literal["voc07", "voc12"] | None = None
    """Instead of inputs: trainval of VOC 2007 or 2012 in --root, with its boxes."""
    root: Path = Path("VOCdevkit")
    """Folder VOCdevkit, for --dataset."""
    methods: Annotated[
        tuple[str, ...],
        tyro.conf.arg(
            metavar=f"{{{','.join(METHODS)}}}",
            help=" ".join(f"{name}: {method.summary}" for name, method in METHODS.items()),
        ),
    ] = ("lost", "tokencut", "maskcut")
    resize: ImageResize | None = None
    """Resizing of the image for the model. pad keeps the size and pads to whole patches (published for boxes,
    default with --dataset). native rounds the size to whole patches (published for masks, default with
    --masks). short-side is the default otherwise."""
    count: int = 3
    """Largest number of objects, for the methods that divide an image repeatedly."""
    head: int = 4
    """Attention head, for the methods that keep 60 % of its mass."""
    min_confidence: float = -1.0
    """Leave out objects with a lower confidence: 1 is cut off completely, 0 as if cut at random."""
    refine: bool = False
    """Align the edges of masks with those of the image (guided filter)."""

    @cached_property
    def _resize(self) -> ImageResize:
        return self.resize or ("pad" if self.dataset else "native" if self.masks else "short-side")

    @cached_property
    def _predictor(self) -> "AttentionPredictor":
        return self.predictor("native" if self._resize == "pad" else self._resize)

    @cached_property
    def _needs_attention(self) -> bool:
        return any("attention" in discovery.discovery_method(name).needs for name in self.methods)

    @cached_property
    def _truths(self) -> TrueMasks | None:
        if self.masks is None:
            return None
        images = common.list_inputs(common.open_inputs(self.inputs))
        return TrueMasks(self.masks, images, self, scope="image", foreground=True)

    def items(self) -> Sequence[InputImage]:
        """Check the options, list the images with their boxes or masks."""
        if not self.methods:
            raise ValueError(f"--methods names none; choose among {', '.join(METHODS)}")
        for name in self.methods:
            discovery.discovery_method(name)
        if self.count < 1:
            raise ValueError(f"--count is {self.count}; expected at least 1")
        if not -1 <= self.min_confidence <= 1:
            raise ValueError(f"--min-confidence is {self.min_confidence}; expected -1 to 1")
        if self.dataset and self.masks:
            raise ValueError("--dataset has boxes of its own; leave out --masks")
        if bool(self.inputs) == bool(self.dataset):
            raise ValueError("pass images, or --dataset voc07 or voc12: one of the two")
        if self.dataset:
            return self._with_boxes(2000 + int(self.dataset[-2:]))
        return self._truths.images if self._truths else common.list_inputs(common.open_inputs(self.inputs))

    def settings(self) -> dict[str, Any]:
        """Describe what the scores depend on."""
        if self._needs_attention:
            common.check_head(self.head, self._predictor)
        is_resized = self._resize in ("pad", "native")
        settings = {
            "data": self.dataset or "images",
            "model": self.model,
            "precision": self._predictor.precision,
            "resize": self._resize if is_resized else f"{self._resize} {self.size}",
            "methods": ", ".join(self.methods),
            "count": self.count,
            "mask_threshold": self.least_value,
            "head": self.head,
            "min_confidence": self.min_confidence,
            "edges": "guided filter" if self.refine else "patches",
            "weights": common.model_settings(self._predictor)["weights"],
        }
        return settings | (self._truths.settings() if self._truths else {})

    def read(self, item: InputImage) -> Loaded:
        """Read an image and its true mask."""
        image = self._predictor.check_patches(item.read())
        return image, self._truths.read_one(item, image.shape) if self._truths else None

    def compute(self, item: InputImage, loaded: Loaded, output: OutputFolder) -> dict[str, Any]:
        """Write masks and overlays of one image; record size, masks as run lengths, and scores."""
        (image, truth), predictor = loaded, self._predictor
        set_image = discovery.set_padded if self._resize == "pad" else discovery.set_resized
        placement = set_image(predictor, image)
        inputs: dict[discovery.Need, Any] = {"keys": discovery.last_keys(predictor)}
        inputs |= {"mass": MASS, "count": self.count}
        if self._needs_attention:
            inputs["attention"] = predictor.cls_attention()[self.head]
        record: dict[str, Any] = {"size": image.shape[:2], "masks": {}, "confidences": {}, "scored": {}}
        for method in self.methods:
            objects = self._objects(discovery.find_objects(method, inputs), image, placement)
            labels = np.zeros(image.shape[:2], dtype=np.uint8)
            for label, mask in reversed(list(enumerate(objects.masks, start=1))):  # the first object on top
                labels[mask] = label
            scores = _score(item, image, objects, truth)
            record["masks"][method] = [rle(mask) for mask in objects.masks]
            record["confidences"][method], record["scored"][method] = objects.confidences, scores
            write_mask_png(output.path("masks", method, f"{item.name}.png"), labels)
            values = (f"{key} {value:.3g}" for key, value in scores.items() if isinstance(value, int | float))
            drawn = drawing.caption(_draw(image, objects.masks), f"{method}: {', '.join(values)}")
            drawing.save_image(output.path("overlays", method, f"{item.name}.jpg"), drawn)
        return record

    def finish(self, items: Sequence[InputImage], output: OutputFolder) -> dict[str, Any]:
        """Write tables, COCO files and the contact sheet; print the scores."""
        rows = [
            {"image": item.name, "method": method, **scores}
            for item in items
            for method, scores in output.finished[item.name]["scored"].items()
        ]
        by_method = {method: [row for row in rows if row["method"] == method] for method in self.methods}
        scores = {method: discovery_eval.summary(rows) for method, rows in by_method.items()}
        table = [{key: value for key, value in row.items() if not key.startswith("f_")} for row in rows]
        write_csv(output.path("per_image.csv"), [table[0], *(row.values() for row in table)])
        for method in self.methods:
            files = output.path(f"{method}.json"), output.path(f"{method}_images.json")
            writer = CocoWriter(*files, {1: "object"})
            for item in items:
                record = output.finished[item.name]
                objects = zip(record["masks"][method], record["confidences"][method], strict=True)
                masks = ((1, decode(mask), confidence) for mask, confidence in objects)
                writer.add(item.file_name, record["size"], masks)
            writer.write()
        drawing.save_image(output.path("contact_sheet.png"), _contact_sheet(output, items, self.methods))
        protocol = {key: value for key, value in output.settings.items() if key != "weights"}
        print(_report(protocol, scores, self.dataset, len(items)))
        empty = (f"{method} {sum(not row['objects'] for row in rows)}" for method, rows in by_method.items())
        print(f"images without an object: {', '.join(empty)}")
        return {"protocol": protocol, "scores": scores, "images": len(items)}

    def _with_boxes(self, year: int) -> list[InputImage]:
        """List trainval of VOC, each image with the file of its boxes."""
        folder = datasets.find_voc(self.root, year)
        files = datasets.read_voc_list(folder, "Main/trainval.txt")
        samples = common.list_inputs(common.open_inputs(files))
        boxes = {sample.name: folder / "Annotations" / f"{sample.stem}.xml" for sample in samples}
        if missing := [path for path in boxes.values() if not path.is_file()]:
            raise FileNotFoundError(f"{missing[0]} is missing: expected an annotation of every image")
        return [replace(sample, truth=boxes[sample.name]) for sample in samples]

    def _objects(
        self, discoveries: list[discovery.Discovery], image: ImageArray, placement: discovery.Placement
    ) -> FoundObjects:
        """Bring objects from the patch grid to the image, with --refine along its edges."""
        discoveries = [each for each in discoveries if each.confidence >= self.min_confidence]
        masks = [placement.mask(each.mask) for each in discoveries]
        confidences = [each.confidence for each in discoveries]
        if not masks or not self.refine:
            return FoundObjects(masks, confidences, _unite(masks, image).astype(np.float32))
        radius = max(1, placement.covered[0] // discoveries[0].mask.shape[0])
        softs = edges.refine_edges(np.stack(masks), image, radius)
        sharp = [components(soft > 0.5) == 1 for soft in softs]  # the largest part of each
        refined = [new if new.any() else old for new, old in zip(sharp, masks, strict=True)]
        return FoundObjects(refined, confidences, softs.max(axis=0))


def _unite(masks: list[Mask], image: ImageArray) -> Mask:
    return np.any(masks, axis=0) if masks else np.zeros(image.shape[:2], dtype=bool)


def _score(
    sample: InputImage, image: ImageArray, objects: FoundObjects, truth: Labels | None
) -> dict[str, Any]:
    """Score the objects of one image against its ground truth, without void pixels, as JSON types."""
    scores: dict[str, Any] = {
        "objects": len(objects.masks),
        "confidence": max(objects.confidences, default=None),
    }
    if sample.truth and truth is None:
        box = bounding_box(objects.masks[0]) if objects.masks else None
        scores["localized"] = discovery_eval.is_localized(box, datasets.read_voc_boxes(sample.truth))
    elif truth is not None:
        counted = truth != VOID
        union, inside, soft = (
            each[counted] for each in (_unite(objects.masks, image), truth == 1, objects.soft)
        )
        scores["iou"] = float(jaccard(union[None], inside[None]))
        scores["accuracy"] = float((union == inside).mean())
        for convention in get_args(discovery_eval.FConvention):
            scores[f"f_{convention}"] = discovery_eval.f_curve(soft, inside, convention).tolist()
    return scores


def _report(
    protocol: dict[str, Any], scores: dict[str, dict[str, float]], dataset: str | None, count: int
) -> str:
    lines = [common.format_settings("protocol", protocol)]
    names = list(next(iter(scores.values())))
    published = discovery_eval.PUBLISHED_CORLOC.get(dataset or "", {})
    lines.append(f"{f'{count} images':<18}" + "".join(f"{name.replace('_', ' '):>22}" for name in names))
    for method, row in scores.items():
        paper = f"   published CorLoc, DINO ViT-S/16: {published[method]}" if method in published else ""
        lines.append(f"{method:<18}" + "".join(f"{row[name]:>22.1f}" for name in names) + paper)
    return "\n".join(lines)


def _contact_sheet(output: OutputFolder, samples: Sequence[InputImage], methods: Sequence[str]) -> ImageArray:
    """Show some images at even distances, and their objects by every method."""
    rows = []
    for image in common.choose_evenly(samples):
        files = (output.folder / "overlays" / method / f"{image.name}.jpg" for method in methods)
        rows.append([(image.title, image.read()), *(("", images.read(file)) for file in files)])
    return drawing.contact_sheet(rows)


def _draw(image: ImageArray, masks: list[Mask]) -> ImageArray:
    if not masks:
        return image
    tinted = drawing.overlay_masks(image, np.stack(masks))
    boxed = drawing.draw_boxes(tinted, [bounding_box(mask) for mask in masks])
    return drawing.with_names(boxed, [f"object {number}" for number in range(1, len(masks) + 1)])
