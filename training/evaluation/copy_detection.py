"""Copy detection by descriptors: Copydays (section 4.2.1), and seeded copies of own images."""

import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps
from torch import Tensor
from torch.nn.functional import normalize

from dino_model.data.classes import describe_classes
from dino_model.data.collection import Images, open_images
from dino_model.inference.features import OUTPUT, FeatureType, has_cls
from dino_model.models.load import LoadedModel
from dino_model.runtime import ranks
from dino_model.runtime.errors import pluralize
from training.augmentation.randomness import mix
from training.evaluation.datasets import class_labels, every_fifth, open_labeled
from training.evaluation.options import CopyDetection, CopyDetectionSynthetic, Evaluation
from training.evaluation.retrieval import average_precision, ranks_of
from training.evaluation.run import Metrics, evaluate_models, extract, framing_of

Formula = Literal["corrected", "released"]
COPY_TYPES = ("crop", "jpeg 10", "blur", "mirrored", "print")
DEFAULT_COPIES = 200
MIN_RELATIVE_VARIANCE = 1e-5
OFFICIAL_DEPTH = 20
SOURCE = (
    "https://thoth.inrialpes.fr/~jegou/data.php (Copydays: 157 originals, 229 strong copies; some hundred MB)"
)
_PAPER_COLOR = (245, 242, 235)


@dataclass(frozen=True)
class Whitening:
    """A linear map that makes the variance of descriptors equal in every direction."""

    mean: Tensor
    """float64 [width]."""
    projection: Tensor
    """float64 [width, width], a row per direction, that of the largest variance first."""
    variances: Tensor
    """float64 [width], the small ones raised."""

    def __call__(self, descriptors: Tensor) -> Tensor:
        """[images, width] -> float64 of the same shape, not normalized."""
        return (descriptors.double() - self.mean) @ self.projection.T


def compute_whitening(descriptors: Tensor, formula: Formula = "corrected") -> Whitening:
    """Compute a whitening from the descriptors of other images, [images, width].

    Variances below 1e-5 of the largest are raised to it.

    Args:
        descriptors: Finite values.
        formula: released takes second moments about zero although it subtracts the mean, as the released code
            does: its output is not white.

    Raises:
        ValueError: Fewer than two descriptors.
    """
    if len(descriptors) < 2:
        raise ValueError(f"Whitening needs at least two descriptors, found {len(descriptors)}.")
    x = descriptors.double()
    mean = x.mean(dim=0)
    centered = x - mean if formula == "corrected" else x
    variances, directions = torch.linalg.eigh(centered.T @ centered / len(x))
    variances, directions = variances.flip(0), directions.flip(1)
    variances = variances.clamp(min=MIN_RELATIVE_VARIANCE * float(variances[0]))
    return Whitening(mean, (directions / variances.sqrt()).T, variances)


def similarity(queries: Tensor, database: Tensor, whitening: Whitening | None = None) -> Tensor:
    """Compute cosines of descriptors: [queries, width], [images, width] -> [queries, images]."""
    if whitening is not None:
        queries, database = whitening(queries), whitening(database)
    return normalize(queries, dim=1) @ normalize(database, dim=1).T


def average_precisions(
    similarity: Tensor, positives: Sequence[Sequence[int]], *, depth: int | None = None
) -> NDArray[np.float64]:
    """Compute the average precision of every query, from 0 to 1.

    Args:
        similarity: [queries, images].
        positives: The images that each query is a copy of, at least one.
        depth: Number of ranks that count. Default: all.
    """
    scores = []
    for ranked in ranks_of(similarity, positives):
        counted = np.sort(ranked if depth is None else ranked[ranked < depth])
        scores.append(average_precision(counted) * len(counted) / len(ranked) if len(counted) else 0.0)
    return np.array(scores)


def make_copy(image: NDArray[np.uint8], copy_type: str, seed: int) -> NDArray[np.uint8]:
    """Make a copy of an image uint8 [height, width, 3], possibly of another size, by a seed.

    `crop` keeps half of the area. `jpeg 10` has quality 10. `blur` is Gaussian, 2 % of the short side.
    `mirrored` flips the image. `print` simulates print and scan: rotated, faded, noisy, with a paper border.
    """
    random = np.random.default_rng(seed)
    copy = Image.fromarray(image)
    width, height = copy.size
    if copy_type == "crop":
        across, down = round(width * 0.5**0.5), round(height * 0.5**0.5)
        left, top = random.integers(0, width - across + 1), random.integers(0, height - down + 1)
        copy = copy.crop((left, top, left + across, top + down))
    elif copy_type == "jpeg 10":
        buffer = io.BytesIO()
        copy.save(buffer, "JPEG", quality=10)
        copy = Image.open(buffer).convert("RGB")
    elif copy_type == "blur":
        copy = copy.filter(ImageFilter.GaussianBlur(0.02 * min(width, height)))
    elif copy_type == "mirrored":
        copy = ImageOps.mirror(copy)
    elif copy_type == "print":
        paper = ImageOps.expand(copy, round(0.05 * min(width, height)), _PAPER_COLOR)
        paper = paper.rotate(random.uniform(-4, 4), Image.Resampling.BICUBIC, fillcolor=_PAPER_COLOR)
        faded = 30 + np.asarray(paper, np.float64) * 0.8 + random.normal(0, 12, (*paper.size[::-1], 1))
        return faded.clip(0, 255).round().astype(np.uint8)
    else:
        raise ValueError(f"Unknown copy type {copy_type!r}. Available: {', '.join(COPY_TYPES)}.")
    return np.asarray(copy)


