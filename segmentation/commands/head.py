"""`python -m segmentation head`: segmentation from few masks with a head on frozen patch features."""

import hashlib
import mimetypes
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import tyro

from dino_model.data.images import ImageError
from dino_model.inference.options import ComputeOptions, ModelOptions, TileOptions
from dino_model.runtime.ahead import run_ahead
from dino_model.runtime.batch import BatchCommand, Inputs
from dino_model.runtime.errors import pluralize
from dino_model.runtime.files import as_tuples, make_room
from dino_model.runtime.outputs import JsonOptions, OutputFolder, check_output_file, write_provenance
from dino_model.runtime.progress import progress
from segmentation import drawing, heads, metrics
from segmentation.annotations import read_classes
from segmentation.commands import common
from segmentation.commands.common import InputImage
from segmentation.commands.truth import LabeledImage, TrueMasks, TruthOptions
from segmentation.heads import HeadKind, PatchClassifier, PatchTask
from segmentation.labels import VOID, DataError, palette, resize_nearest, write_mask_png
from segmentation.masks import ImageArray
from segmentation.video import VideoWriter, shrunk
from segmentation.video_input import Frames, open_frames

if TYPE_CHECKING:
    from dino_model.inference.classifier import SavedClassifier
    from dino_model.inference.predictor import AttentionPredictor

Features = Callable[[ImageArray], heads.Array]

BASELINE = "color and position"
LARGEST_SIZE = 480  # pixels of the input's short side, by default
MEASURED_IMAGES = 32  # whose sizes decide the default
SCORING = (
    "mean over classes of the intersection over union over all pixels; 255 ignored; own size of the masks"
)


