"""`python -m segmentation discover`: objects without labels, in images and in scored data sets."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import tyro
from numpy.typing import NDArray

from dino_model import images
from dino_model.files import make_room, write_json
from dino_model.options import ModelOptions
from dino_model.outputs import OutputFolder, OutputOptions, SkippedInputs
from segmentation import datasets, discovery, drawing
from segmentation.coco import coco_writer
from segmentation.commands import common
from segmentation.commands.common import InputImage
from segmentation.discovery import Method
from segmentation.labels import read_labels, write_mask_png
from segmentation.masks import Box, ImageArray, Mask, bounding_box, components, decode, rle
from segmentation.metrics import jaccard

if TYPE_CHECKING:
    from dino_model.predictor import AttentionPredictor

Resize = Literal["pad", "native", "short-side", "squash"]


class Sample(NamedTuple):
    """An image, and the ground truth of its objects."""

    image: InputImage
    boxes: Path | None = None  # VOC annotation
    mask: Path | None = None  # foreground above 0

    @property
    def file_name(self) -> str:
        """Name of the image file."""
        return self.image.file_name

    @property
    def files(self) -> list[Path]:
        """Return the files of the sample."""
        return [file for file in (self.image.file, self.boxes, self.mask) if file is not None]


class Objects(NamedTuple):
    """The objects of one image, in its pixels, by one method."""

    masks: list[Mask]
    confidences: list[float]
    soft: NDArray[np.float32]  # their union in [0, 1], for maxF: [height, width]

    @property
    def box(self) -> Box | None:
        """The box of the first object."""
        return bounding_box(self.masks[0]) if self.masks else None

    @property
    def union(self) -> Mask:
        """Unite the objects to one mask: [height, width]."""
        return np.any(self.masks, axis=0) if self.masks else np.zeros(self.soft.shape, dtype=bool)


@dataclass(frozen=True)
class Discover(ModelOptions, OutputOptions):
    """Objects without labels or training: LOST, TokenCut, MaskCut, with one pass of the model.

    Writes contact_sheet.png, masks/METHOD/NAME.png (labels 1, 2, …), overlays/METHOD/NAME.jpg, METHOD.json
    with METHOD_images.json (COCO run lengths, boxes and confidences) and per_image.csv. Scores are CorLoc
    (first object) with --dataset, and maxF, IoU and accuracy (union of the objects) with --masks.
    """

    inputs: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Images: files, folders, tars, lists of paths, or glob patterns."""
    masks: Path | None = None
    """Folder of true masks with the names of the images, .png, foreground above 0."""
    dataset: Literal["voc07", "voc12"] | None = None
    """Instead of inputs: trainval of VOC 2007 or 2012 in --root, with its boxes."""
    root: Path = Path("VOCdevkit")
    """Folder VOCdevkit, for --dataset."""
    methods: tuple[Method, ...] = ("lost", "tokencut", "maskcut")
    """Methods to run; attention is the baseline: the kept mass of one attention head (see --head)."""
    features: Literal["keys", "tokens"] = "keys"
    """Keys of the last block, as published, or its tokens after the final norm."""
    resize: Resize | None = None
    """How an image is resized for the model: own size, padded to whole patches (pad: published for boxes, the
    default with --dataset) or rounded to them (native: published for masks, the default with --masks); or
    short-side (the default otherwise), or squash."""
    count: int = 3
    """Largest number of objects of MaskCut."""
    head: int = 4
    """Attention head of the baseline; its mask keeps 60 % of the mass."""
    min_confidence: float = -1.0
    """Leave out objects with a lower confidence: 1 is cut off completely, 0 as if cut at random."""
    refine: bool = False
    """Align the edges of masks with those of the image (guided filter)."""
    output: Path = field(default=Path("output/discover"), kw_only=True)
    """Folder for the results. It is created if missing."""
    json: Path | None = None
    """File for the scores and their protocol."""

    def run(self) -> None:
        """Compute and write one image after the other, then score and print."""
        make_room(self.json)
        samples = self._samples()
        self.check_output()
        resize = self.resize or ("pad" if self.dataset else "native" if self.masks else "short-side")
        predictor = self.predictor("native" if resize == "pad" else resize)
        if "attention" in self.methods:
            common.check_head(self.head, predictor)
        protocol = self._protocol(resize, predictor)
        output = self.open_output({**protocol, "weights": common.model_settings(predictor)["weights"]})

        def read(sample: Sample) -> ImageArray:
            return common.check_patches(sample.image.read(), predictor)

        skipped = SkippedInputs()
        todo = [sample for sample in samples if not output.has(sample.image.name, sample.files)]
        for sample, image in common.read_ahead(todo, read, skipped, "discover"):
            set_image = discovery.set_padded if resize == "pad" else discovery.set_resized
            placement = set_image(predictor, image)
            features = discovery.image_features(predictor, self.features)
            grids = {
                method: discovery.with_confidence(
                    [discovery.attention_object(predictor.cls_attention()[self.head])], features
                )
                if method == "attention"
                else discovery.find(method, features, self.count)
                for method in self.methods
            }
            found = {method: self._objects(grid, image, placement) for method, grid in grids.items()}
            _finish_image(output, sample, image, found)
        finished = [sample for sample in samples if sample.image.name in output.finished]
        if not finished:
            skipped.check(len(samples))
        self._finish(finished, output, protocol)
        output.finish()
        skipped.check(len(samples))

    def _finish(self, samples: list[Sample], output: OutputFolder, protocol: dict[str, Any]) -> None:
        """Write what needs all images: scores, tables, COCO files, contact sheet."""
        rows = [
            {"image": sample.image.name, "method": method, **scores}
            for sample in samples
            for method, scores in output.finished[sample.image.name]["scored"].items()
        ]
        scores = {
            method: discovery.summary([row for row in rows if row["method"] == method])
            for method in self.methods
        }
        columns = [column for column in rows[0] if not column.startswith("f_")]
        common.write_csv(output.path("per_image.csv"), columns, rows)
        for method in self.methods:
            files = output.path(f"{method}.json"), output.path(f"{method}_images.json")
            with coco_writer(*files, {1: "object"}) as writer:
                for sample in samples:
                    record = output.finished[sample.image.name]
                    found = zip(record["masks"][method], record["confidences"][method], strict=True)
                    masks = ((1, decode(mask), confidence) for mask, confidence in found)
                    writer.add(sample.file_name, record["size"], masks)
        drawing.save_image(output.path("contact_sheet.png"), _contact_sheet(output, samples, self.methods))
        print(_report(protocol, scores, self.dataset, len(samples)))
        empty = [
            f"{method} {sum(not row['objects'] for row in rows if row['method'] == method)}"
            for method in self.methods
        ]
        print(f"images without an object: {', '.join(empty)}")
        print(f"written to {self.output}")
        if self.json:
            write_json(self.json, {"protocol": protocol, "scores": scores, "images": len(samples)})

    def _samples(self) -> list[Sample]:
        if not self.methods:
            raise ValueError("--methods names none; choose among lost, tokencut, maskcut and attention")
        if self.count < 1:
            raise ValueError(f"--count is {self.count}; expected at least 1")
        if not -1 <= self.min_confidence <= 1:
            raise ValueError(f"--min-confidence is {self.min_confidence}; expected -1 to 1")
        if bool(self.inputs) == bool(self.dataset):
            raise ValueError("pass images, or --dataset voc07 or voc12: one of the two")
        if self.dataset:
            folder = datasets.find_voc(self.root, 2000 + int(self.dataset[-2:]))
            names = datasets.read_names(folder / "ImageSets" / "Main" / "trainval.txt")
            files = {name: folder / "JPEGImages" / f"{name}.jpg" for name in names}
            samples = [
                Sample(common.image_file(file), boxes=folder / "Annotations" / f"{name}.xml")
                for name, file in files.items()
            ]
        else:
            samples = [
                Sample(image, mask=self.masks and self.masks / Path(image.file_name).with_suffix(".png"))
                for image in common.open_inputs(self.inputs)
            ]
        for sample in samples:
            for path in sample.files:
                if not path.is_file():
                    raise FileNotFoundError(
                        f"{path} is missing, though the data set lists {sample.file_name}"
                    )
        return samples

    def _objects(
        self, found: list[discovery.Discovery], image: ImageArray, placement: discovery.Placement
    ) -> Objects:
        """Bring objects from the patch grid to the image, with --refine along its edges."""
        found = [each for each in found if each.confidence >= self.min_confidence]
        masks = [placement.mask(each.mask) for each in found]
        confidences = [each.confidence for each in found]
        if self.refine and masks:
            radius = max(1, placement.covered[0] // found[0].mask.shape[0])
            return _refine(masks, confidences, image, radius)
        union = np.any(masks, axis=0) if masks else np.zeros(image.shape[:2], dtype=bool)
        return Objects(masks, confidences, union.astype(np.float32))

    def _protocol(self, resize: str, predictor: "AttentionPredictor") -> dict[str, Any]:
        """Describe the settings that decide the scores."""
        return {
            "data": self.dataset or "images",
            "model": self.model,
            "precision": predictor.precision,
            "features": self.features,
            "resize": resize if resize in ("pad", "native") else f"{resize} {self.size}",
            "methods": ", ".join(self.methods),
            "count": self.count,
            "head": self.head,
            "min_confidence": self.min_confidence,
            "edges": "guided filter" if self.refine else "patches",
        }


def _refine(masks: list[Mask], confidences: list[float], image: ImageArray, radius: int) -> Objects:
    """Align masks with the edges of the image; keep the largest part of each, or the mask if it vanishes."""
    softs = discovery.refine_edges(np.stack(masks), image, radius)
    sharp = [components(soft > 0.5) == 1 for soft in softs]
    kept = [new if new.any() else old for new, old in zip(sharp, masks, strict=True)]
    return Objects(kept, confidences, softs.max(axis=0))


def _finish_image(
    output: OutputFolder, sample: Sample, image: ImageArray, found: dict[Method, Objects]
) -> None:
    """Write masks and overlays of one image and record size, masks as run lengths, and scores."""
    files, scored = [], {}
    for method, objects in found.items():
        labels = np.zeros(image.shape[:2], dtype=np.uint8)
        for label, mask in reversed(list(enumerate(objects.masks, start=1))):  # the first object on top
            labels[mask] = label
        scored[method] = _score(sample, objects)
        files += [
            output.path("masks", method, f"{sample.image.name}.png"),
            output.path("overlays", method, f"{sample.image.name}.jpg"),
        ]
        write_mask_png(files[-2], labels)
        title = f"{method}: {_score_text(scored[method])}"
        drawing.save_image(files[-1], drawing.caption(_draw(image, objects.masks), title))
    masks = {method: [rle(mask) for mask in objects.masks] for method, objects in found.items()}
    confidences = {method: objects.confidences for method, objects in found.items()}
    record = {"size": image.shape[:2], "masks": masks, "confidences": confidences, "scored": scored}
    output.add(sample.image.name, record, inputs=sample.files, files=files)


def _score(sample: Sample, objects: Objects) -> dict[str, Any]:
    """Score the objects of one image against its ground truth, as JSON types."""
    scores: dict[str, Any] = {
        "objects": len(objects.masks),
        "confidence": max(objects.confidences, default=None),
    }
    if sample.boxes:
        scores["localized"] = discovery.localized(objects.box, datasets.read_voc_boxes(sample.boxes))
    if sample.mask:
        truth = read_labels(sample.mask) > 0
        if truth.shape != objects.soft.shape:
            raise ValueError(
                f"{sample.mask} is {truth.shape}, its image {objects.soft.shape} (height, width)"
            )
        scores["iou"] = float(jaccard(objects.union, truth))
        scores["accuracy"] = float((objects.union == truth).mean())
        scores["f_tokencut"] = discovery.f_curve(objects.soft, truth, "tokencut").tolist()
        scores["f_found"] = discovery.f_curve(objects.soft, truth, "found").tolist()
    return scores


def _report(
    protocol: dict[str, Any], scores: dict[Method, dict[str, float]], dataset: str | None, count: int
) -> str:
    """Format the scores as text."""
    lines = ["protocol  " + ", ".join(f"{key} {value}" for key, value in protocol.items())]
    names = list(next(iter(scores.values())))
    published = discovery.PUBLISHED_CORLOC.get(dataset or "", {})
    counted = _count_text(count, "image")
    lines.append(f"{counted:<18}" + "".join(f"{name.replace('_', ' '):>22}" for name in names))
    for method, row in scores.items():
        paper = f"   published CorLoc, DINO ViT-S/16: {published[method]}" if method in published else ""
        lines.append(f"{method:<18}" + "".join(f"{row[name]:>22.1f}" for name in names) + paper)
    return "\n".join(lines)


def _contact_sheet(output: OutputFolder, samples: list[Sample], methods: Sequence[Method]) -> ImageArray:
    """Show some images at even distances, and their objects by every method."""
    rows = []
    for sample in common.choose_evenly(samples):
        name = sample.image.name
        overlays = [
            ("", images.read(output.folder / "overlays" / method / f"{name}.jpg")) for method in methods
        ]
        rows.append([(name, sample.image.read()), *overlays])
    return drawing.contact_sheet(rows, height=200)


def _draw(image: ImageArray, masks: list[Mask]) -> ImageArray:
    """Tint the objects, draw their boxes, and name them in a legend."""
    if not masks:
        return image
    tinted = drawing.overlay_masks(image, np.stack(masks))
    boxed = drawing.draw_boxes(tinted, [bounding_box(mask) for mask in masks])
    names = [f"object {number}" for number in range(1, len(masks) + 1)]
    return drawing.with_legend(boxed, list(zip(names, drawing.head_colors(len(masks)), strict=True)))


def _count_text(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' * (count != 1)}"


def _score_text(scores: dict[str, Any]) -> str:
    """Format the scores of one image for its title."""
    parts = [_count_text(scores["objects"], "object")]
    if "localized" in scores:
        parts.append(f"box {'right' if scores['localized'] else 'wrong'}")
    named = {"iou": "IoU", "accuracy": "accuracy"}
    parts += [f"{name} {100 * scores[key]:.1f}" for key, name in named.items() if key in scores]
    return ", ".join(parts)
