"""Linear classifiers on frozen features (section 4.1 and appendix F of the paper), a whole grid in one pass.

Features are [CLS] of the last blocks and the mean of the last block's patches, [pictures, blocks + 1, width]:
what each classifier of the grid looks at is put together from them.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dino_model.device import DTYPES, ComputePrecision
from training.randomness import mix

Average = Literal["no", "after", "interleaved"]
RATES = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Thirteen learning rates; the paper's are not published."""


@dataclass(frozen=True)
class Reads:
    """What a linear classifier looks at."""

    blocks: int = 4
    """[CLS] of so many last blocks, oldest first."""
    average: Average = "no"
    """The mean of the last block's patches: left out, after the [CLS], or number by number beside it, which
    is the order that the released heads of ViT-B expect (one block only)."""

    def __post_init__(self) -> None:
        if self.blocks < 1 or (self.average == "interleaved" and self.blocks != 1):
            raise ValueError(f"cannot read {self.blocks} blocks with the average {self.average!r}")

    def __str__(self) -> str:
        blocks = "[CLS]" if self.blocks == 1 else f"[CLS] of {self.blocks} blocks"
        return blocks if self.average == "no" else f"{blocks} and the patches' mean ({self.average})"

    def of(self, features: Tensor) -> Tensor:
        """[pictures, blocks + 1, width] -> [pictures, numbers]; the last row of each picture is the average.

        Raises:
            ValueError: fewer blocks than are read.
        """
        cls, average = features[:, :-1], features[:, -1]
        if cls.shape[1] < self.blocks:
            raise ValueError(f"features hold {cls.shape[1]} blocks, {self.blocks} are read")
        read = cls[:, cls.shape[1] - self.blocks :].flatten(1)
        if self.average == "no":
            return read
        if self.average == "after":
            return torch.cat([read, average], dim=1)
        return torch.stack([read, average], dim=-1).flatten(1)


@dataclass(frozen=True)
class LinearProtocol:
    """What decides a linear figure, apart from features and labels."""

    rates: tuple[float, ...] = RATES
    """Learning rates for a batch of 256; another batch scales them."""
    reads: tuple[Reads, ...] = (Reads(1), Reads(4), Reads(1, "after"))
    """What is looked at; each with every rate."""
    epochs: int = 100
    """Passes over the training pictures."""
    batch_size: int = 256
    """Pictures in a step."""
    momentum: float = 0.9
    """Of SGD; there is no weight decay."""
    seed: int = 0
    """Of the first weights and of the order of pictures."""

    def __post_init__(self) -> None:
        if not self.rates or min(self.rates) <= 0 or not self.reads:
            raise ValueError("name at least one learning rate above 0 and one kind of features")
        if self.epochs < 1 or self.batch_size < 1:
            raise ValueError(f"{self.epochs} epochs of batches of {self.batch_size}: both must be at least 1")

    def __str__(self) -> str:
        grid = f"{len(self.rates)} learning rates from {min(self.rates):g} to {max(self.rates):g}"
        kinds = "; ".join(map(str, self.reads))
        return (
            f"{grid} × {len(self.reads)} kinds ({kinds}); SGD, momentum {self.momentum:g}, no weight decay,"
            f" cosine to 0 by epochs, {self.epochs} epochs, batch {self.batch_size}"
        )


