"""`python -m segmentation discover`: objects without labels, in photographs and in scored data sets."""

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import tyro
from numpy.typing import NDArray

from dino_model import images
from dino_model.ahead import load_ahead
from dino_model.feature_cache import image_features, model_fingerprint
from dino_model.files import make_room, write_json, write_text
from dino_model.images import ImageError
from dino_model.options import ModelOptions
from dino_model.predictor import AttentionPredictor
from dino_model.progress import progress
from segmentation import discovery, export, render, voc
from segmentation.commands.journal import Journal
from segmentation.commands.naming import names_of
from segmentation.discovery import Method
from segmentation.labels import read_labels
from segmentation.masks import Box, Mask, RunLengths, bounding_box, components, decode, rle
from segmentation.metrics import jaccard
from segmentation.render import Picture

Resize = Literal["pad", "native", "short-side", "squash"]

_SHEET = 24  # pictures on the contact sheet


class Sample(NamedTuple):
    """A picture, and what is known about its objects."""

    name: str  # of what is written about it
    picture: Path
    boxes: Path | None = None  # VOC annotation
    mask: Path | None = None  # foreground above 0

    @property
    def files(self) -> list[Path]:
        """All that there is of it."""
        return [file for file in (self.picture, self.boxes, self.mask) if file is not None]


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
class Discover(ModelOptions):
    """Objects without labels or training: LOST, TokenCut, several objects; one pass of the model.

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
    features: Literal["keys", "tokens"] = "keys"
    """Keys of the last block, as published, or its tokens after the final norm."""
    resize: Resize | None = None
    """How a picture is brought to the model: at its own size, padded to whole patches (pad: published for
    boxes, the default for voc07 and voc12) or rounded to them (native: published for masks, the default for
    folders with masks), or resized (short-side: the default otherwise; squash)."""
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
    resume: bool = False
    """Go on where an earlier run with the same settings was stopped."""
    cache: Path | None = None
    """Folder that keeps features, so that other methods and settings need no model."""

    def run(self) -> None:
        """Find, score, write; one picture after the other, each written before the next."""
        make_room(self.json)
        settings = self._settings()
        samples = self._samples()
        resize = self.resize or _published_resize(self.dataset, samples)
        predictor = self.predictor("native" if resize == "pad" else resize)
        protocol = self._protocol(resize)
        weights = model_fingerprint(predictor.model.backbone)
        journal = Journal(self.output, {**protocol, "weights": weights}, resume=self.resume)
        writer = _Writer(self.output, overlays=self.overlays or bool(self.photos))
        todo = [sample for sample in samples if not journal.has(sample.name, *sample.files)]
        broken: list[str] = []
        read = zip(todo, load_ahead(self._read, todo), strict=True)
        for sample, picture in progress(read, "discover", len(todo)):
            if isinstance(picture, ImageError):
                broken.append(str(picture))
                continue
            seen = _Seen(predictor, picture, resize == "pad", self.features, self.cache, weights)
            found = dict(self._find(seen, settings))
            scored = {method: _score(sample, one) for method, one in found.items()}
            journal.add(sample.name, writer.add(sample, picture, found, scored), *sample.files)
        if broken and not journal.finished:
            raise ImageError("; ".join(broken))
        self._finish([sample for sample in samples if sample.name in journal.finished], journal, protocol)
        if broken:
            raise ImageError(f"left out {len(broken)} of {len(samples)} photographs: {'; '.join(broken)}")

    def _read(self, sample: Sample) -> Picture | ImageError:
        """A picture; what is wrong with it, where the others can do without: not in a data set."""
        try:
            return images.read(sample.picture, name=str(sample.picture))
        except ImageError as error:
            if self.dataset:
                raise
            return error

    def _finish(self, samples: list[Sample], journal: Journal, protocol: dict[str, Any]) -> None:
        """Everything that needs all pictures: figures, tables, contact sheet."""
        records: dict[str, dict[str, Any]] = {
            sample.name: journal.finished[sample.name] for sample in samples
        }
        rows = [
            {"image": name, "method": method, **record["scored"][method]}
            for name, record in records.items()
            for method in self.methods
        ]
        scores: dict[str, dict[str, float]] = {
            method: _summary([row for row in rows if row["method"] == method]) for method in self.methods
        }
        _write_results(self.output, samples, records, self.methods)
        if self.dataset:
            write_text(self.output / "per_image.csv", _csv(rows))
        print(_report(protocol, scores, self.dataset, len(samples)))
        print(f"written to {self.output}")
        if self.json:
            write_json(self.json, {"protocol": protocol, "scores": scores, "pictures": len(samples)})

    def _settings(self) -> discovery.Settings:
        return discovery.Settings(
            candidates=self.candidates, tau=self.tau, tau_several=self.tau_several, count=self.count
        )

    def _samples(self) -> list[Sample]:
        if not self.methods:
            raise ValueError("--methods names none; choose among lost, tokencut, several and attention")
        if bool(self.photos) == bool(self.dataset):
            raise ValueError("name photographs, or --dataset voc07, voc12 or a folder: one of the two")
        if self.dataset in ("voc07", "voc12"):
            return _voc_samples(self.root, 2000 + int(self.dataset[-2:]))
        if self.dataset:
            return _folder_samples(Path(self.dataset), self.masks)
        names = names_of(self.photos, self.output)
        return [Sample(name, photo) for name, photo in zip(names, self.photos, strict=True)]

    def _find(self, seen: "_Seen", settings: discovery.Settings) -> Iterator[tuple[str, Found]]:
        """Every method on one picture; the model sees it once, or not at all where all is cached."""
        picture, placement = seen.picture, seen.placement
        for method in self.methods:
            if method == "attention":
                objects = [discovery.attention_object(seen.attention(self.head))]
            else:
                objects = discovery.find(method, seen.features, settings)
            masks = [placement.mask(one.mask) for one in objects]
            if self.refine and masks:
                radius = max(1, placement.covered[0] // objects[0].mask.shape[0])
                yield method, _refined(masks, picture, radius)
            else:
                yield method, _found(masks, picture)

    def _protocol(self, resize: str) -> dict[str, Any]:
        """Everything that decides about the figures."""
        return {
            "data": self.dataset or "photographs",
            "model": self.model,
            "precision": self.chosen_precision(),
            "features": self.features,
            "resize": resize if resize in ("pad", "native") else f"{resize} {self.size}",
            "methods": ", ".join(self.methods),
            "candidates": self.candidates,
            "tau": self.tau,
            "tau_several": self.tau_several,
            "count": self.count,
            "head": self.head,
            "edges": "guided filter" if self.refine else "patches",
        }


class _Seen:
    """What the methods need of one picture: computed when it is asked for, kept on disk where wished."""

    def __init__(
        self,
        predictor: AttentionPredictor,
        picture: Picture,
        padded: bool,
        kind: Literal["keys", "tokens"],
        cache: Path | None,
        weights: str,
    ) -> None:
        self.picture = picture
        size = (picture.shape[0], picture.shape[1])
        self.placement = discovery.placement(size, predictor.patch_size, padded=padded)
        self._predictor, self._padded, self._kind = predictor, padded, kind
        self._cache, self._weights = cache, weights

    @cached_property
    def features(self) -> discovery.Features:
        """Of the patches: float32 [rows, columns, D]."""
        return self._kept(self._kind, partial(discovery.picture_features, self._predictor, self._kind))

    @cached_property
    def _attention(self) -> NDArray[np.float32]:
        return self._kept("attention", self._predictor.cls_attention)

    def attention(self, head: int) -> NDArray[np.float32]:
        """Where [CLS] looks by one head: [rows, columns]."""
        if not 0 <= head < self._predictor.heads:
            raise ValueError(f"--head is {head}; this model has heads 0 to {self._predictor.heads - 1}")
        return self._attention[head]

    def _kept(self, what: str, compute: Callable[[], NDArray[np.float32]]) -> NDArray[np.float32]:
        predictor = self._predictor

        def look() -> NDArray[np.float32]:
            show = discovery.set_padded if self._padded else discovery.set_resized
            show(predictor, self.picture)
            return compute()

        return image_features(
            self._cache,
            look,
            self.picture,
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
    print(listed, flush=True)
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
    return Found(kept, np.max(softs, axis=0))


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
    """Writes the masks, and the overlays where they are wished, of one picture after the other."""

    def __init__(self, folder: Path, *, overlays: bool) -> None:
        self._folder, self._overlays = folder, overlays

    def add(
        self, sample: Sample, picture: Picture, found: dict[str, Found], scored: dict[str, dict[str, Any]]
    ) -> dict[str, Any]:
        """Write one picture's files; returns what to remember of it: size, masks as run lengths, scores."""
        for method, one in found.items():
            labels = np.zeros(picture.shape[:2], dtype=np.uint8)
            for label, mask in reversed(list(enumerate(one.masks, start=1))):  # the first object lies on top
                labels[mask] = label
            export.write_mask_png(self._folder / "masks" / method / f"{sample.name}.png", labels)
            if self._overlays:
                title = f"{method}: {_judged(scored[method])}"
                overlay = _explained(_drawn(picture, one.masks), title, len(one.masks))
                render.save_png(self._folder / "overlays" / method / f"{sample.name}.png", overlay)
        return {
            "size": picture.shape[:2],
            "masks": {method: [rle(mask) for mask in one.masks] for method, one in found.items()},
            "scored": {
                method: {name: _plain(value) for name, value in scores.items()}
                for method, scores in scored.items()
            },
        }


