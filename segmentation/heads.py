"""Segmentation from few masks: linear, logistic and k-NN heads on frozen patch features.

A classifier maps the feature of each patch to one score per class. Scores are enlarged bilinearly to the
image, and each pixel takes the class with the highest score.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import cv2
import numpy as np
from numpy.typing import NDArray

from dino_model.inference.resize import fed_size
from dino_model.runtime.files import as_tuples
from segmentation.annotations import LabelSet
from segmentation.labels import VOID, DataError, Labels
from segmentation.masks import ImageArray, enlarge

if TYPE_CHECKING:  # commands import this module before they need PyTorch
    from torch import Tensor

    from dino_model.inference.classifier import Classifier
    from dino_model.inference.predictor import AttentionPredictor

HeadKind = Literal["linear", "logistic", "knn"]
Array = NDArray[np.float32]

MAX_PATCHES = 50_000  # that a head is fitted on, over all images
STRIP = 256  # rows whose scores are enlarged at once: scores of a whole image could take gigabytes
STEPS, BATCH = 1_000, 1_024  # of the linear head


def patch_features(predictor: "AttentionPredictor", image: ImageArray, layers: int) -> Array:
    """Compute patch tokens of the last layers after the final norm: [rows, columns, layers * width]."""
    predictor.set_image(image)
    return np.concatenate([predictor.token_features(block) for block in range(-layers, 0)], axis=-1)


def color_position(image: ImageArray, size: int, patch_size: int) -> Array:
    """Compute mean color and position of each patch, and all their products of two: [rows, columns, 20]."""
    height, width = fed_size(image.shape[0], image.shape[1], size, "short-side", patch_size)
    rows, columns = height // patch_size, width // patch_size
    color = cv2.resize(image, (columns, rows), interpolation=cv2.INTER_AREA) / 255 - 0.5
    y, x = np.meshgrid(np.linspace(-0.5, 0.5, rows), np.linspace(-0.5, 0.5, columns), indexing="ij")
    values = np.concatenate([color, y[..., None], x[..., None]], axis=-1)
    first, second = np.triu_indices(values.shape[-1])
    return np.concatenate([values, values[..., first] * values[..., second]], axis=-1, dtype=np.float32)


def class_shares(labels: Labels, grid: tuple[int, int]) -> Array:
    """Compute the share of each label 0 to 254 among the labeled pixels of each patch; 255 is unlabeled.

    Returns [rows, columns, 255]. The shares of a patch sum to 1, or to 0 if no pixel is labeled.
    """
    shares = np.zeros((*grid, VOID), dtype=np.float32)
    for label in np.unique(labels[labels != VOID]):
        mask = (labels == label).astype(np.float32)
        shares[..., label] = cv2.resize(mask, grid[::-1], interpolation=cv2.INTER_AREA)
    total = shares.sum(axis=-1, keepdims=True)
    return np.divide(shares, total, out=shares, where=total > 0)


def sample_patches(maps: Iterable[tuple[Array, Labels]], images: int) -> tuple[Array, Array]:
    """Collect labeled patches, at most `MAX_PATCHES` in total and `MAX_PATCHES / images` of each image.

    `maps` are features [rows, columns, width] and labels [height, width] of each image. Returns features
    [patches, width] and `class_shares` [patches, 255]. Raises DataError if no pixel is labeled.
    """
    random, limit = np.random.default_rng(0), max(1, MAX_PATCHES // images)
    features, shares = [], []
    for grid_features, labels in maps:
        grid_shares = class_shares(labels, grid_features.shape[:2]).reshape(-1, VOID)
        labeled = random.permutation(np.flatnonzero(grid_shares.any(axis=1)))[:limit]
        features.append(grid_features.reshape(len(grid_shares), -1)[labeled])
        shares.append(grid_shares[labeled])
    if not sum(map(len, features)):
        raise DataError("no pixel of the masks is labeled; expected labels other than 255")
    return np.concatenate(features), np.concatenate(shares)


@dataclass(frozen=True)
class PatchClassifier:
    """Labels of pixels from the features of patches."""

    labels: tuple[int, ...]
    """Label of each class, ascending: those that occur in the masks it was fitted on."""
    classifier: "Classifier"

    def segment(self, features: Array, size: tuple[int, int]) -> Labels:
        """Label each pixel of an image: features [rows, columns, width] -> labels of `size`.

        Scores are enlarged in strips of `STRIP` rows, so their memory does not grow with the height.
        """
        import torch

        rows, columns, width = features.shape
        flat = self.classifier.scores(torch.from_numpy(features.reshape(-1, width))).numpy()
        scores, height = flat.reshape(rows, columns, -1), size[0]  # [rows, columns, classes]
        down = enlarge(np.eye(rows, dtype=np.float32), (height, rows), "bilinear")  # [height, rows]
        labels = np.empty(size, dtype=np.uint8)
        for top in range(0, height, STRIP):
            strip = np.moveaxis(np.tensordot(down[top : top + STRIP], scores, 1), -1, 0)
            wide = enlarge(strip, (strip.shape[1], size[1]), "bilinear")  # [classes, strip, width]
            labels[top : top + STRIP] = np.array(self.labels, dtype=np.uint8)[wide.argmax(axis=0)]
        return labels


def fit_classifier(features: Array, shares: Array, kind: HeadKind = "linear") -> PatchClassifier:
    """Fit a classifier to the result of `sample_patches`.

    `linear` is DINOv2's head: batch norm and a linear layer, trained on the cross-entropy with the shares of
    the classes. AdamW takes 1,000 steps with weight decay 1e-4 and a learning rate that falls from 1e-2 to 0
    (there 40,000 steps from 1e-3). `logistic` is a logistic regression of standardized features with l2 = 1.
    `knn` averages the shares of the 20 most similar patches, weighted by exp(cosine / 0.07). Raises DataError
    for fewer than two classes.

    Source: Oquab et al. 2023, section 7.4; Caron et al. 2021, section 4.1.
    """
    import torch

    from dino_model.inference.classifier import NeighborClassifier

    labels = np.flatnonzero(shares.any(axis=0))
    if len(labels) < 2:
        binary = "; if 255 marks an object, pass --binary" if labels[0] == 0 else ""
        raise DataError(f"the masks have label {labels[0]} only; expected at least two classes{binary}")
    examples, targets = torch.from_numpy(features), torch.from_numpy(np.ascontiguousarray(shares[:, labels]))
    classifier: Classifier
    match kind:
        case "knn":
            classifier = NeighborClassifier(features=examples, targets=targets, classes=len(labels))
        case "linear":
            classifier = _fit_linear(examples, targets)
        case "logistic":
            classifier = _fit_logistic(examples, targets)
    return PatchClassifier(tuple(labels.tolist()), classifier)


def _fit_linear(inputs: "Tensor", targets: "Tensor") -> "Classifier":
    """Train batch norm and a linear layer, and return them as one linear classifier."""
    import torch

    from dino_model.inference.classifier import LinearClassifier

    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        norm = torch.nn.BatchNorm1d(inputs.shape[1])
        linear = torch.nn.Linear(inputs.shape[1], targets.shape[1])
        torch.nn.init.normal_(linear.weight, std=0.01)
        torch.nn.init.zeros_(linear.bias)
        parameters = [*norm.parameters(), *linear.parameters()]
        optimizer = torch.optim.AdamW(parameters, lr=1e-2, weight_decay=1e-4)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, STEPS)
        for _ in range(STEPS):
            batch = torch.randint(len(inputs), (BATCH,))
            loss = torch.nn.functional.cross_entropy(linear(norm(inputs[batch])), targets[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    norm.eval()
    with torch.no_grad():  # the layers are affine: their outputs at 0 and at the unit vectors define them
        bias = linear(norm(torch.zeros(1, inputs.shape[1])))[0]
        weight = (linear(norm(torch.eye(inputs.shape[1]))) - bias).T.contiguous()
    return LinearClassifier(weight, bias)


def _fit_logistic(inputs: "Tensor", targets: "Tensor") -> "Classifier":
    from dino_model.inference.classifier import LinearClassifier, fit_logistic

    mean, std = inputs.mean(dim=0), inputs.std(dim=0, correction=0) + 1e-6
    standardized, classes = (inputs - mean) / std, targets.shape[1]
    fit = fit_logistic(standardized, targets, classes, l2=1, intercept=True)
    weight = fit.classifier.weight / std
    return LinearClassifier(weight.float(), (fit.classifier.bias - weight @ mean.double()).float())


@dataclass(frozen=True, kw_only=True)
class PatchTask:
    """Input and output of a segmentation head."""

    task: ClassVar[str] = "patches"
    writer: ClassVar[str] = "segmentation head fit …"

    labels: tuple[int, ...]
    """See `PatchClassifier`."""
    kind: HeadKind
    layers: int
    """Argument of `patch_features`."""
    size: int
    """Short side of the model's input in pixels."""
    foreground: bool
    """Whether masks were read with every label other than 0 and 255 as class 1."""
    names: tuple[str, ...]
    """Of labels, from 0 on."""
    colors: tuple[tuple[int, int, int], ...]
    """Red, green and blue of each of these labels."""
    masks: dict[str, Any] = field(default_factory=lambda: asdict(LabelSet()))
    """Fields of `label_set`."""

    def __post_init__(self) -> None:
        if not 0 <= min(self.labels) <= max(self.labels) < len(self.names) <= VOID:
            raise ValueError(f"its labels {self.labels} are not those of {len(self.names)} names")

    @property
    def classes(self) -> tuple[str, ...]:
        """Name of each class of the classifier."""
        return tuple(self.names[label] for label in self.labels)

    @property
    def label_set(self) -> LabelSet:
        """How the masks were read, for masks to score."""
        return LabelSet(**{name: as_tuples(value) for name, value in self.masks.items()})

    @classmethod
    def parse(cls, settings: dict[str, Any]) -> Self:
        """Make the task of its fields from JSON."""
        return cls(**{name: as_tuples(value) for name, value in settings.items()})
