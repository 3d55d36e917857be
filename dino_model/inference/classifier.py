"""Classifiers of frozen features of images and of patches: a linear one and k-NN, and their files."""

import json
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar

import safetensors
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from dino_model.data.framing import Framing
from dino_model.inference.feature_cache import load_same
from dino_model.inference.features import OUTPUT, FeatureType, has_cls
from dino_model.inference.search import UnitVectors, nearest
from dino_model.models.load import LoadedModel
from dino_model.runtime.files import replace_file

FORMAT = "DINO classifier 3"
TOLERANCE = 1e-4
"""Largest entry of the gradient at which a logistic regression ends, as in scikit-learn."""
_ROWS_AT_ONCE = 1024
_MAX_ITERATIONS = 5000
_MAX_LOGITS = 2**25  # in memory: 256 MB of doubles


def vote(cosines: Tensor, targets: Tensor, temperature: float, classes: int) -> Tensor:
    """Compute the share of each class in the vote of the nearest examples: float32 [rows, classes].

    Each example has the weight exp(cosine / temperature). A smaller temperature gives near ones more weight.

    Args:
        cosines: Of the nearest examples, [rows, k].
        targets: Their classes, int64 [rows, k]; or their share of each class, [rows, k, classes].
        temperature: Above 0, else ValueError.
        classes: Number of classes.

    Source: section 4.1, after Wu et al. 2018; there the shares are not divided by the sum of the weights.
    """
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}: expected a number above 0")
    weights = (cosines.float() / temperature).softmax(dim=1)
    if targets.ndim == 3:
        return torch.einsum("tk,tkc->tc", weights, targets.float())
    return weights.new_zeros(len(weights), classes).scatter_add_(1, targets, weights)


@dataclass(frozen=True, kw_only=True)
class NeighborClassifier:
    """Vote of the `k` most similar examples, see `vote`."""

    kind: ClassVar[str] = "knn"

    features: Tensor
    """[examples, values], of any length."""
    targets: Tensor
    """Class of each example, int64 [examples]; or its share of each class, [examples, classes]."""
    classes: int
    k: int = 20
    temperature: float = 0.07
    device: str | torch.device | None = None
    """Device of the search. Default: that of the features."""

    @cached_property
    def units(self) -> UnitVectors:
        """The examples, normalized once for all calls."""
        return UnitVectors(self.features, self.device)

    def scores(self, features: Tensor) -> Tensor:
        """Compute shares of the vote: [rows, values] -> [rows, classes]."""
        cosines, numbers = nearest(features, self.units, self.k)
        parts = zip(cosines.split(_ROWS_AT_ONCE), numbers.split(_ROWS_AT_ONCE), strict=True)
        return torch.cat(
            [vote(near, self.targets[rows], self.temperature, self.classes) for near, rows in parts]
        )


@dataclass(frozen=True)
class LinearClassifier:
    """Linear classifier: W x + b."""

    kind: ClassVar[str] = "linear"

    weight: Tensor
    """W [classes, values]."""
    bias: Tensor
    """b [classes]."""
    unit_length: bool = False
    """True if x is divided by its length."""

    def scores(self, features: Tensor) -> Tensor:
        """Compute logits: [rows, values] -> [rows, classes]."""
        return torch.cat([self._score(part) for part in features.split(_ROWS_AT_ONCE)])

    def _score(self, features: Tensor) -> Tensor:
        inputs = features.to(self.weight)
        return (F.normalize(inputs, dim=1) if self.unit_length else inputs) @ self.weight.T + self.bias


Classifier = LinearClassifier | NeighborClassifier


@dataclass(frozen=True)
class LogisticFit:
    """Result of `fit_logistic`."""

    classifier: LinearClassifier
    """Weights and biases are float64; the biases have the mean 0."""
    objective: float
    """F at the end."""
    gradient: float
    """Largest entry of the gradient at the end."""


