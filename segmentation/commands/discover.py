"""`python -m segmentation discover`: objects without labels, in photographs and in scored data sets."""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import tyro
from numpy.typing import NDArray

from dino_model import images
from dino_model.device import choose_device, choose_precision
from dino_model.files import make_room
from dino_model.predictor import AttentionPredictor
from segmentation import discovery, export, render, voc
from segmentation.commands.progress import progress
from segmentation.discovery import Discovery
from segmentation.labels import read_labels
from segmentation.masks import Box, Mask, bounding_box, components
from segmentation.metrics import jaccard
from segmentation.render import Picture

Method = Literal["lost", "tokencut", "several", "attention"]
Resize = Literal["pad", "native", "short-side", "squash"]

_SHEET = 24  # pictures on the contact sheet


class Sample(NamedTuple):
    """A picture, and what is known about its objects."""

    name: str  # of what is written about it
    picture: Path
    boxes: Path | None = None  # VOC annotation
    mask: Path | None = None  # foreground above 0


class Found(NamedTuple):
    """The objects of one picture, in its pixels, by one method."""

    masks: list[Mask]
    soft: NDArray[np.float32]  # all of them as one, in [0, 1], for maxF: [height, width]

    @property
    def box(self) -> Box | None:
        """The box of the first object."""
        return bounding_box(self.masks[0]) if self.masks else None

    @property
    def whole(self) -> Mask:
        """All objects as one: [height, width]."""
        return np.any(self.masks, axis=0) if self.masks else np.zeros(self.soft.shape, dtype=bool)