@dataclass(frozen=True, eq=False, kw_only=True)
class Copies(Images):
    """Images that are read as seeded copies."""

    copy_type: str
    seed: int

    def read(self, index: int, at_least: int = 0) -> NDArray[np.uint8]:
        """Read an image and copy it, with a seed of the file's content; errors as `Images.read`."""
        content = int(blake2b(self.read_bytes(index), digest_size=8).hexdigest(), 16)
        return make_copy(super().read(index, at_least), self.copy_type, mix(self.seed, content))

    def fingerprint(self) -> str:
        """Hash names, sizes and times of change; add the kind of copy."""
        return f"{super().fingerprint()}, {self.copy_type}, seed {self.seed}"


def evaluate(options: CopyDetection) -> None:
    """Run `evaluate copy-detection`."""
    for name in ("original", "strong"):
        if not (options.data / name).is_dir():
            raise ValueError(f"{options.data / name} is missing: Copydays is published at {SOURCE}.")

    def open_folders() -> tuple[Images, Images, Images | None, Images | None]:
        originals, strong = (open_images(options.data / name) for name in ("original", "strong"))
        distractors = open_images(options.distractors) if options.distractors else None
        return originals, strong, distractors, open_images(options.whitening) if options.whitening else None

    originals, strong, distractors, others = ranks.on_first(open_folders, ranks.LISTING_LIMIT)
    positives = _originals_of(strong, originals)
    formula: Formula = "released" if options.official else "corrected"
    depth = OFFICIAL_DEPTH if options.official else None
    hidden = pluralize(len(distractors), "distractor") if distractors else "no distractors"
    whitened = f"{formula} whitening from {len(others):,} images" if others else "no whitening"
    ranked = f"the first {depth} ranks" if depth else "all ranks"

    def measure(model: LoadedModel) -> Metrics:
        database, queries = (_descriptors(options, model, part) for part in (originals, strong))
        whitening = None
        if others is not None:
            descriptors = _descriptors(options, model, others, can_be_incomplete=True)
            whitening = compute_whitening(descriptors, formula)
        if distractors is not None:
            more = _descriptors(options, model, distractors, can_be_incomplete=True)
            database = torch.cat([database, more])
        scores = average_precisions(similarity(queries, database, whitening), positives, depth=depth)
        metrics = {"map": 100 * float(scores.mean())}
        print(f"strong: mAP {metrics['map']:.1f} %")
        return {"metrics": metrics}

    description = f"{_describe(options)}; {len(strong)} strong copies, {hidden}, {whitened}, {ranked}"
    evaluate_models(options, "copy-detection", description, measure, "4", "mAP")


def evaluate_synthetic(options: CopyDetectionSynthetic) -> None:
    """Run `evaluate copy-detection synthetic`."""
    images = ranks.on_first(lambda: open_labeled(options.data, options=options), ranks.LISTING_LIMIT)
    database = images.subset(every_fifth(class_labels(images))[1].tolist())
    count = min(DEFAULT_COPIES, len(database)) if options.copies is None else options.copies
    if count > len(database):
        raise ValueError(f"--copies is {count}: expected at most {len(database)}, the number of test images.")
    chosen = np.random.default_rng(options.seed).choice(len(database), count, replace=False).tolist()

    def measure(model: LoadedModel) -> Metrics:
        features, scores = _descriptors(options, model, database), {}
        for copy_type in COPY_TYPES:
            copies = Copies(**vars(database.subset(chosen)), copy_type=copy_type, seed=options.seed)
            cosines = similarity(_descriptors(options, model, copies), features)
            scores[copy_type] = 100 * float(average_precisions(cosines, [[n] for n in chosen]).mean())
        metrics = {"map": float(np.mean(list(scores.values()))), **scores}
        print("mAP " + ", ".join(f"{name} {value:.1f}" for name, value in metrics.items()))
        return {"metrics": metrics}

    description = (
        f"{_describe(options)}; {pluralize(count, 'image')} copied in each way (seed {options.seed}),"
        f" searched among {len(database):,} of {options.data.name}, {describe_classes(images.classes)}; "
        + "; ".join((*filter(None, [images.reading]), *images.notes, "no whitening"))
    )
    evaluate_models(options, "copies", description, measure)


def _describe(options: Evaluation) -> str:
    return f"{framing_of(options, mode='squash')}; [CLS] and GeM (power 4) of the patches, L2"


def _descriptors(
    options: Evaluation, model: LoadedModel, images: Images, *, can_be_incomplete: bool = False
) -> Tensor:
    """Extract descriptors; a network without [CLS] token gives its one feature."""
    kind = FeatureType(1, "gem", "cls") if has_cls(model.backbone) else OUTPUT
    table = extract(options, model, framing_of(options, model, mode="squash"), images, kind)
    if table.broken and not can_be_incomplete:  # all numbers would shift
        raise ValueError(
            f"Cannot read {pluralize(len(table.broken), 'image')}, listed above: replace or remove."
        )
    return table.features


def _originals_of(copies: Images, originals: Images) -> list[list[int]]:
    """Find the originals of each copy: in Copydays the first four letters of the names are equal."""
    numbers = defaultdict(list)
    for number, name in enumerate(originals.names):
        numbers[Path(name).name[:4]].append(number)
    groups = [numbers[Path(name).name[:4]] for name in copies.names]
    if alone := [name for name, positives in zip(copies.names, groups, strict=True) if not positives]:
        raise ValueError(
            f"{len(alone)} of {len(groups)} strong copies, such as {alone[0]}, have no original."
        )
    return groups