def _plain(value: Any) -> Any:
    """A score as JSON holds it."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def _write_results(
    folder: Path, samples: list[Sample], records: dict[str, dict[str, Any]], methods: tuple[Method, ...]
) -> None:
    """COCO files of all pictures, and a contact sheet of some, spread over them."""
    listed = {
        number: (sample.picture.name, (records[sample.name]["size"][0], records[sample.name]["size"][1]))
        for number, sample in enumerate(samples, start=1)
    }
    for method in methods:
        detections = [
            export.coco_record(number, 1, decode(mask))
            for number, sample in enumerate(samples, start=1)
            for mask in records[sample.name]["masks"][method]
        ]
        export.write_coco_results(folder / f"{method}.json", detections)
    export.write_coco_images(folder / "images.json", listed, {1: "object"})
    chosen = samples[:: max(1, -(-len(samples) // _SHEET))]
    cells = [_cells(sample, records[sample.name]["masks"]) for sample in chosen]
    most = max(len(masks) for sample in chosen for masks in records[sample.name]["masks"].values())
    sheet = _with_objects(render.contact_sheet(cells, height=180), most)
    render.save_png(folder / "contact_sheet.png", sheet)


def _cells(sample: Sample, found: dict[str, list[RunLengths]]) -> list[tuple[str, Picture]]:
    """A row of the contact sheet: the picture, and what every method found."""
    picture = images.read(sample.picture, name=str(sample.picture))
    drawn = [
        (f"{method}: {_counted(len(masks), 'object')}", _drawn(picture, [decode(mask) for mask in masks]))
        for method, masks in found.items()
    ]
    return [(sample.name, picture), *drawn]


def _drawn(picture: Picture, masks: list[Mask]) -> Picture:
    if not masks:
        return picture
    tinted = render.overlay_masks(picture, np.stack(masks))
    return render.draw_boxes(tinted, [bounding_box(mask) for mask in masks])


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