@dataclass(frozen=True)
class Discover:
    """Objects without labels or training: LOST, TokenCut and several objects, from the features of one pass.

    Writes contact_sheet.png, masks/METHOD/NAME.png (labels 1, 2, …), METHOD.json with images.json (COCO run
    lengths and boxes), for data sets per_image.csv, for photographs (and data sets with --overlays)
    overlays/METHOD/NAME.png. Scores are CorLoc (first object) where the data set has boxes, and maxF, IoU and
    accuracy (all objects as one) where it has masks.
    """

    photos: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Photographs."""
    dataset: str | None = None
    """Instead of photographs: voc07 or voc12 (trainval, see --root), or a folder of pictures."""
    root: Path = Path("VOCdevkit")
    """Folder VOCdevkit, for voc07 and voc12."""
    masks: Path | None = None
    """Folder of masks with the names of the data set's pictures, .png, foreground above 0; not needed for a
    folder that holds the folders images and masks."""
    methods: tuple[Method, ...] = ("lost", "tokencut", "several")
    """What to run; attention is the baseline of one head's kept mass (see --head)."""
    model: str = "embedded"
    """Name of a model, checkpoint file or run; `python -m dino_model list` tells the names."""
    features: Literal["keys", "tokens"] = "keys"
    """Keys of the last block, as published, or its tokens after the final norm."""
    resize: Resize | None = None
    """How a picture is brought to the model: at its own size, padded to whole patches (pad: published for
    boxes, the default for voc07 and voc12) or rounded to them (native: published for masks, the default for
    folders with masks), or resized (short-side: the default otherwise; squash)."""
    size: int = 480
    """Pixels of the short side with short-side, of both with squash."""
    tau: float = 0.2
    """Cosine similarity above which TokenCut joins two patches."""
    tau_several: float = 0.15
    """The same for several objects."""
    count: int = 3
    """The most objects that several looks for."""
    candidates: int = 100
    """Patches that may join the seed of LOST."""
    head: int = 4
    """Head of the attention baseline; its mask keeps 60 % of the mass."""
    refine: bool = False
    """Let the edges of masks follow those of the picture (guided filter)."""
    overlays: bool = False
    """Draw every picture of a data set too: objects with their boxes, names and scores."""
    output: Path = Path("output/discover")
    """Folder to write to; made if missing."""
    json: Path | None = None
    """File for the figures and their protocol."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the model."""
    device: str = "auto"
    """Where the model runs: auto, cpu, cuda or mps."""

    def run(self) -> None:
        """Find, score, write."""
        make_room(self.json)
        samples = self._samples()
        resize = self.resize or _published_resize(self.dataset, samples)
        predictor = AttentionPredictor(
            self.model,
            size=self.size,
            resize="native" if resize == "pad" else resize,
            precision=self.precision,
            device=self.device,
        )
        overlays = self.overlays or bool(self.photos)
        writer = _Writer(self.output, self.methods, overlays=overlays, expected=len(samples))
        rows: list[dict[str, Any]] = []
        for sample in progress(samples, "discover"):
            picture = images.read(sample.picture, name=str(sample.picture))
            found = dict(self._find(predictor, picture, resize))
            scored = {method: _score(sample, one) for method, one in found.items()}
            rows += [{"image": sample.name, "method": method, **row} for method, row in scored.items()]
            writer.add(sample, picture, found, scored)
        protocol = self._protocol(resize)
        scores: dict[str, dict[str, float]] = {
            method: _summary([row for row in rows if row["method"] == method]) for method in self.methods
        }
        writer.finish(_csv(rows) if self.dataset else None)
        print(_report(protocol, scores, self.dataset, len(samples)))
        print(f"written to {self.output}")
        if self.json:
            export.write_json(self.json, {"protocol": protocol, "scores": scores, "pictures": len(samples)})

    def _samples(self) -> list[Sample]:
        if not self.methods:
            raise ValueError("--methods names none; choose among lost, tokencut, several and attention")
        if bool(self.photos) == bool(self.dataset):
            raise ValueError("name photographs, or --dataset voc07, voc12 or a folder: one of the two")
        if self.dataset in ("voc07", "voc12"):
            return _voc_samples(self.root, 2000 + int(self.dataset[-2:]))
        if self.dataset:
            return _folder_samples(Path(self.dataset), self.masks)
        stems = Counter(photo.stem for photo in self.photos)
        return [Sample(photo.stem if stems[photo.stem] == 1 else photo.name, photo) for photo in self.photos]

    def _find(
        self, predictor: AttentionPredictor, picture: Picture, resize: str
    ) -> Iterator[tuple[str, Found]]:
        """Every method on one picture; the model sees it once."""
        place = discovery.set_padded if resize == "pad" else discovery.set_resized
        placement = place(predictor, picture)
        features = discovery.picture_features(predictor, self.features)
        for method in self.methods:
            objects = self._objects(method, features, predictor)
            masks = [placement.mask(one.mask) for one in objects if one.mask.any()]
            radius = max(1, placement.covered[0] // features.shape[0])
            yield method, _refined(masks, picture, radius) if self.refine else _found(masks, picture)

    def _objects(
        self, method: Method, features: discovery.Features, predictor: AttentionPredictor
    ) -> list[Discovery]:
        match method:
            case "lost":
                return [discovery.lost(features, self.candidates)]
            case "tokencut":
                return [discovery.tokencut(features, self.tau)]
            case "several":
                return discovery.several(features, self.count, self.tau_several)
            case "attention":
                if not 0 <= self.head < predictor.heads:
                    raise ValueError(
                        f"--head is {self.head}; this model has heads 0 to {predictor.heads - 1}"
                    )
                return [discovery.attention_object(predictor.cls_attention()[self.head])]

    def _protocol(self, resize: str) -> dict[str, Any]:
        """Everything that decides about the figures."""
        return {
            "data": self.dataset or "photographs",
            "model": self.model,
            "precision": choose_precision(self.precision, choose_device(self.device)),
            "features": self.features,
            "resize": resize if resize in ("pad", "native") else f"{resize} {self.size}",
            "candidates": self.candidates,
            "tau": self.tau,
            "tau_several": self.tau_several,
            "count": self.count,
            "head": self.head,
            "edges": "guided filter" if self.refine else "patches",
        }


def _published_resize(dataset: str | None, samples: list[Sample]) -> Resize:
    if dataset in ("voc07", "voc12"):
        return "pad"
    return "native" if samples[0].mask else "short-side"


def _voc_samples(root: Path, year: int) -> list[Sample]:
    folder = voc.find_year(root, year)
    samples = [
        Sample(name, folder / "JPEGImages" / f"{name}.jpg", boxes=folder / "Annotations" / f"{name}.xml")
        for name in voc.list_names(folder, "trainval", "Main")
    ]
    _check_files(samples)
    return samples


def _folder_samples(folder: Path, masks: Path | None) -> list[Sample]:
    if not folder.is_dir():
        raise FileNotFoundError(
            f"--dataset is {folder}; expected voc07, voc12 or an existing folder of pictures"
        )
    if masks is None and (folder / "images").is_dir() and (folder / "masks").is_dir():
        folder, masks = folder / "images", folder / "masks"
    listed = images.open_images(folder)
    samples = [
        Sample(
            Path(name).with_suffix("").as_posix(),
            folder / name,
            mask=masks / Path(name).with_suffix(".png") if masks else None,
        )
        for name in listed.names
    ]
    _check_files(samples)
    return samples


def _check_files(samples: list[Sample]) -> None:
    for sample in samples:
        for path in (sample.picture, sample.boxes, sample.mask):
            if path is not None and not path.is_file():
                raise FileNotFoundError(f"{path} is missing, though the data set lists {sample.name}")


def _found(masks: list[Mask], picture: Picture) -> Found:
    union = np.any(masks, axis=0) if masks else np.zeros(picture.shape[:2], dtype=bool)
    return Found(masks, union.astype(np.float32))


def _refined(masks: list[Mask], picture: Picture, radius: int) -> Found:
    """Masks with edges of the picture, each its largest part; one that would vanish stays as it was."""
    softs = [discovery.refine_edges(mask, picture, radius) for mask in masks]
    sharp = [components(soft > 0.5) == 1 for soft in softs]
    kept = [new if new.any() else old for new, old in zip(sharp, masks, strict=True)]
    return Found(kept, np.max(softs, axis=0)) if masks else _found(masks, picture)


def _score(sample: Sample, found: Found) -> dict[str, Any]:
    """What can be said about one picture with the ground truth at hand."""
    scores: dict[str, Any] = {"objects": len(found.masks)}
    if sample.boxes:
        scores["localised"] = discovery.localised(found.box, voc.read_boxes(sample.boxes))
    if sample.mask:
        truth = read_labels(sample.mask) > 0
        if truth.shape != found.soft.shape:
            raise ValueError(
                f"{sample.mask} is {truth.shape}, its picture {found.soft.shape} (height, width)"
            )
        scores["iou"] = float(jaccard(found.whole, truth))
        scores["accuracy"] = discovery.accuracy(found.whole, truth)
        scores["f_tokencut"] = discovery.f_curve(found.soft, truth, "tokencut")
        scores["f_found"] = discovery.f_curve(found.soft, truth, "found")
    return scores


def _summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """One method's figures over all pictures, in percent."""
    figures: dict[str, float] = {}
    for key, name in (("localised", "corloc"), ("iou", "iou"), ("accuracy", "accuracy")):
        if key in rows[0]:
            figures[name] = 100 * float(np.mean([row[key] for row in rows]))
    if "f_found" in rows[0]:
        for convention in ("tokencut", "found"):
            curves = np.stack([row[f"f_{convention}"] for row in rows])
            figures[f"max_f_{convention}"] = 100 * discovery.max_f(curves, convention)
    figures["objects_per_picture"] = float(np.mean([row["objects"] for row in rows]))
    return figures


def _csv(rows: list[dict[str, Any]]) -> str:
    """One line for each picture and method."""
    columns = [column for column in rows[0] if not column.startswith("f_")]
    text = io.StringIO()
    table = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def _report(
    protocol: dict[str, Any], scores: dict[str, dict[str, float]], dataset: str | None, count: int
) -> str:
    """The figures as text."""
    lines = ["protocol  " + ", ".join(f"{key} {value}" for key, value in protocol.items())]
    names = list(next(iter(scores.values())))
    published = discovery.PUBLISHED_CORLOC.get(dataset or "", {})
    counted = _counted(count, "picture")
    lines.append(f"{counted:<18}" + "".join(f"{name.replace('_', ' '):>22}" for name in names))
    for method, figures in scores.items():
        beside = f"   published CorLoc, DINO ViT-S/16: {published[method]}" if method in published else ""
        lines.append(f"{method:<18}" + "".join(f"{figures[name]:>22.1f}" for name in names) + beside)
    return "\n".join(lines)


class _Writer:
    """Writes masks and overlays as they come, the rest at the end."""

    def __init__(self, folder: Path, methods: tuple[Method, ...], overlays: bool, expected: int) -> None:
        self._folder, self._overlays = folder, overlays
        self._records: dict[str, list[dict[str, Any]]] = {method: [] for method in methods}
        self._listed: dict[int, tuple[str, tuple[int, int]]] = {}
        self._sheet: list[list[tuple[str, Picture]]] = []
        self._most = 0  # objects by one method in one picture of the sheet
        self._every = max(1, -(-expected // _SHEET))  # pictures on the sheet are spread over the data set

    def add(
        self, sample: Sample, picture: Picture, found: dict[str, Found], scored: dict[str, dict[str, Any]]
    ) -> None:
        """One picture, what every method found in it, and how right that is."""
        number = len(self._listed) + 1
        self._listed[number] = (sample.picture.name, (picture.shape[0], picture.shape[1]))
        on_sheet = (number - 1) % self._every == 0
        cells = [(sample.name, picture)]
        for method, one in found.items():
            labels = np.zeros(picture.shape[:2], dtype=np.uint8)
            for label, mask in reversed(list(enumerate(one.masks, start=1))):  # the first object lies on top
                labels[mask] = label
            export.write_mask_png(self._folder / "masks" / method / f"{sample.name}.png", labels)
            self._records[method] += [export.coco_record(number, 1, mask) for mask in one.masks]
            if self._overlays or on_sheet:
                drawn = _drawn(picture, one)
                cells.append((f"{method}: {_counted(len(one.masks), 'object')}", drawn))
            if self._overlays:
                overlay = _explained(drawn, f"{method}: {_judged(scored[method])}", len(one.masks))
                render.save_png(self._folder / "overlays" / method / f"{sample.name}.png", overlay)
        if on_sheet:
            self._sheet.append(cells)
            self._most = max((self._most, *(len(one.masks) for one in found.values())))

    def finish(self, table: str | None) -> None:
        """Contact sheet, COCO files, table."""
        for method, records in self._records.items():
            export.write_coco_results(self._folder / f"{method}.json", records)
        export.write_coco_images(self._folder / "images.json", self._listed, {1: "object"})
        sheet = render.contact_sheet(self._sheet, height=180)
        render.save_png(self._folder / "contact_sheet.png", _with_objects(sheet, self._most))
        if table:
            export.write_text(self._folder / "per_image.csv", table)


def _drawn(picture: Picture, found: Found) -> Picture:
    if not found.masks:
        return picture
    tinted = render.overlay_masks(picture, np.stack(found.masks))
    return render.draw_boxes(tinted, [bounding_box(mask) for mask in found.masks])


def _explained(drawn: Picture, title: str, objects: int) -> Picture:
    """A drawn picture with its title above and the colours of its objects below."""
    return render.caption(_with_objects(drawn, objects), title)


def _with_objects(drawn: Picture, objects: int) -> Picture:
    """A drawn picture over the colours of its objects, if it has any."""
    names = [f"object {number}" for number in range(1, objects + 1)]
    entries = list(zip(names, render.head_colors(objects), strict=True))
    return render.with_legend(drawn, entries) if entries else drawn


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' * (count != 1)}"


def _judged(scores: dict[str, Any]) -> str:
    """What is known of one picture, for its title."""
    parts = [_counted(scores["objects"], "object")]
    if "localised" in scores:
        parts.append(f"box {'right' if scores['localised'] else 'wrong'}")
    named = {"iou": "IoU", "accuracy": "accuracy"}
    parts += [f"{name} {100 * scores[key]:.1f}" for key, name in named.items() if key in scores]
    return ", ".join(parts)
