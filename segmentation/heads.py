"""Segmentation from few masks: linear, logistic and k-NN heads on frozen patch features.

A classifier maps the feature of each patch to one score per class. Scores are enlarged bilinearly to the
image, and each pixel takes the class with the highest score.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from dino_model.inference.quantities import unit_vectors
from dino_model.inference.resize import fed_size
from dino_model.runtime.files import replace_file
from segmentation.labels import VOID, DataError, Labels
from segmentation.mask_files import MaskKind
from segmentation.masks import ImageArray, enlarge

if TYPE_CHECKING:  # commands import this module before they need PyTorch
    from dino_model.inference.predictor import AttentionPredictor

Kind = Literal["linear", "logistic", "knn"]
Array = NDArray[np.float32]

MAX_PATCHES = 50_000  # that a head is fitted on, over all images
STRIP = 256  # rows whose scores are enlarged at once: scores of a whole image could take gigabytes
STEPS, BATCH = 1_000, 1_024  # of the linear head
NEIGHBORS, TEMPERATURE = 20, 0.07  # of the k-NN head, as in the paper's classification
_FORMAT = "segmentation-head-1"
ARRAYS: dict[Kind, tuple[str, str]] = {
    "linear": ("weight", "bias"),
    "logistic": ("weight", "bias"),
    "knn": ("features", "shares"),
}
"""Names of a head's arrays."""


def patch_features(predictor: "AttentionPredictor", image: ImageArray, layers: int = 1) -> Array:
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
class Classifier:
    """Scores of classes from the feature of a patch."""

    labels: tuple[int, ...]  # of each class, ascending: those that occur in the masks it was fitted on
    arrays: dict[str, Array]
    """`weight` [classes, width] and `bias` [classes]; of k-NN the unit `features` [patches, width] and class
    `shares` [patches, classes] of the labeled patches."""

    def segment(self, features: Array, size: tuple[int, int]) -> Labels:
        """Label each pixel of an image: features [rows, columns, width] -> labels of `size`.

        Scores are enlarged in strips of `STRIP` rows, so their memory does not grow with the height.
        """
        if "shares" in self.arrays:
            scores = _vote(features, **self.arrays)
        else:
            scores = features @ self.arrays["weight"].T + self.arrays["bias"]  # [rows, columns, classes]
        rows, (height, width) = len(scores), size
        down = enlarge(np.eye(rows, dtype=np.float32), (height, rows), "bilinear")  # [height, rows]
        labels = np.empty(size, dtype=np.uint8)
        for top in range(0, height, STRIP):
            strip = np.moveaxis(np.tensordot(down[top : top + STRIP], scores, 1), -1, 0)
            wide = enlarge(strip, (strip.shape[1], width), "bilinear")  # [classes, strip, width]
            labels[top : top + STRIP] = np.array(self.labels, dtype=np.uint8)[wide.argmax(axis=0)]
        return labels


def fit_classifier(features: Array, shares: Array, kind: Kind = "linear") -> Classifier:
    """Fit a classifier to the result of `sample_patches`.

    `linear` is DINOv2's head: batch norm and a linear layer, trained on the cross-entropy with the shares of
    the classes. AdamW takes 1,000 steps with weight decay 1e-4 and a learning rate that falls from 1e-2 to 0
    (there 40,000 steps from 1e-3). `logistic` is scikit-learn's logistic regression of standardized features.
    `knn` averages the shares of the 20 most similar patches, weighted by exp(cosine / 0.07). Raises DataError
    for fewer than two classes.

    Source: Oquab et al. 2023, section 7.4; Caron et al. 2021, section 4.1.
    """
    labels = np.flatnonzero(shares.any(axis=0))
    if len(labels) < 2:
        binary = "; if 255 marks an object, pass --binary" if labels[0] == 0 else ""
        raise DataError(f"the masks have label {labels[0]} only; expected at least two classes{binary}")
    shares = np.ascontiguousarray(shares[:, labels])
    fits = {"knn": _fit_knn, "linear": _fit_linear, "logistic": _fit_logistic}
    arrays = fits[kind](features, shares)
    return Classifier(tuple(labels.tolist()), arrays)


