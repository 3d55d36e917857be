"""`python -m segmentation discover`: objects without labels, in images and in scored data sets."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import tyro
from numpy.typing import NDArray

from dino_model.files import make_room, write_json
from dino_model.options import ModelOptions
from dino_model.outputs import OutputFolder, OutputOptions, SkippedInputs
from segmentation import coco, datasets, discovery, drawing
from segmentation.commands.common import (
    InputImage,
    check_head,
    model_settings,
    open_inputs,
    read_images,
    write_csv,
)
from segmentation.discovery import Method
from segmentation.labels import read_labels, write_mask_png
from segmentation.masks import Box, ImageArray, Mask, RunLengths, bounding_box, components, decode, rle
from segmentation.metrics import jaccard

if TYPE_CHECKING:
    from dino_model.predictor import AttentionPredictor

Resize = Literal["pad", "native", "short-side", "squash"]

_SHEET = 24  # images on the contact sheet


class Sample(NamedTuple):
    """An image, and the ground truth of its objects."""

    image: InputImage
    boxes: Path | None = None  # VOC annotation
    mask: Path | None = None  # foreground above 0

    @property
    def files(self) -> list[Path]:
        """All files of the sample."""
        return [file for file in (self.image.file, self.boxes, self.mask) if file is not None]


class Objects(NamedTuple):
    """The objects of one image, in its pixels, by one method."""

    masks: list[Mask]
    soft: NDArray[np.float32]  # their union in [0, 1], for maxF: [height, width]

    @property
    def box(self) -> Box | None:
        """The box of the first object."""
        return bounding_box(self.masks[0]) if self.masks else None

    @property
    def union(self) -> Mask:
        """All objects as one mask: [height, width]."""
        return np.any(self.masks, axis=0) if self.masks else np.zeros(self.soft.shape, dtype=bool)


@dataclass(frozen=True)
class Discover(ModelOptions, OutputOptions):
    """Objects without labels or training: LOST, TokenCut, MaskCut, with one pass of the model.

    Writes contact_sheet.png, masks/METHOD/NAME.png (labels 1, 2, …), METHOD.json with images.json (COCO run
    lengths and boxes), for data sets per_image.csv, for images (and data sets with --overlays)
    overlays/METHOD/NAME.png. Scores are CorLoc (first object) where the data set has boxes, and maxF, IoU and
    accuracy (union of the objects) where it has masks.
    """

    inputs: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Images: files, folders, tars, lists of paths, or glob patterns."""
    dataset: str | None = None
    """Instead of inputs: voc07 or voc12 (trainval, see --root), or a folder of images."""
    root: Path = Path("VOCdevkit")
    """Folder VOCdevkit, for voc07 and voc12."""
    masks: Path | None = None
    """Folder of masks with the names of the data set's images, .png, foreground above 0; not needed for a
    folder that holds the folders images and masks."""
    methods: tuple[Method, ...] = ("lost", "tokencut", "maskcut")
    """Methods to run; attention is the baseline: the kept mass of one attention head (see --head)."""
    features: Literal["keys", "tokens"] = "keys"
    """Keys of the last block, as published, or its tokens after the final norm."""
    resize: Resize | None = None
    """How an image is resized for the model: own size, padded to whole patches (pad: published for boxes, the
    default for voc07 and voc12) or rounded to them (native: published for masks, the default for folders with
    masks); or short-side (the default otherwise), or squash."""
    tau: float = 0.2
    """Cosine similarity above which TokenCut connects two patches."""
    tau_maskcut: float = 0.15
    """The same for MaskCut."""
    count: int = 3
    """Largest number of objects of MaskCut."""
    candidates: int = 100
    """Patches that may join the seed of LOST."""
    head: int = 4
    """Attention head of the baseline; its mask keeps 60 % of the mass."""
    refine: bool = False
    """Align the edges of masks with those of the image (guided filter)."""
    overlays: bool = False
    """Draw every image of a data set too: objects with their boxes, names and scores."""
    output: Path = field(default=Path("output/discover"), kw_only=True)
    """Folder for the results. It is created if missing."""
    json: Path | None = None
    """File for the scores and their protocol."""
    cache: Path | None = None
    """Folder that keeps features, so that other methods and settings need no model."""

    def run(self) -> None:
        """Compute and write one image after the other, then score and print."""
        make_room(self.json)
        method_settings = discovery.Settings(
            candidates=self.candidates, tau=self.tau, tau_maskcut=self.tau_maskcut, count=self.count
        )
        samples = self._samples()
        self.check_output()
        resize = self.resize or _published_resize(self.dataset, samples)
        predictor = self.predictor("native" if resize == "pad" else resize)
        if "attention" in self.methods:
            check_head(self.head, predictor)
        protocol = self._protocol(resize, predictor)
        output = self.open_output({**protocol, "weights": model_settings(predictor)["weights"]})
        skipped = SkippedInputs()
        todo = {
            sample.image.name: sample for sample in samples if not output.has(sample.image.name, sample.files)
        }
        unfinished = [sample.image for sample in todo.values()]
        for item, image in read_images(unfinished, skipped, predictor, "discover"):
            encoded = _Encoded(
                predictor, image, resize == "pad", self.features, self.cache, output.settings["weights"]
            )
            found = dict(self._find(encoded, method_settings))
            scored = {method: _score(todo[item.name], objects) for method, objects in found.items()}
            _finish_image(output, todo[item.name], image, found, scored)
        finished = [sample for sample in samples if sample.image.name in output.finished]
        if not finished:
            skipped.check(len(samples))
        self._finish(finished, output, protocol)
        output.finish()
        skipped.check(len(samples))

    def _finish(self, samples: list[Sample], output: OutputFolder, protocol: dict[str, Any]) -> None:
        """Write what needs all images: overlays, scores, tables, contact sheet."""
        records: dict[str, dict[str, Any]] = {
            sample.image.name: output.finished[sample.image.name] for sample in samples
        }
        if self.overlays or self.inputs:
            for sample in samples:
                _write_overlays(output, sample, records[sample.image.name])
        rows = [
            {"image": name, "method": method, **record["scored"][method]}
            for name, record in records.items()
            for method in self.methods
        ]
        scores: dict[str, dict[str, float]] = {
            method: _summary([row for row in rows if row["method"] == method]) for method in self.methods
        }
        _write_results(output, samples, records, self.methods)
        if self.dataset:
            columns = [column for column in rows[0] if not column.startswith("f_")]
            write_csv(output.path("per_image.csv"), columns, rows)
        print(_report(protocol, scores, self.dataset, len(samples)))
        print(f"written to {self.output}")
        if self.json:
            write_json(self.json, {"protocol": protocol, "scores": scores, "images": len(samples)})

    def _samples(self) -> list[Sample]:
        if not self.methods:
            raise ValueError("--methods names none; choose among lost, tokencut, maskcut and attention")
        if bool(self.inputs) == bool(self.dataset):
            raise ValueError("pass images, or --dataset voc07, voc12 or a folder: one of the two")
        if self.dataset in ("voc07", "voc12"):
            return _voc_samples(self.root, 2000 + int(self.dataset[-2:]))
        if self.dataset:
            return _folder_samples(Path(self.dataset), self.masks)
        return [Sample(image) for image in open_inputs(self.inputs)]

    def _find(self, encoded: "_Encoded", settings: discovery.Settings) -> Iterator[tuple[str, Objects]]:
        """Run every method on one image; the model encodes it once, or not at all if all is cached."""
        image, placement = encoded.image, encoded.placement
        for method in self.methods:
            if method == "attention":
                objects = [discovery.attention_object(encoded.attention[self.head])]
            else:
                objects = discovery.find(method, encoded.features, settings)
            masks = [placement.mask(each.mask) for each in objects]
            if self.refine and masks:
                radius = max(1, placement.covered[0] // objects[0].mask.shape[0])
                yield method, _refine(masks, image, radius)
            else:
                union = np.any(masks, axis=0) if masks else np.zeros(image.shape[:2], dtype=bool)
                yield method, Objects(masks, union.astype(np.float32))

    def _protocol(self, resize: str, predictor: "AttentionPredictor") -> dict[str, Any]:
        """Everything that decides the scores."""
        return {
            "data": self.dataset or "images",
            "model": self.model,
            "precision": predictor.precision,
            "features": self.features,
            "resize": resize if resize in ("pad", "native") else f"{resize} {self.size}",
            "methods": ", ".join(self.methods),
            "candidates": self.candidates,
            "tau": self.tau,
            "tau_maskcut": self.tau_maskcut,
            "count": self.count,
            "head": self.head,
            "edges": "guided filter" if self.refine else "patches",
        }


class _Encoded:
    """Features of one image: computed when they are needed, read from the cache if they are there."""

    def __init__(
        self,
        predictor: "AttentionPredictor",
        image: ImageArray,
        padded: bool,
        kind: Literal["keys", "tokens"],
        cache: Path | None,
        weights: str,
    ) -> None:
        self.image = image
        size = (image.shape[0], image.shape[1])
        self.placement = discovery.placement(size, predictor.patch_size, padded=padded)
        self._predictor, self._padded, self._kind = predictor, padded, kind
        self._cache, self._weights = cache, weights

    @cached_property
    def features(self) -> discovery.Features:
        """Features of the patches: float32 [rows, columns, D]."""
        return self._cached(self._kind, partial(discovery.image_features, self._predictor, self._kind))

    @cached_property
    def attention(self) -> NDArray[np.float32]:
        """[CLS] attention: [heads, rows, columns]."""
        return self._cached("attention", self._predictor.cls_attention)

    def _cached(self, what: str, compute: Callable[[], NDArray[np.float32]]) -> NDArray[np.float32]:
        from dino_model.feature_cache import image_features

        predictor = self._predictor

        def encode() -> NDArray[np.float32]:
            set_image = discovery.set_padded if self._padded else discovery.set_resized
            set_image(predictor, self.image)
            return compute()

        return image_features(
            self._cache,
            encode,
            self.image,
            feature=f"{what} of the last block",
            weights=self._weights,
            view=f"{'padded' if self._padded else predictor.resize} {predictor.size}",
            computed=predictor.computed,
        )


def _published_resize(dataset: str | None, samples: list[Sample]) -> Resize:
    if dataset in ("voc07", "voc12"):
        return "pad"
    return "native" if samples[0].mask else "short-side"


def _voc_samples(root: Path, year: int) -> list[Sample]:
    folder = datasets.find_voc(root, year)
    names = datasets.list_voc_names(folder, "trainval", "Main")
    samples = [
        Sample(
            InputImage(f"{name}.jpg", name, folder / "JPEGImages" / f"{name}.jpg"),
            boxes=folder / "Annotations" / f"{name}.xml",
        )
        for name in names
    ]
    _check_files(samples)
    return samples


def _folder_samples(folder: Path, masks: Path | None) -> list[Sample]:
    if not folder.is_dir():
        raise FileNotFoundError(
            f"--dataset is {folder}; expected voc07, voc12 or an existing folder of images"
        )
    if masks is None and (folder / "images").is_dir() and (folder / "masks").is_dir():
        folder, masks = folder / "images", folder / "masks"
    found = open_inputs([folder])
    print(f"{len(found):,} images of {folder}", flush=True)
    samples = [
        Sample(image, mask=masks / Path(image.file_name).with_suffix(".png") if masks else None)
        for image in found
    ]
    _check_files(samples)
    return samples


def _check_files(samples: list[Sample]) -> None:
    for sample in samples:
        for path in sample.files:
            if not path.is_file():
                raise FileNotFoundError(f"{path} is missing, though the data set lists {sample.image.name}")


def _refine(masks: list[Mask], image: ImageArray, radius: int) -> Objects:
    """Align masks with the edges of the image; keep the largest part of each, or the mask if it vanishes."""
    softs = [discovery.refine_edges(mask, image, radius) for mask in masks]
    sharp = [components(soft > 0.5) == 1 for soft in softs]
    kept = [new if new.any() else old for new, old in zip(sharp, masks, strict=True)]
    return Objects(kept, np.max(softs, axis=0))


def _finish_image(
    output: OutputFolder,
    sample: Sample,
    image: ImageArray,
    found: dict[str, Objects],
    scored: dict[str, dict[str, Any]],
) -> None:
    """Write the masks of one image and record size, masks as run lengths, and scores."""
    files = []
    for method, objects in found.items():
        labels = np.zeros(image.shape[:2], dtype=np.uint8)
        for label, mask in reversed(list(enumerate(objects.masks, start=1))):  # the first object on top
            labels[mask] = label
        files.append(output.path("masks", method, f"{sample.image.name}.png"))
        write_mask_png(files[-1], labels)
        (output.folder / "overlays" / method / f"{sample.image.name}.png").unlink(missing_ok=True)
    record = {
        "size": image.shape[:2],
        "masks": {method: [rle(mask) for mask in objects.masks] for method, objects in found.items()},
        "scored": {
            method: {
                name: value.tolist() if isinstance(value, np.ndarray) else value
                for name, value in scores.items()
            }
            for method, scores in scored.items()
        },
    }
    output.add(sample.image.name, record, inputs=sample.files, files=files)


def _write_overlays(output: OutputFolder, sample: Sample, record: dict[str, Any]) -> None:
    """Draw the objects of every method over one image, unless an interrupted run did."""
    files = {
        method: output.path("overlays", method, f"{sample.image.name}.png") for method in record["masks"]
    }
    missing = {method: file for method, file in files.items() if not file.exists()}
    image = sample.image.read() if missing else None
    for method, file in missing.items():
        if image is not None:
            masks = [decode(mask) for mask in record["masks"][method]]
            drawn = _with_objects(_draw(image, masks), len(masks))
            title = f"{method}: {_score_text(record['scored'][method])}"
            drawing.save_png(file, drawing.caption(drawn, title))


def _score(sample: Sample, objects: Objects) -> dict[str, Any]:
    """Score the objects of one image against its ground truth."""
    scores: dict[str, Any] = {"objects": len(objects.masks)}
    if sample.boxes:
        scores["localized"] = discovery.localized(objects.box, datasets.read_voc_boxes(sample.boxes))
    if sample.mask:
        truth = read_labels(sample.mask) > 0
        if truth.shape != objects.soft.shape:
            raise ValueError(
                f"{sample.mask} is {truth.shape}, its image {objects.soft.shape} (height, width)"
            )
        scores["iou"] = float(jaccard(objects.union, truth))
        scores["accuracy"] = discovery.accuracy(objects.union, truth)
        scores["f_tokencut"] = discovery.f_curve(objects.soft, truth, "tokencut")
        scores["f_found"] = discovery.f_curve(objects.soft, truth, "found")
    return scores


def _summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Average the scores of one method over all images, in percent."""
    summary: dict[str, float] = {}
    for key, name in (("localized", "corloc"), ("iou", "iou"), ("accuracy", "accuracy")):
        if key in rows[0]:
            summary[name] = 100 * float(np.mean([row[key] for row in rows]))
    if "f_found" in rows[0]:
        for convention in ("tokencut", "found"):
            curves = np.stack([row[f"f_{convention}"] for row in rows])
            summary[f"max_f_{convention}"] = 100 * discovery.max_f(curves, convention)
    summary["objects_per_image"] = float(np.mean([row["objects"] for row in rows]))
    return summary


def _report(
    protocol: dict[str, Any], scores: dict[str, dict[str, float]], dataset: str | None, count: int
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


def _write_results(
    output: OutputFolder,
    samples: list[Sample],
    records: dict[str, dict[str, Any]],
    methods: tuple[Method, ...],
) -> None:
    """Write COCO files of all images, and a contact sheet of some at even distances."""
    listed = {
        number: (sample.image.file_name, tuple(records[sample.image.name]["size"]))
        for number, sample in enumerate(samples, start=1)
    }
    for method in methods:
        detections = [
            coco.coco_record(number, 1, decode(mask))
            for number, sample in enumerate(samples, start=1)
            for mask in records[sample.image.name]["masks"][method]
        ]
        coco.write_coco_results(output.path(f"{method}.json"), detections)
    coco.write_coco_images(output.path("images.json"), listed, {1: "object"})
    chosen = samples[:: max(1, -(-len(samples) // _SHEET))]
    cells = [_cells(sample, records[sample.image.name]["masks"]) for sample in chosen]
    most = max(len(masks) for sample in chosen for masks in records[sample.image.name]["masks"].values())
    sheet = _with_objects(drawing.contact_sheet(cells, height=180), most)
    drawing.save_png(output.path("contact_sheet.png"), sheet)


def _cells(sample: Sample, found: dict[str, list[RunLengths]]) -> list[tuple[str, ImageArray]]:
    """Draw a row of the contact sheet: the image, and the objects of every method."""
    image = sample.image.read()
    drawn = [
        (f"{method}: {_count_text(len(masks), 'object')}", _draw(image, [decode(mask) for mask in masks]))
        for method, masks in found.items()
    ]
    return [(sample.image.name, image), *drawn]


def _draw(image: ImageArray, masks: list[Mask]) -> ImageArray:
    if not masks:
        return image
    tinted = drawing.overlay_masks(image, np.stack(masks))
    return drawing.draw_boxes(tinted, [bounding_box(mask) for mask in masks])


def _with_objects(drawn: ImageArray, objects: int) -> ImageArray:
    """Append a legend of the objects, if there are any."""
    names = [f"object {number}" for number in range(1, objects + 1)]
    entries = list(zip(names, drawing.head_colors(objects), strict=True))
    return drawing.with_legend(drawn, entries) if entries else drawn


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