@dataclass(frozen=True, kw_only=True)
class FitOptions(TruthOptions, common.NamedMaskOptions):
    """Options of the fit of a head."""

    kind: HeadKind = "linear"
    """linear (DINOv2: batch norm and a linear layer), logistic regression, or knn (20 neighbors)."""
    layers: int = 1
    """Number of last layers whose patch tokens are the features; DINOv2 reports 1 and 4."""
    size: int = 0
    """Pixels of the input's short side. 0: the median short side of the images, but at most 480."""
    foreground: bool = False
    """Make every label other than 0 and 255 class 1."""
    classes: Path | None = None
    """Text file with one class a line: name, or name #rrggbb. They are matched by name with COCO files and
    labelmap.txt; for masks of values, they name the labels from 0, background, on. voc: PASCAL VOC's."""

    def chosen_size(self, images: Sequence[InputImage]) -> int:
        """Return the short side of the input, and print it if it follows from the images.

        Larger inputs take longer, and scores on enlarged images are not higher (docs/protocols.md).
        """
        if self.size:
            return self.size
        sides = list[int]()
        for image in images[:: max(1, len(images) // MEASURED_IMAGES)]:
            with suppress(ImageError):  # named when it is used
                sides.append(min(image.read().shape[:2]))
        median = int(np.median(sides)) if sides else LARGEST_SIZE
        size = min(median, LARGEST_SIZE)
        print(f"size: {size} pixels; the median short side of the images is {median}", flush=True)
        return size

    def true_masks(self, images: Sequence[InputImage]) -> TrueMasks:
        """Open the masks of these images."""
        classes = read_classes(self.classes) if self.classes else ()
        return TrueMasks(self.masks, images, self, classes=classes, foreground=self.foreground)

    def source(self, predictor: "AttentionPredictor") -> Features:
        """Return the function from an image to its features."""
        if not 1 <= self.layers <= predictor.blocks:
            raise DataError(f"--layers is {self.layers}; this model has 1 to {predictor.blocks}")
        return partial(heads.patch_features, predictor, layers=self.layers)


@dataclass(frozen=True)
class Fit(FitOptions, TileOptions, ModelOptions):
    """Fit a head to masks; label 255 is ignored. Writes one .safetensors file that names its model."""

    output: Path
    """File for the head."""
    overwrite: bool = False
    """Replace the file if it exists."""
    skip_damaged: bool = False
    """Write the head even if an image, a mask or an annotation could not be used."""

    def run(self) -> None:
        """Fit and write; without --skip-damaged only if all images and masks can be used."""
        from dino_model.inference.classifier import SavedClassifier

        check_output_file(self.output, overwrite=self.overwrite)
        masks = self.true_masks(self.find(self.image_list))
        count, advice = len(masks.images), ". No head is written; --skip-damaged fits without them"
        if not self.skip_damaged:
            masks.check_files(advice)
        size = self.chosen_size(masks.images)
        predictor = self.open_predictor(self.load(), size, tiles=self)
        samples = masks.read(masks.images, predictor, "fit")
        try:
            classifier = _fit(samples, count, self.source(predictor), self.kind)
        except DataError:
            masks.check(count)  # damaged masks are the reason, if there are some
            raise
        if not self.skip_damaged:
            masks.check(count, advice)
        names, settings = masks.names()[:VOID], common.model_settings(predictor)
        known = max(len(names), classifier.labels[-1] + 1)
        task = heads.PatchTask(
            labels=classifier.labels,
            kind=self.kind,
            layers=self.layers,
            size=size,
            foreground=self.foreground,
            names=(*names, *map(masks.label_set.name, range(len(names), known))),
            colors=as_tuples(masks.reader.palette()[:known].tolist()),
            masks=asdict(masks.label_set),
        )
        SavedClassifier(
            classifier=classifier.classifier,
            task=task,
            classes=task.classes,
            model=self.model,
            weights=settings["weights"],
            checkpoint=self.checkpoint(),
        ).write(self.output)
        fitted = {"kind": self.kind, "layers": self.layers, "foreground": self.foreground, **masks.settings()}
        write_provenance(self.output.with_suffix(".provenance.json"), settings | fitted)
        listing = f"{len(task.classes)} classes ({', '.join(task.classes)})"
        print(f"{self.output}: {self.kind} head of {listing}")
        masks.check(count)


@dataclass(frozen=True, kw_only=True)
class HeadOptions(TileOptions, ComputeOptions):
    """A head and the model that it needs."""

    head: Path
    """File that `head fit` has written."""
    model: str | None = None
    """Another name of the head's model; other weights are refused. Default: the name in the head."""

    @cached_property
    def _saved(self) -> "SavedClassifier[PatchTask]":
        from dino_model.inference.classifier import read_classifier

        return read_classifier(self.head, PatchTask)

    @cached_property
    def _predictor(self) -> "AttentionPredictor":
        model = self._saved.load_model(self.head, self.model, **self.checkpoint())
        return self.open_predictor(model, self._saved.task.size, tiles=self)


@dataclass(frozen=True)
class Apply(HeadOptions, BatchCommand[InputImage | Inputs, ImageArray | Frames]):
    """Segment images and videos with a head.

    Writes masks/NAME.png (palette PNGs whose values are the labels) and overlays/NAME.jpg; for a video
    masks/NAME/FRAME.png and overlays/NAME.webm.
    """

    inputs: tyro.conf.Positional[tuple[Path, ...]]
    """Video files, and images: files, folders, tars, lists of paths, or glob patterns."""
    kind: ClassVar[str] = "inputs"

    def items(self) -> Sequence[InputImage | Inputs]:
        """List the images and videos."""
        videos = [path for path in self.inputs if (mimetypes.guess_type(path)[0] or "").startswith("video/")]
        sources = [path for path in self.inputs if path not in videos]
        images = common.list_inputs(common.open_inputs(sources, tiles=self)) if sources or not videos else []
        items: list[InputImage | Inputs] = [*images, *(Inputs(path.stem, [path]) for path in videos)]
        if len({item.name for item in items}) < len(items):
            raise DataError("two inputs would write the same files; rename one, or use two outputs")
        return items

    def settings(self) -> dict[str, Any]:
        """Describe the model and the head."""
        digest = hashlib.sha256(self.head.read_bytes()).hexdigest()
        return common.model_settings(self._predictor) | {"head": digest}

    def read(self, item: InputImage | Inputs) -> ImageArray | Frames:
        """Read an image, or open a video."""
        if isinstance(item, Inputs):
            return open_frames(item.files[0])
        return self._predictor.check_patches(item.read())

    def compute(self, item: InputImage | Inputs, loaded: ImageArray | Frames, output: OutputFolder) -> int:
        """Segment an image or every frame of a video; record their number. Damaged packets are skipped."""
        if isinstance(loaded, np.ndarray):
            drawn = self._segment(loaded, output.path("masks", f"{item.name}.png"))
            drawing.save_image(output.path("overlays", f"{item.name}.jpg"), drawn)
            return 1
        overlay = output.path("overlays", f"{item.name}.webm")
        with VideoWriter(overlay, loaded.fps) as writer:
            for number, frame in enumerate(progress(run_ahead(loaded), item.name, loaded.expected or None)):
                mask = output.path("masks", item.name, loaded.file_name(number))
                writer.write(self._segment(self._predictor.check_patches(frame), mask), loaded.times[number])
        for problem in loaded.damaged:
            output.skipped.add(item.files[0].name, DataError(problem))
        return len(loaded.times)

    def finish(self, items: Sequence[InputImage | Inputs], output: OutputFolder) -> dict[str, Any]:
        """Print the number of inputs."""
        print(pluralize(len(items), "input"))
        return {"masks": {item.name: output.finished[item.name] for item in items}}

    def _segment(self, image: ImageArray, mask: Path) -> ImageArray:
        """Segment an image, write its mask, and draw the classes other than the background over it."""
        task, classifier = self._saved.task, self._saved.classifier
        features = heads.patch_features(self._predictor, image, task.layers)
        labels = PatchClassifier(task.labels, classifier).segment(features, (image.shape[0], image.shape[1]))
        colors = palette()
        colors[: len(task.colors)] = task.colors
        write_mask_png(mask, labels, colors)
        small = shrunk(image)
        at_small = resize_nearest(labels, (small.shape[0], small.shape[1]))
        shown = [label for label in task.labels if task.names[label] != "background"]
        tinted = drawing.blend(small, colors[at_small], 0.5 * np.isin(at_small, shown))
        return drawing.with_legend(tinted, [(task.names[label], colors[label]) for label in shown])


@dataclass(frozen=True)
class HeadScore(TruthOptions, common.NamedMaskOptions, HeadOptions, JsonOptions):
    """IoU of each class and their mean in percent, over all pixels of images with true masks.

    --json has `miou`, `iou` of each class, and `protocol`.
    """

    def run(self) -> None:
        """Segment, score, print."""
        make_room(self.json)
        task, predictor = self._saved.task, self._predictor
        images = self.find(self.image_list)
        masks = TrueMasks(self.masks, images, self, foreground=task.foreground, head=task)
        features = partial(heads.patch_features, predictor, layers=task.layers)
        samples = masks.read(masks.images, predictor, "score")
        classifier = PatchClassifier(task.labels, self._saved.classifier)
        (by_label,), number = _class_iou(samples, features, [classifier])
        names = dict(enumerate(task.names))
        iou = {names.get(label, f"class {label}"): 100 * value for label, value in by_label.items()}
        scores = {"miou": _mean(by_label), "iou": iou, "images": number}
        protocol = _print_protocol(predictor, task.kind, task.layers)
        print("\n".join(f"{name:<24}{value:>6.1f}" for name, value in iou.items()))
        print(f"{'mean IoU':<24}{scores['miou']:>6.1f}   ({number} images)")
        if unseen := [f"class {label}" for label in by_label if label not in names]:
            print(f"warning: no mask of the fit has {', '.join(unseen)}, whose IoU of 0 counts in the mean")
        self.save(scores | {"protocol": protocol | masks.settings()})
        masks.check(len(masks.images))


@dataclass(frozen=True)
class Curve(FitOptions, ComputeOptions, JsonOptions):
    """Mean IoU in percent of heads fitted to few masks, for several models and a baseline without a model.

    The baseline is a logistic regression of the color and position of each patch. --json has `miou` by model
    and number of masks, and `protocol`.
    """

    test: Path
    """Text file with the names of the images to score, one per line."""
    models: tuple[str, ...] = ("embedded", "random:embedded")
    """Models to compare."""
    counts: tuple[int, ...] = (1, 5, 10)
    """Numbers of masks, spread evenly over the list; all masks are always added."""

    def run(self) -> None:
        """Fit and score heads of every number of masks, print a table."""
        from dino_model.models.load import load_model

        make_room(self.json)
        if not self.models or min(self.counts, default=1) < 1:
            raise DataError(f"--counts is {self.counts}, --models {self.models}; expected counts from 1")
        lists = self.find(self.image_list), self.find(self.test)
        masks, total = self.true_masks([*lists[0], *lists[1]]), sum(map(len, lists))
        size, options = self.chosen_size(lists[0]), self.checkpoint()
        predictors = {name: self.open_predictor(load_model(name, **options), size) for name in self.models}
        predictor = predictors[self.models[0]]
        images, test = ([each for each, _ in masks.read(part, predictor, "check")] for part in lists)
        if not images or not test:
            masks.check(total)
        counts = sorted({min(count, len(images)) for count in (*self.counts, len(images))})
        sources = {name: self.source(each) for name, each in predictors.items()}
        sources[BASELINE] = partial(heads.color_position, size=size, patch_size=predictor.patch_size)
        miou = {}
        for name, features in sources.items():
            kind: HeadKind = "logistic" if name == BASELINE else self.kind
            chosen = [[images[number * len(images) // count] for number in range(count)] for count in counts]
            reads = (masks.read(few, predictor, f"fit {name}") for few in chosen)
            fitted = [_fit(read, len(few), features, kind) for read, few in zip(reads, chosen, strict=True)]
            by_label, _ = _class_iou(masks.read(test, predictor, f"score {name}"), features, fitted)
            miou[name] = dict(zip(map(str, counts), map(_mean, by_label), strict=True))
        protocol = _print_protocol(predictor, self.kind, self.layers)
        print(f"{'masks':<24}" + "".join(f"{count:>8}" for count in counts))
        for name, row in miou.items():
            print(f"{name:<24}" + "".join(f"{value:>8.1f}" for value in row.values()))
        self.save({"miou": miou, "images": len(test), "protocol": protocol | masks.settings()})
        masks.check(total)


def _fit(
    samples: Iterable[tuple[InputImage, LabeledImage]], count: int, features: Features, kind: HeadKind
) -> PatchClassifier:
    maps = ((features(image), labels) for _, (image, labels) in samples)
    return heads.fit_classifier(*heads.sample_patches(maps, count), kind)


def _class_iou(
    samples: Iterable[tuple[InputImage, LabeledImage]],
    features: Features,
    classifiers: Sequence[PatchClassifier],
) -> tuple[list[dict[int, float]], int]:
    """Compute the IoU of each class, by label, of each classifier; and count the images."""
    counts, number = np.zeros((len(classifiers), 256, 256), dtype=np.int64), 0
    for _, (image, labels) in samples:
        grid, number = features(image), number + 1
        for count, classifier in zip(counts, classifiers, strict=True):
            count += metrics.confusion(classifier.segment(grid, labels.shape), labels)
    if not counts.any():
        raise DataError("no pixel of the masks is labeled; expected labels other than 255")
    return [metrics.class_jaccard(count) for count in counts], number


def _mean(iou: dict[int, float]) -> float:
    return 100 * float(np.mean(list(iou.values())))


def _print_protocol(predictor: "AttentionPredictor", kind: HeadKind, layers: int) -> dict[str, Any]:
    protocol = {
        "score": SCORING,
        "absent classes": "0 if predicted, else left out",
        **{"kind": kind, "layers": layers, "size": predictor.size, "precision": predictor.precision},
    }
    print(common.format_settings("protocol", protocol))
    return protocol