def fit_logistic(
    features: Tensor,
    targets: Tensor,
    classes: int,
    *,
    l2: float,
    intercept: bool = False,
    tolerance: float = TOLERANCE,
    device: str | torch.device = "cpu",
) -> LogisticFit:
    """Minimize F(W, b) = 1/n Σ −log softmax(W x + b)[y] + λ/2 ‖W‖² by L-BFGS.

    scikit-learn's solver needs three classes, an example of each, and memory for the logits of all examples.

    Args:
        features: x [examples, values], finite.
        targets: y, int64 [examples] below `classes`; or the share of each class [examples, classes], in which
            case the first term is the cross-entropy with the shares.
        classes: Number of classes.
        l2: λ · n.
        intercept: Fit biases b.
        tolerance: Largest entry of the gradient at which the fit ends.
        device: Device of the computation; doubles on a CPU, else fp32.

    Raises:
        ValueError: One class, or a fit that did not end in finite weights.
    """
    if len(targets.unique() if targets.ndim == 1 else targets.any(dim=0).nonzero()) < 2:
        raise ValueError("All training images are of one class: two are needed.")
    device = torch.device(device)
    dtype = torch.float64 if device.type == "cpu" else torch.float32  # doubles are slow elsewhere, or missing
    both = torch.zeros(classes, features.shape[1] + 1, dtype=dtype, device=device, requires_grad=True)
    x, y = features.to(device), targets.to(device)
    optimizer = torch.optim.LBFGS(
        [both],
        max_iter=_MAX_ITERATIONS,
        tolerance_grad=tolerance,
        tolerance_change=0,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = _objective(both, x, y, l2 / len(y))
        assert both.grad is not None
        if not intercept:
            both.grad[:, -1] = 0
        return value

    optimizer.step(closure)
    if not both.isfinite().all():
        raise ValueError("Logistic regression did not end in finite weights: raise --l2.")
    value = float(closure())
    assert both.grad is not None
    solution = both.detach().double().cpu()
    weight, bias = solution[:, :-1].contiguous(), solution[:, -1] - solution[:, -1].mean()
    return LogisticFit(LinearClassifier(weight, bias), value, float(both.grad.abs().max()))


def _objective(both: Tensor, features: Tensor, targets: Tensor, penalty: float) -> Tensor:
    """Compute F of weights and biases [classes, values + 1] in chunks of examples; set their gradient."""
    value = penalty / 2 * both[:, :-1].square().sum()
    value.backward()
    value, rows = value.detach(), max(1, _MAX_LOGITS // len(both))
    for chunk, truth in zip(features.split(rows), targets.split(rows), strict=True):
        logits = F.linear(chunk.to(both.dtype), both[:, :-1], both[:, -1])
        truth = truth if truth.ndim == 1 else truth.to(both.dtype)
        loss = F.cross_entropy(logits, truth, reduction="sum") / len(targets)
        loss.backward()
        value += loss.detach()
    return value


@dataclass(frozen=True)
class FeatureSpec:
    """Input of a linear classifier of images."""

    blocks: int = 4
    """Number of last blocks whose [CLS] is used, oldest first."""
    average: Literal["no", "after", "interleaved"] = "no"
    """Mean of the last block's patches: left out, after the [CLS], or value by value next to it, as the
    released heads of ViT-B expect (one block only)."""

    @classmethod
    def parse(cls, text: str) -> "FeatureSpec":
        """Parse the option, such as `4` or `1+average`."""
        blocks, _, average = text.partition("+")
        return cls(int(blocks), "after" if average else "no")

    def __str__(self) -> str:
        blocks = "[CLS]" if self.blocks == 1 else f"[CLS] of {self.blocks} blocks"
        return blocks if self.average == "no" else f"{blocks} and the mean of the patches ({self.average})"

    def select(self, features: Tensor) -> Tensor:
        """[images, blocks + 1, width] -> [images, values]."""
        selected, average = features[:, -1 - self.blocks : -1].flatten(1), features[:, -1]
        match self.average:
            case "no":
                return selected
            case "after":
                return torch.cat([selected, average], dim=1)
            case "interleaved":
                return torch.stack([selected, average], dim=-1).flatten(1)


def feature_type(model: LoadedModel, blocks: int) -> FeatureType:
    """Return the features that classifiers of this many last blocks select from."""
    return FeatureType(blocks, "average", "cls") if has_cls(model.backbone) else OUTPUT


def in_blocks(model: LoadedModel, features: Tensor, blocks: int) -> Tensor:
    """[images, values] -> [images, blocks + 1, width]; without blocks, the one feature repeated."""
    if not has_cls(model.backbone):
        return features[:, None].expand(-1, blocks + 1, -1)
    return features.unflatten(1, (blocks + 1, -1))


@dataclass(frozen=True, kw_only=True)
class ImageTask:
    """Input and output of a classifier of images."""

    task: ClassVar[str] = "images"
    writer: ClassVar[str] = "training evaluate linear … --save-head FILE"

    spec: FeatureSpec
    several: bool
    """True if an image has several classes or none: a sigmoid predicts each one."""
    size: int
    """Side of the center crop in pixels."""
    resize_to: int
    """Short side before the crop in pixels."""

    @classmethod
    def parse(cls, settings: dict[str, Any]) -> Self:
        """See `Task`."""
        return cls(**settings | {"spec": FeatureSpec(**settings["spec"])})

    def framing(self, model: LoadedModel) -> Framing:
        """Return how images are framed for the model."""
        return Framing(self.size, model.mean, model.std, self.resize_to)

    def scores(self, classifier: Classifier, model: LoadedModel, features: Tensor) -> Tensor:
        """Compute logits from features of `feature_type`: [images, values] -> [images, classes]."""
        return classifier.scores(self.spec.select(in_blocks(model, features, self.spec.blocks)))

    def probabilities(self, classifier: Classifier, model: LoadedModel, features: Tensor) -> Tensor:
        """Compute probabilities from features of `feature_type`: [images, values] -> [images, classes]."""
        logits = self.scores(classifier, model, features).float()
        return logits.sigmoid() if self.several else logits.softmax(dim=1)


class Task(Protocol):
    """A dataclass of JSON types: what the features and the outputs of a classifier depend on.

    `task` is its name in files, `writer` the command that writes such a file. `parse` makes the task of its
    fields from JSON; a KeyError, TypeError or ValueError refuses them.
    """

    task: ClassVar[str]
    writer: ClassVar[str]

    @classmethod
    def parse(cls, settings: dict[str, Any]) -> Self:
        """See above."""


T = TypeVar("T", bound=Task)


@dataclass(frozen=True, kw_only=True)
class SavedClassifier(Generic[T]):
    """A classifier, and all that is needed to use it."""

    classifier: Classifier
    task: T
    classes: tuple[str, ...]
    """Names of the classes."""
    model: str
    """Name of the model of its features."""
    weights: str
    """`model_fingerprint` of the model."""
    checkpoint: dict[str, Any] = field(default_factory=dict)
    """Options that choose the network of a checkpoint, as `CheckpointOptions.checkpoint`."""

    def load_model(self, file: Path, name: str | None = None, **checkpoint: Any) -> LoadedModel:
        """Load the model that `file` names, or the same weights under another name; errors as `load_same`.

        `checkpoint` has further arguments of `load_model`, None for those in the file.
        """
        own = {option: value for option, value in checkpoint.items() if value is not None}
        return load_same(file, self.model, self.weights, name, **self.checkpoint | own)

    def write(self, file: Path) -> None:
        """Write a .safetensors file, whole or not at all."""
        classifier = self.classifier
        values = {each.name: getattr(classifier, each.name) for each in fields(classifier)}
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        parts = {name: values[name] for name in values.keys() - tensors.keys() - {"classes", "device"}}
        names: Any = {"classes": self.classes, "model": self.model, "weights": self.weights}
        settings: Any = asdict(self.task)  # type: ignore[call-overload]
        header = names | {"checkpoint": self.checkpoint, "task": self.task.task, "settings": settings}
        header |= {"kind": classifier.kind, "parts": parts}
        stored = {name: tensor.float().contiguous() for name, tensor in tensors.items()}
        with replace_file(file) as temporary:
            save_file(stored, temporary, {"format": FORMAT, "classifier": json.dumps(header)})


def read_classifier(file: Path, kind: type[T]) -> SavedClassifier[T]:
    """Read what `SavedClassifier.write` wrote for a task of this kind.

    Raises:
        ValueError: A missing, damaged or other file, one of another version or of another task.
    """
    try:
        with safetensors.safe_open(file, "np") as opened:
            metadata = opened.metadata() or {}
            if metadata.get("format") != FORMAT:
                found = metadata.get("format") or json.loads(metadata.get("classifier", "{}")).get("format")
                raise ValueError(f"its format is {found or 'unknown'}, expected {FORMAT}")
            header: dict[str, Any] = json.loads(metadata["classifier"])
            names = opened.keys()
            tensors: Any = {name: torch.from_numpy(opened.get_tensor(name)) for name in names}
        if header["task"] != kind.task:
            raise ValueError(f"it classifies {header['task']}, expected {kind.task}")
        classes = tuple(header["classes"])
        classifier: Classifier
        if header["kind"] == LinearClassifier.kind:
            classifier = LinearClassifier(**tensors, **header["parts"])
            shapes = {(len(classes), classifier.weight.shape[1]), (len(classes),)}
        elif header["kind"] == NeighborClassifier.kind:
            classifier = NeighborClassifier(**tensors, classes=len(classes), **header["parts"])
            shapes = {tuple(classifier.features.shape), (len(classifier.features), len(classes))}
        else:
            raise ValueError(f"its kind is {header['kind']!r}, expected linear or knn")
        fits = {tuple(tensor.shape) for tensor in tensors.values()} == shapes
        if not fits:
            raise ValueError(f"its tensors do not fit its {len(classes)} classes")
        named = {name: header[name] for name in ("model", "weights", "checkpoint")}
        task = kind.parse(header["settings"])
        return SavedClassifier(classifier=classifier, task=task, classes=classes, **named)
    except (KeyError, TypeError, ValueError, OSError, safetensors.SafetensorError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise ValueError(
            f"{file} is no classifier of {kind.task} of this program ({reason}): write one with `python -m"
            f" {kind.writer}`."
        ) from error
