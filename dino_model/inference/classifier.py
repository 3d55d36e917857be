"""Linear classifiers of frozen features: inputs, scores, and the files of `python -m dino_model predict`.

Features are [CLS] of the last blocks, then the mean of the last block's patches: [images, blocks + 1, width].
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import normalize

from dino_model.data.framing import Framing
from dino_model.inference.feature_cache import model_fingerprint
from dino_model.inference.features import OUTPUT, FeatureType, has_cls
from dino_model.models.weights import LoadedModel
from dino_model.runtime.files import replace_file

FORMAT = "classifier-1"
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class FeatureSpec:
    """Input of a linear classifier."""

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


@dataclass(frozen=True)
class LinearHead:
    """Linear classifier."""

    spec: FeatureSpec
    weights: Tensor
    """[classes, values]."""
    bias: Tensor
    """[classes]."""
    unit_length: bool = False
    """True if the inputs are divided by their lengths."""

    def scores(self, features: Tensor) -> Tensor:
        """Compute logits: [images, blocks + 1, width] -> [images, classes]."""
        return torch.cat([self._score(part) for part in features.split(_ROWS_AT_ONCE)])

    def _score(self, features: Tensor) -> Tensor:
        inputs = self.spec.select(features).to(self.weights)
        return (normalize(inputs, dim=1) if self.unit_length else inputs) @ self.weights.T + self.bias


def feature_type(model: LoadedModel, blocks: int) -> FeatureType:
    """Return the features that classifiers of this many last blocks select from."""
    return FeatureType(blocks, "average", "cls") if has_cls(model.backbone) else OUTPUT


def in_blocks(model: LoadedModel, features: Tensor, blocks: int) -> Tensor:
    """[images, values] -> [images, blocks + 1, width]; without blocks, the one feature repeated."""
    if not has_cls(model.backbone):
        return features[:, None].expand(-1, blocks + 1, -1)
    return features.unflatten(1, (blocks + 1, -1))


@dataclass(frozen=True)
class Classifier:
    """A linear classifier with everything that its predictions depend on."""

    head: LinearHead
    classes: tuple[str, ...]
    several: bool
    """True if an image has several classes or none: a sigmoid predicts each one."""
    model: str
    """Name of the model."""
    weights: str
    """Fingerprint of the model's weights."""
    checkpoint: dict[str, Any]
    """Options that choose the network of a checkpoint, as `CheckpointOptions.checkpoint`."""
    size: int
    """Side of the center crop in pixels."""
    resize_to: int
    """Short side before the crop in pixels."""

    def framing(self, model: LoadedModel) -> Framing:
        """Return how images are framed for the model."""
        return Framing(self.size, model.mean, model.std, self.resize_to)

    def probabilities(self, model: LoadedModel, features: Tensor) -> Tensor:
        """Compute probabilities from features of `feature_type`: [images, values] -> [images, classes]."""
        logits = self.head.scores(in_blocks(model, features, self.head.spec.blocks)).float()
        return logits.sigmoid() if self.several else logits.softmax(dim=1)

    def check(self, model: LoadedModel) -> None:
        """Raise ValueError for a model with other weights."""
        if model_fingerprint(model.backbone) != self.weights:
            raise ValueError(
                f"It was fitted to other weights of {self.model!r}: pass that model with --model, or fit"
                " again."
            )


def write_classifier(path: Path, classifier: Classifier) -> None:
    """Write a classifier as .safetensors, whole or not at all."""
    head = classifier.head
    settings = {name: value for name, value in vars(classifier).items() if name != "head"}
    settings |= {"format": FORMAT, "spec": asdict(head.spec), "unit_length": head.unit_length}
    tensors = {"weight": head.weights.float().contiguous(), "bias": head.bias.float().contiguous()}
    with replace_file(path) as temporary:
        save_file(tensors, temporary, {"classifier": json.dumps(settings)})


def read_classifier(path: Path) -> Classifier:
    """Read what `write_classifier` wrote.

    Raises:
        ValueError: No such file, or one of another kind.
    """
    try:
        with safetensors.safe_open(path, "np") as file:
            settings: dict[str, Any] = json.loads((file.metadata() or {})["classifier"])
            weights, bias = (*(torch.from_numpy(file.get_tensor(name)) for name in ("weight", "bias")),)
        if settings.pop("format") != FORMAT:
            raise ValueError("another format")
        spec, unit_length = FeatureSpec(**settings.pop("spec")), settings.pop("unit_length")
        classes = tuple(settings.pop("classes"))
        if weights.ndim != 2 or not len(weights) == len(bias) == len(classes):
            raise ValueError("weights and classes do not fit")
        return Classifier(LinearHead(spec, weights, bias, unit_length), classes, **settings)
    except (KeyError, TypeError, ValueError, OSError, safetensors.SafetensorError) as error:
        raise ValueError(
            f"{path} is no classifier of this program ({error}): write one with"
            " `python -m training evaluate linear … --save-head FILE`."
        ) from error