class Heads:
    """A grid of linear classifiers that learn from the same pictures at once; for each kind one product."""

    def __init__(
        self,
        protocol: LinearProtocol,
        width: int,
        classes: int,
        *,
        device: torch.device | str = "cpu",
        precision: ComputePrecision = "fp32",
    ) -> None:
        """Weights from N(0, 0.01), zeros for intercepts, as the official code has it.

        Args:
            protocol: rates and kinds.
            width: of a block's [CLS].
            classes: how many there are.
            device: where they learn.
            precision: of the products; weights, momenta and softmax are fp32.
        """
        self.protocol, self.classes = protocol, classes
        self.dtype = DTYPES[precision]
        random = torch.Generator().manual_seed(protocol.seed)
        self.weights: list[Tensor] = []
        self.momenta: list[Tensor] = []
        for reads in protocol.reads:
            numbers = width * (reads.blocks + (reads.average != "no"))
            first = torch.randn(numbers, classes, generator=random) * 0.01
            weights = torch.cat([first, torch.zeros(1, classes)])  # the last row: intercepts
            self.weights.append(weights.repeat(1, len(protocol.rates)).to(device))
            self.momenta.append(torch.zeros_like(self.weights[-1]))
        self._rates = torch.tensor(protocol.rates, device=device).repeat_interleave(classes)

    def step(self, features: Tensor, labels: Tensor, epoch: int) -> Tensor:
        """Learn from a batch.

        Args:
            features: [batch, blocks + 1, width].
            labels: int64 [batch].
            epoch: from 0; the learning rate goes by it.

        Returns:
            Mean cross-entropy of every classifier before the step: [kinds, rates].
        """
        cosine = (1 + math.cos(math.pi * epoch / self.protocol.epochs)) / 2
        rates = self._rates * (cosine * self.protocol.batch_size / 256)
        losses = []
        for reads, weights, momenta in zip(self.protocol.reads, self.weights, self.momenta, strict=True):
            read = reads.of(features.to(self.dtype))
            wrong = self._logits(read, weights).softmax(dim=2)  # [batch, rates, classes]
            place = labels[:, None, None].expand(-1, len(self.protocol.rates), 1)
            own = wrong.gather(2, place)
            losses.append(-own[..., 0].clamp(min=1e-30).log().mean(dim=0))
            wrong.scatter_(2, place, own - 1)
            wrong = wrong.flatten(1).div_(len(labels))
            momenta.mul_(self.protocol.momentum)
            momenta[:-1] += read.T @ wrong.to(self.dtype)
            momenta[-1] += wrong.sum(dim=0)
            weights.addcmul_(momenta, rates, value=-1)
        return torch.stack(losses)

    def top1(self, features: Tensor, labels: Tensor) -> Tensor:
        """Share of rightly named pictures of every classifier, in percent: [kinds, rates]."""
        right = torch.zeros(len(self.weights), len(self.protocol.rates))
        for seen, truth in zip(features.split(4096), labels.split(4096), strict=True):
            for kind, reads in enumerate(self.protocol.reads):
                named = self._logits(reads.of(seen.to(self.dtype)), self.weights[kind]).argmax(dim=2)
                right[kind] += (named == truth[:, None]).sum(dim=0).cpu()
        return 100 * right / len(labels)

    def _logits(self, read: Tensor, weights: Tensor) -> Tensor:
        logits = (read @ weights[:-1].to(self.dtype)).float() + weights[-1]
        return logits.unflatten(1, (-1, self.classes))

    def head(self, kind: int, rate: int) -> "Head":
        """One classifier of the grid."""
        weights = self.weights[kind].unflatten(1, (-1, self.classes))[:, rate]
        return Head(self.protocol.reads[kind], weights[:-1].T.contiguous(), weights[-1].clone())

    def state(self) -> dict[str, Tensor]:
        """All that a later `restore` needs to go on."""
        pairs = enumerate(zip(self.weights, self.momenta, strict=True))
        return {f"{name}{i}": t for i, pair in pairs for name, t in zip("wm", pair, strict=True)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a `state` of a grid of the same protocol."""
        for i, (weights, momenta) in enumerate(zip(self.weights, self.momenta, strict=True)):
            weights.copy_(state[f"w{i}"])
            momenta.copy_(state[f"m{i}"])


@dataclass(frozen=True)
class Head:
    """One linear classifier."""

    reads: Reads
    weights: Tensor
    """[classes, numbers]."""
    intercepts: Tensor
    """[classes]."""

    def scores(self, features: Tensor) -> Tensor:
        """Before the softmax: [pictures, blocks + 1, width] -> [pictures, classes]."""
        return self.reads.of(features) @ self.weights.T + self.intercepts


@dataclass(frozen=True)
class Choice:
    """The best classifier of a grid on pictures that it did not learn from."""

    kind: int
    rate: int
    top1: tuple[tuple[float, ...], ...]
    """Of every classifier on those pictures, in percent: [kinds][rates]."""


def train_heads(
    features: Tensor,
    labels: Tensor,
    classes: int,
    protocol: LinearProtocol,
    *,
    device: torch.device | str = "cpu",
    precision: ComputePrecision = "fp32",
) -> Heads:
    """A grid that learnt from fixed features; arguments and errors as `Heads` and `learn`."""
    heads = Heads(protocol, features.shape[-1], classes, device=device, precision=precision)
    learn(heads, features, labels, range(protocol.epochs))
    return heads


def learn(heads: Heads, features: Tensor, labels: Tensor, epochs: Iterable[int]) -> None:
    """Epochs over fixed features.

    Args:
        heads: changed in place.
        features: [pictures, blocks + 1, width].
        labels: int64 [pictures], below the number of classes.
        epochs: their numbers, from 0; the order of the pictures and the rate go by them.

    Raises:
        ValueError: shapes that do not fit, features that are not finite.
    """
    check(features, labels, heads.classes)
    device = heads.weights[0].device
    features, labels = features.to(device, heads.dtype), labels.to(device)
    for epoch in epochs:
        for chosen in batches(len(labels), heads.protocol, epoch):
            heads.step(features[chosen], labels[chosen], epoch)


def batches(count: int, protocol: LinearProtocol, epoch: int) -> Iterator[Tensor]:
    """Numbers of the pictures of every step of an epoch; the last batch may be smaller."""
    random = torch.Generator().manual_seed(mix(protocol.seed, epoch))
    yield from torch.randperm(count, generator=random).split(protocol.batch_size)


def choose(heads: Heads, features: Tensor, labels: Tensor) -> Choice:
    """The classifier that names most of these rightly; of equal ones the first kind and least rate."""
    top1 = heads.top1(features, labels)
    kind, rate = divmod(int(top1.flatten().argmax()), top1.shape[1])
    return Choice(kind, rate, tuple(tuple(row) for row in top1.tolist()))


def held_back(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Indices that learn and indices to choose by: of each class every fifth picture, in their order.

    Raises:
        ValueError: no class has five pictures.
    """
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        chosen[(labels == label).nonzero()[4::5, 0]] = True
    if not chosen.any():
        raise ValueError("no class has five training pictures: there is none to choose the learning rate by")
    return (~chosen).nonzero()[:, 0], chosen.nonzero()[:, 0]


def official_head(tensors: Mapping[str, Tensor], width: int) -> Head:
    """A head as the official code published them.

    Args:
        tensors: the state dict of such a file, with or without prefixes.
        width: of the backbone's [CLS].

    Raises:
        ValueError: no such tensors, or numbers that no combination of [CLS] and average comes to.
    """
    found = {name.rpartition("linear.")[2]: tensor for name, tensor in tensors.items() if "linear." in name}
    if found.keys() != {"weight", "bias"}:
        names = sorted(tensors)[:3]
        raise ValueError(f"no linear head: expected linear.weight and linear.bias, found {names}")
    numbers = found["weight"].shape[1]
    reads = {width: Reads(1), 2 * width: Reads(1, "interleaved"), 4 * width: Reads(4)}.get(numbers)
    if reads is None:
        raise ValueError(f"the head reads {numbers} numbers, which a model of width {width} does not give")
    return Head(reads, found["weight"].float(), found["bias"].float())


def check(features: Tensor, labels: Tensor, classes: int) -> None:
    """Refuse features and labels that do not fit."""
    if features.ndim != 3 or len(features) != len(labels) or not len(labels):
        raise ValueError(
            f"features of shape {tuple(features.shape)} with {len(labels)} labels: expected"
            " [pictures, blocks + 1, width], one label each"
        )
    if int(labels.max()) >= classes:
        raise ValueError(f"label {int(labels.max())} is none of {classes} classes")
    if not features.isfinite().all():
        raise ValueError("features hold NaN or infinity: the model is broken, or needs precision fp32")


def deepest(reads: Sequence[Reads]) -> int:
    """Blocks that features must hold."""
    return max(one.blocks for one in reads)
