"""`python -m segmentation voc`: Jaccard similarity of attention masks on PASCAL VOC 2012."""

import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dino_model import images
from dino_model.ahead import load_ahead
from dino_model.files import make_room, write_json
from dino_model.options import ModelOptions
from dino_model.outputs import OutputFolder, OutputOptions, SkippedInputs
from dino_model.progress import progress
from segmentation import coco, datasets, drawing, voc_eval
from segmentation.commands.common import check_head, check_patches, model_settings, write_csv
from segmentation.datasets import Annotation, VocSample
from segmentation.labels import VOID, write_mask_png
from segmentation.masks import ImageArray, RunLengths, check_mass, decode
from segmentation.voc_eval import GroundTruth, ImageScore, TargetScore, VocProtocol, Void

if TYPE_CHECKING:
    from dino_model.predictor import AttentionPredictor

Scores = dict[VocProtocol, list[ImageScore]]

_NO_MASK = RunLengths(size=[0, 0], counts="")
_TRUTH = ("ground truth", (255, 255, 255))  # its name and color in legends


@dataclass(frozen=True)
class Voc(ModelOptions, OutputOptions):
    """Agreement of attention masks with the annotated objects of VOC 2012, and its protocol.

    Prints the score with its protocol, a table of classes and the paper's values; writes per_image.csv,
    contact_sheet.png (the best and worst images), masks/NAME.png, masks.json and masks_images.json (COCO run
    lengths; `score` is the mask's Jaccard similarity); with --overlays also overlays/NAME.png.
    """

    root: Path
    """Folder VOCdevkit, which holds VOC2012."""
    mass: float = 0.6
    """Share of the attention that a mask keeps, above 0 and up to 1."""
    ground_truth: GroundTruth = "class"
    """Regions to compare masks with: each class of an image, each object, or all objects as one."""
    void: Void = "union"
    """Unannotated pixels (255) stay in the union, or are excluded."""
    head: Literal["best", "mean"] | int = "best"
    """The best head for each class or object, the mean of all heads' maps, or one head by number."""
    resize: Literal["squash", "short-side", "native"] = "squash"
    """How an image is resized for the model."""
    block: int = -1
    """Block whose attention is taken; -1 is the last."""
    split: str = "val"
    """List of images in ImageSets/Segmentation."""
    baseline: Literal["none", "centered-box"] = "none"
    """Score a box of half the sides in the middle of every image instead of a model."""
    grid: bool = False
    """Score every combination of mass (0.6, 0.8 and --mass), ground truth and void in one pass."""
    overlays: bool = False
    """Draw every image: masks tinted, the ground truth outlined, classes with their heads and scores."""
    output: Path = field(default=Path("output/voc"), kw_only=True)
    """Folder for the results. It is created if missing."""
    json: Path | None = None
    """File for the scores: `jaccard` in percent, the `lift` of attention and the full `protocol`."""
    cache: Path | None = None
    """Folder that keeps attention maps, so that other masses and ground truths need no model."""

    def run(self) -> None:
        """Score and write one image after the other, then print."""
        check_mass(self.mass, "--mass")
        make_room(self.json)
        self.check_output()
        protocol = self._protocol()
        protocols = list(dict.fromkeys([protocol, *(_grid_around(protocol) if self.grid else ())]))
        samples = datasets.list_voc_samples(self.root, self.split)
        predictor = self.predictor(self.resize) if self.baseline == "none" else None
        if predictor is not None and isinstance(self.head, int):
            check_head(self.head, predictor)
        scored = (
            {"model": f"baseline {self.baseline}", "precision": "no model"}
            if predictor is None
            else model_settings(predictor)
        )
        output = self.open_output({**scored, "protocols": [asdict(each) for each in protocols]})
        skipped = self._score_images(samples, predictor, protocols, output)
        finished = [sample for sample in samples if sample.name in output.finished]
        if not finished:
            skipped.check(len(samples))
        scores = _from_records(
            [(sample.name, output.finished[sample.name]) for sample in finished], protocols
        )
        results = _results(finished, scores, protocol) | {key: scored[key] for key in ("model", "precision")}
        _write_results(output, finished, scores[protocol], overlays=self.overlays)
        output.finish()
        print(_report(results, scores, protocol))
        print(f"\nwritten to {self.output}: per_image.csv, contact_sheet.png, masks, masks.json")
        if self.json:
            write_json(self.json, results)
        skipped.check(len(samples))

    def _score_images(
        self,
        samples: list[VocSample],
        predictor: "AttentionPredictor | None",
        protocols: list[VocProtocol],
        output: OutputFolder,
    ) -> SkippedInputs:
        """Score what is not finished; returns the images that could not be read."""
        skipped, weights = SkippedInputs(), output.settings.get("weights", "")
        todo = [sample for sample in samples if not output.has(sample.name, sample[1:])]
        read = zip(todo, load_ahead(_read_or_error, todo), strict=True)
        for sample, found in progress(read, "voc", len(todo)):
            try:
                if isinstance(found, ValueError):
                    raise found
                if predictor is not None:
                    check_patches(found[0], predictor)
            except ValueError as error:
                skipped.add(str(sample.image), error)
                continue
            image, annotation = found
            attention = None if predictor is None else self._attention(predictor, image, weights)
            scores = [_score_one(sample.name, attention, annotation, each) for each in protocols]
            files = []
            if scores[0].targets:
                files.append(output.path("masks", f"{sample.name}.png"))
                write_mask_png(files[0], _label_map(scores[0]))
            (output.folder / "overlays" / f"{sample.name}.png").unlink(missing_ok=True)  # of other masks
            output.add(sample.name, _as_record(scores), inputs=sample[1:], files=files)
        return skipped

    def _attention(
        self, predictor: "AttentionPredictor", image: ImageArray, weights: str
    ) -> NDArray[np.float32]:
        """[CLS] attention of an image, from the cache if it is there."""
        from dino_model.feature_cache import image_features

        def compute() -> NDArray[np.float32]:
            predictor.set_image(image)
            return predictor.cls_attention(self.block)

        return image_features(
            self.cache,
            compute,
            image,
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


def _read_or_error(sample: VocSample) -> tuple[ImageArray, Annotation] | ValueError:
    try:
        return _read(sample)
    except ValueError as error:
        return error


def _read(sample: VocSample) -> tuple[ImageArray, Annotation]:
    image = images.read(sample.image, name=str(sample.image))
    return image, datasets.read_voc_annotation(sample, (image.shape[0], image.shape[1]))


def _as_record(scores: list[ImageScore]) -> list[list[list[Any]]]:
    """Convert the scores of one image to JSON; masks of the first protocol only."""
    own, *others = scores
    return [
        [list(target) for target in own.targets],
        *([list(target._replace(mask=_NO_MASK)) for target in other.targets] for other in others),
    ]


def _from_records(records: list[tuple[str, list[list[list[Any]]]]], protocols: list[VocProtocol]) -> Scores:
    """Invert `_as_record` for all images."""
    scores: Scores = {protocol: [] for protocol in protocols}
    for name, record in records:
        for protocol, targets in zip(protocols, record, strict=True):
            scores[protocol].append(ImageScore(name, tuple(TargetScore(*target) for target in targets)))
    return scores


def _score_one(
    name: str, attention: np.ndarray | None, annotation: Annotation, protocol: VocProtocol
) -> ImageScore:
    if attention is not None:
        return voc_eval.score_attention(name, attention, annotation, protocol)
    box = voc_eval.centered_box((annotation.classes.shape[0], annotation.classes.shape[1]))
    return voc_eval.score_masks(name, {-1: box}, annotation, protocol.ground_truth, protocol.void)


def _grid_around(protocol: VocProtocol) -> Iterator[VocProtocol]:
    """Vary mass, ground truth and void, which the paper leaves open."""
    masses = sorted({0.6, 0.8, protocol.mass})
    kinds: tuple[GroundTruth, ...] = ("class", "object", "foreground")
    voids: tuple[Void, ...] = ("union", "exclude")
    for mass, kind, void in itertools.product(masses, kinds, voids):
        yield replace(protocol, mass=mass, ground_truth=kind, void=void)


def _results(samples: list[VocSample], scores: Scores, protocol: VocProtocol) -> dict[str, Any]:
    """Collect the results for --json."""
    own = scores[protocol]
    results: dict[str, Any] = {
        "jaccard": voc_eval.mean_jaccard(own),
        "lift": voc_eval.mean_lift(own),
        "protocol": asdict(protocol),
        "voc12_val": datasets.is_voc12_val(samples),
        "images": sum(bool(score.targets) for score in own),
        "images_without_target": sum(not score.targets for score in own),
        "per_class": {
            name: {"jaccard": mean, "masks": count} for name, (mean, count) in voc_eval.per_class(own).items()
        },
        "paper": voc_eval.PAPER,
    }
    if len(scores) > 1:
        results["grid"] = [
            {"jaccard": voc_eval.mean_jaccard(found), "protocol": asdict(each)}
            for each, found in scores.items()
        ]
    return results


def _report(results: dict[str, Any], scores: Scores, protocol: VocProtocol) -> str:
    """Format the results as text."""
    plural = "s" * (results["images"] != 1)
    data = "VOC12 val" if results["voc12_val"] else f"image{plural} laid out as VOC 2012 (not VOC12 val)"
    lines = [
        f"protocol  {protocol}; {results['precision']}",
        f"Jaccard   {results['jaccard']:.1f} %   {results['model']} on {results['images']} {data}",
    ]
    if results["lift"] is not None:
        lines.append(
            f"lift      {results['lift']:.2f}     share of all heads' attention over share of the patches"
        )
    if results["images_without_target"]:
        lines.append(f"          {results['images_without_target']} more have no annotated object")
    lines += ["", f"{'class':<14} {'masks':>5} {'Jaccard':>8}"]
    lines += [
        f"{name:<14} {row['masks']:>5} {row['jaccard']:>8.1f}" for name, row in results["per_class"].items()
    ]
    if len(scores) > 1:
        lines += ["", f"{'mass':>5} {'ground truth':<12} {'void':<8} {'Jaccard':>8}"]
        lines += [
            f"{each.mass:>5.0%} {each.ground_truth:<12} {each.void:<8} {voc_eval.mean_jaccard(found):>8.1f}"
            for each, found in scores.items()
        ]
    lines += ["", "paper, VOC12 val, best head: " + _paper()]
    if not results["voc12_val"]:
        lines.append("These images are not VOC12 val: the values above and the paper's cannot be compared.")
    return "\n".join(lines)


def _paper() -> str:
    return "; ".join(
        f"{model} " + ", ".join(f"{kind} {value}" for kind, value in row.items())
        for model, row in voc_eval.PAPER.items()
    )


def _write_results(
    output: OutputFolder, samples: list[VocSample], scores: list[ImageScore], *, overlays: bool
) -> None:
    """Write what needs all images: overlays, CSV, contact sheet, run lengths."""
    pairs = [(sample, score) for sample, score in zip(samples, scores, strict=True) if score.targets]
    for sample, score in pairs if overlays else []:
        file = output.path("overlays", f"{sample.name}.png")
        if not file.exists():  # not of an interrupted run
            _write_overlay(file, sample, score)
    columns = ("image", "jaccard", "labels", "heads", "jaccards")
    write_csv(output.path("per_image.csv"), columns, [_row(score) for score in scores])
    drawing.save_png(output.path("contact_sheet.png"), _contact_sheet(pairs))
    records, listed = [], {}
    for number, (sample, score) in enumerate(pairs, start=1):
        height, width = score.targets[0].mask["size"]
        listed[number] = (sample.image.name, (height, width))
        records += [
            coco.coco_record(number, target.category, decode(target.mask), target.jaccard)
            for target in score.targets
        ]
    categories = {0: "foreground"} | dict(enumerate(datasets.VOC_CLASSES, start=1))
    coco.write_coco_results(output.path("masks.json"), records)
    coco.write_coco_images(output.path("masks_images.json"), listed, categories)


def _write_overlay(file: Path, sample: VocSample, score: ImageScore) -> None:
    names = [_target_text(target) for target in score.targets]
    entries = [_TRUTH, *zip(names, drawing.head_colors(len(names)), strict=True)]
    drawing.save_png(file, drawing.with_legend(_draw(*_read(sample), score), entries))


def _row(score: ImageScore) -> dict[str, str]:
    """Make a line of the CSV; labels, heads and scores of an image are separated by spaces."""
    return {
        "image": score.name,
        "jaccard": f"{100 * score.jaccard:.4f}" if score.targets else "",
        "labels": " ".join(str(target.label) for target in score.targets),
        "heads": " ".join(str(target.head) for target in score.targets),
        "jaccards": " ".join(f"{100 * target.jaccard:.4f}" for target in score.targets),
    }


def _label_map(score: ImageScore) -> np.ndarray:
    """Combine the chosen masks to labels uint8 [height, width]; the better mask is on top."""
    height, width = score.targets[0].mask["size"]
    labels = np.zeros((height, width), dtype=np.uint8)
    for target in sorted(score.targets, key=lambda target: target.jaccard):
        labels[decode(target.mask)] = target.label
    return labels


def _contact_sheet(pairs: list[tuple[VocSample, ImageScore]], count: int = 8, per_row: int = 4) -> ImageArray:
    """Draw the images with the highest and lowest Jaccard: masks tinted, ground truth outlined."""
    ordered = sorted(pairs, key=lambda pair: -pair[1].jaccard)
    best, worst = ordered[:count], ordered[max(count, len(ordered) - count) :][::-1]
    rows: list[list[tuple[str, ImageArray]]] = []
    for word, chosen in (("best", best), ("worst", worst)):
        cells = [
            (
                f"{word} {rank}: {sample.name}, Jaccard {100 * score.jaccard:.1f} %",
                _draw(*_read(sample), score),
            )
            for rank, (sample, score) in enumerate(chosen, start=1)
        ]
        rows += [cells[start : start + per_row] for start in range(0, len(cells), per_row)]
    sheet = drawing.contact_sheet(rows, height=200)
    most = max(len(score.targets) for _, score in (*best, *worst))
    names = ["mask"] if most == 1 else [f"mask of region {number}" for number in range(1, most + 1)]
    return drawing.with_legend(sheet, [_TRUTH, *zip(names, drawing.head_colors(most), strict=True)])


def _target_text(target: TargetScore) -> str:
    head = f", head {target.head}" if target.head >= 0 else ""
    return f"{datasets.voc_class_name(target.category)}: {100 * target.jaccard:.1f}{head}"


def _draw(image: ImageArray, annotation: Annotation, score: ImageScore) -> ImageArray:
    masks = np.stack([decode(target.mask) for target in score.targets])
    tinted = drawing.overlay_masks(image, masks, contour=0)
    truth = (annotation.classes != 0) & (annotation.classes != VOID)
    white = np.array([_TRUTH[1]], dtype=np.uint8)
    return drawing.overlay_masks(tinted, truth, colors=white, opacity=0, contour=2)