def _fit_knn(features: Array, shares: Array) -> dict[str, Array]:
    return {"features": unit_vectors(features), "shares": shares}


def _fit_linear(features: Array, shares: Array) -> dict[str, Array]:
    """Train batch norm and a linear layer, and return them as one linear layer."""
    import torch

    inputs, targets = torch.from_numpy(features), torch.from_numpy(shares)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        norm = torch.nn.BatchNorm1d(inputs.shape[1])
        linear = torch.nn.Linear(inputs.shape[1], shares.shape[1])
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
    return {"weight": weight.numpy(), "bias": bias.numpy()}


def _fit_logistic(features: Array, shares: Array) -> dict[str, Array]:
    from sklearn.linear_model import LogisticRegression

    mean, std = features.mean(axis=0), features.std(axis=0) + 1e-6
    rows, classes = np.nonzero(shares)  # a patch with several classes counts for each with its share
    model = LogisticRegression(max_iter=1000, tol=1e-3)
    model.fit(((features - mean) / std)[rows], classes, sample_weight=shares[rows, classes])
    weight, bias = model.coef_ / std, model.intercept_ - model.coef_ @ (mean / std)
    if len(bias) == 1:  # of two classes scikit-learn returns the logit of the second
        weight, bias = np.concatenate([0 * weight, weight]), np.append(0, bias)
    return {"weight": weight.astype(np.float32), "bias": bias.astype(np.float32)}


def _vote(queries: Array, features: Array, shares: Array) -> Array:
    """Average the class shares of the nearest patches: [rows, columns, width] -> [rows, columns, classes]."""
    import torch

    stored, targets = torch.from_numpy(features), torch.from_numpy(shares)
    votes = []
    for part in torch.from_numpy(unit_vectors(queries)).flatten(0, 1).split(256):
        similarity, nearest = (part @ stored.T).topk(min(NEIGHBORS, len(stored)))
        weights = (similarity / TEMPERATURE).softmax(dim=-1)
        votes.append((weights[..., None] * targets[nearest]).sum(dim=1))
    return torch.cat(votes).unflatten(0, queries.shape[:2]).numpy()


@dataclass(frozen=True)
class Head:
    """A classifier, and all that is needed to use it on images."""

    classifier: Classifier
    kind: Kind
    model: str  # name of the model that it needs
    weights: str  # `model_fingerprint` of the model
    layers: int  # argument of `patch_features`
    size: int  # short side of the model's input in pixels
    foreground: bool  # masks were read with every label other than 0 and 255 as class 1
    names: list[str]  # of labels, from 0 on
    colors: list[list[int]]  # red, green and blue of each of these labels
    threshold: int | None = None  # these three as of `MaskReader`, for masks to score
    mask_kind: MaskKind = "labels"
    mask_values: Sequence[int] = ()

    def save(self, path: Path) -> None:
        """Write a .safetensors file, whole or not at all."""
        from safetensors.numpy import save

        fields = {key: value for key, value in vars(self).items() if key != "classifier"}
        metadata = {"format": _FORMAT, "head": json.dumps(fields | {"labels": self.classifier.labels})}
        with replace_file(path) as temporary:
            temporary.write_bytes(save(self.classifier.arrays, metadata))


def read_head(path: Path) -> Head:
    """Read a head file; raises DataError if it is damaged or no head, OSError if it is missing."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != _FORMAT:
                raise DataError(f"{path} is no segmentation head; pass a file that `head fit` has written")
            fields: dict[str, Any] = json.loads(metadata["head"])
            names = ARRAYS[fields["kind"]]
            rows, others = (file.get_tensor(name) for name in names)
        labels = tuple(fields.pop("labels"))
        head = Head(Classifier(labels, dict(zip(names, (rows, others), strict=True))), **fields)
        fits = len(rows) == len(others) and others.shape[-1] == len(labels)
        if not fits or not 0 <= min(labels) <= max(labels) < len(head.names) <= VOID:
            raise DataError(f"the head {path} is damaged: its arrays do not fit its {len(labels)} classes")
    except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise DataError(f"the head {path} cannot be read: {error}") from None
    return head
