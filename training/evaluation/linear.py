"""Linear classification of frozen features (section 4.1 and appendix F), a whole grid in one pass.

Features are [CLS] of the last blocks, then the mean of the last block's patches: [images, blocks + 1, width].
Each classifier of the grid selects its inputs from them. Several processes share the forward passes of random
crops; each trains the whole grid.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from dino_model import ranks
from dino_model.checkpoints import read_torch
from dino_model.collections import Images
from dino_model.device import DTYPES, ComputePrecision, autocast, choose_device
from dino_model.download import fetch
from dino_model.features import CLS, FeatureType, has_cls_tokens
from dino_model.progress import progress
from dino_model.weights import OFFICIAL, OFFICIAL_ADDRESS, LoadedModel
from training.evaluation.datasets import Split
from training.evaluation.metrics import accuracy
from training.evaluation.options import LEARNING_RATES, Linear
from training.evaluation.run import (
    Metrics,
    center_crop,
    evaluate_models,
    extract,
    open_options,
    random_batches,
)
from training.randomness import mix

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
        """[images, blocks + 1, width] -> [images, values]; raises ValueError for fewer blocks than needed."""
        cls, average = features[:, :-1], features[:, -1]
        if cls.shape[1] < self.blocks:
            raise ValueError(f"Features hold {cls.shape[1]} blocks, {self.blocks} are needed.")
        selected = cls[:, cls.shape[1] - self.blocks :].flatten(1)
        if self.average == "no":
            return selected
        if self.average == "after":
            return torch.cat([selected, average], dim=1)
        return torch.stack([selected, average], dim=-1).flatten(1)


@dataclass(frozen=True)
class LinearProtocol:
    """Settings of a linear evaluation other than features and labels."""

    rates: tuple[float, ...] = LEARNING_RATES
    """Learning rates for a batch of 256, scaled for another batch."""
    specs: tuple[FeatureSpec, ...] = (FeatureSpec(1), FeatureSpec(4), FeatureSpec(1, "after"))
    """Inputs; each is combined with every rate."""
    epochs: int = 100
    batch_size: int = 256
    momentum: float = 0.9
    """Of SGD; there is no weight decay."""
    seed: int = 0
    """Seed of the initial weights and of the order of the images."""

    def __str__(self) -> str:
        grid = f"{len(self.rates)} learning rates from {min(self.rates):g} to {max(self.rates):g}"
        specs = "; ".join(map(str, self.specs))
        return (
            f"{grid} × {len(self.specs)} inputs ({specs}); SGD, momentum {self.momentum:g}, no weight decay,"
            f" cosine to 0 by epochs, {self.epochs} epochs, batch {self.batch_size}"
        )

    @property
    def blocks(self) -> int:
        """Number of blocks that features must hold."""
        return max(spec.blocks for spec in self.specs)


@dataclass(frozen=True)
class LinearHead:
    """One linear classifier."""

    spec: FeatureSpec
    weights: Tensor
    """[classes, values]."""
    bias: Tensor
    """[classes]."""

    def scores(self, features: Tensor) -> Tensor:
        """Compute logits: [images, blocks + 1, width] -> [images, classes]."""
        parts = features.split(_ROWS_AT_ONCE)
        return torch.cat([self.spec.select(part.float()) @ self.weights.T + self.bias for part in parts])


class LinearProbeGrid:
    """A grid of linear classifiers trained on the same batches, with one matrix product per input."""

    def __init__(
        self,
        protocol: LinearProtocol,
        width: int,
        classes: int,
        *,
        device: torch.device | str = "cpu",
        precision: ComputePrecision = "fp32",
    ) -> None:
        """Initialize weights from N(0, 0.01²) and biases with zero, as the official code does.

        Args:
            protocol, classes: Rates and inputs, number of classes.
            width: Width of a block's [CLS].
            device, precision: Of the products; weights, momentum and softmax are fp32.
        """
        self.protocol, self.classes = protocol, classes
        self.dtype = DTYPES[precision]
        random = torch.Generator().manual_seed(protocol.seed)
        self.weights: list[Tensor] = []
        self.momenta: list[Tensor] = []
        for spec in protocol.specs:
            values = width * (spec.blocks + (spec.average != "no"))
            initial = torch.randn(values, classes, generator=random) * 0.01
            weights = torch.cat([initial, torch.zeros(1, classes)])  # the last row: biases
            self.weights.append(weights.repeat(1, len(protocol.rates)).to(device))
            self.momenta.append(torch.zeros_like(self.weights[-1]))
        self._rate_of_column = torch.tensor(protocol.rates, device=device).repeat_interleave(classes)

    def step(self, features: Tensor, labels: Tensor, epoch: int) -> None:
        """Train on features [batch, blocks + 1, width] and int64 labels [batch]; epochs count from 0."""
        cosine = (1 + math.cos(math.pi * epoch / self.protocol.epochs)) / 2
        rates = self._rate_of_column * (cosine * self.protocol.batch_size / 256)
        for spec, weights, momenta in zip(self.protocol.specs, self.weights, self.momenta, strict=True):
            inputs = spec.select(features.to(self.dtype))
            gradient = self._logits(inputs, weights).softmax(dim=2)  # [batch, rates, classes]
            target = labels[:, None, None].expand(-1, len(self.protocol.rates), 1)
            probability = gradient.gather(2, target)
            gradient.scatter_(2, target, probability - 1)
            gradient = gradient.flatten(1).div_(len(labels))
            momenta.mul_(self.protocol.momentum)
            momenta[:-1] += inputs.T @ gradient.to(self.dtype)
            momenta[-1] += gradient.sum(dim=0)
            weights.addcmul_(momenta, rates, value=-1)

    def train(self, features: Tensor, labels: Tensor) -> None:
        """Train on features [images, blocks + 1, width] and int64 labels [images] for all epochs.

        Raises:
            ValueError: Features that are not finite.
        """
        if not features.isfinite().all():
            raise ValueError("Features hold NaN or infinity: the model is broken, or needs precision fp32.")
        device = self.weights[0].device
        features, labels = features.to(device, self.dtype), labels.to(device)
        for epoch in range(self.protocol.epochs):
            for chosen in batches(len(labels), self.protocol, epoch):
                self.step(features[chosen], labels[chosen], epoch)

    def top1(self, features: Tensor, labels: Tensor) -> Tensor:
        """Compute the top-1 accuracy of every classifier in percent: [inputs, rates]."""
        correct = torch.zeros(len(self.weights), len(self.protocol.rates))
        for part, truth in zip(features.split(_ROWS_AT_ONCE), labels.split(_ROWS_AT_ONCE), strict=True):
            for number, spec in enumerate(self.protocol.specs):
                predicted = self._logits(spec.select(part.to(self.dtype)), self.weights[number]).argmax(dim=2)
                correct[number] += (predicted == truth[:, None]).sum(dim=0).cpu()
        return 100 * correct / len(labels)

    def _logits(self, inputs: Tensor, weights: Tensor) -> Tensor:
        logits = (inputs @ weights[:-1].to(self.dtype)).float() + weights[-1]
        return logits.unflatten(1, (-1, self.classes))

    def head(self, spec: int, rate: int) -> LinearHead:
        """Return one classifier of the grid by the numbers of its input and rate."""
        weights = self.weights[spec].unflatten(1, (-1, self.classes))[:, rate]
        return LinearHead(self.protocol.specs[spec], weights[:-1].T.contiguous(), weights[-1].clone())


def batches(count: int, protocol: LinearProtocol, epoch: int) -> Iterator[Tensor]:
    """Yield the image numbers of every step of an epoch; the last batch may be smaller."""
    random = torch.Generator().manual_seed(mix(protocol.seed, epoch))
    yield from torch.randperm(count, generator=random).split(protocol.batch_size)


def hold_out(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return indices for training and for model selection: of each class every fifth image in their order.

    Raises:
        ValueError: No class has five images.
    """
    is_held_out = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        is_held_out[(labels == label).nonzero()[4::5, 0]] = True
    if not is_held_out.any():
        raise ValueError("No class has five training images: there is none to select the learning rate on.")
    return (~is_held_out).nonzero()[:, 0], is_held_out.nonzero()[:, 0]


def parse_official_head(tensors: Mapping[str, Tensor], width: int) -> LinearHead:
    """Convert a published head's state dict, with or without prefixes, for a [CLS] of this width.

    Raises:
        ValueError: Other tensors, or a number of inputs that no combination of [CLS] and average has.
    """
    found = {name.rpartition("linear.")[2]: tensor for name, tensor in tensors.items() if "linear." in name}
    if found.keys() != {"weight", "bias"}:
        names = sorted(tensors)[:3]
        raise ValueError(f"Found no linear head: expected linear.weight and linear.bias, found {names}.")
    values = found["weight"].shape[1]
    specs = {width: FeatureSpec(1), 2 * width: FeatureSpec(1, "interleaved"), 4 * width: FeatureSpec(4)}
    if values not in specs:
        raise ValueError(f"The head has {values} inputs, which a model of width {width} does not output.")
    return LinearHead(specs[values], found["weight"].float(), found["bias"].float())


def fetch_official_head(model: str) -> Path:
    """Download the linear head that was published with a model of `OFFICIAL`, once."""
    stem = OFFICIAL[model].stem
    file = f"{stem.removesuffix('_pretrain')}_linearweights.pth"
    return fetch(f"{OFFICIAL_ADDRESS}/{stem}/{file}", file, read_torch)


def evaluate(options: Linear) -> None:
    """Run `evaluate linear`."""
    head_file = None
    if options.head is not None:
        head_file = fetch_official_head(options.head) if options.head in OFFICIAL else Path(options.head)
        read_torch(head_file)  # refused before a model is loaded
    specs = tuple(map(FeatureSpec.parse, options.features))
    protocol = LinearProtocol(options.rates, specs, options.epochs, options.batch, seed=options.seed)
    split = open_options(options)
    how = "random crops (8 to 100 %, bilinear) and flips" if options.augment else "no augmentation"
    description = f"published head, {center_crop(options)}"
    if head_file is None:
        description = f"{center_crop(options)}; {how}; {protocol}; selected on every fifth training image"
    print(description, f"{options.data.name}: {split}", sep="\n")

    def measure(model: LoadedModel) -> Metrics:
        if head_file is not None:
            return _measure_head(options, model, split, head_file)
        return _train_and_test(options, model, split, protocol)

    settings = asdict(protocol) | {"augment": options.augment}
    described = split.protocol(description, options.data.name) | settings
    evaluate_models(options, "linear", described, measure, "2", "linear top-1", images=split.train)


def _measure_head(options: Linear, model: LoadedModel, split: Split, file: Path) -> Metrics:
    """Test a published head."""
    payload = read_torch(file)
    width = int(model.backbone.num_features)  # type: ignore[arg-type]
    head = parse_official_head(payload.get("state_dict", payload), width)
    if len(head.weights) != len(split.classes):
        raise ValueError(f"{file} has {len(head.weights)} classes, {options.data} has {len(split.classes)}.")
    blocks = head.spec.blocks
    test = extract(options, model, center_crop(options, model), split.test, _feature_type(model, blocks))
    result = accuracy(head.scores(_in_blocks(model, test.features, blocks)), split.labels(test.images))
    print(f"{file.name}: input {head.spec}", result, sep="\n")
    return {"metrics": result.metrics(), "head": file.name, "broken": [*test.broken]}


def _feature_type(model: LoadedModel, blocks: int) -> FeatureType:
    return FeatureType(blocks, "average") if has_cls_tokens(model.backbone) else CLS


def _in_blocks(model: LoadedModel, features: Tensor, blocks: int) -> Tensor:
    """[images, values] -> [images, blocks + 1, width]; without blocks, the one feature repeated."""
    if not has_cls_tokens(model.backbone):
        return features[:, None].expand(-1, blocks + 1, -1)
    return features.unflatten(1, (blocks + 1, -1))


def _train_and_test(options: Linear, model: LoadedModel, split: Split, protocol: LinearProtocol) -> Metrics:
    """Train the grid, select a classifier, train it on all training images, test it."""
    if not has_cls_tokens(model.backbone):
        protocol = replace(protocol, specs=(FeatureSpec(1),))
        print(f"{model.name} has no [CLS] token in its blocks: its one output feature is used")
    view, kind = center_crop(options, model), _feature_type(model, protocol.blocks)
    train, test = (extract(options, model, view, part, kind) for part in (split.train, split.test))
    features, test_features = (_in_blocks(model, part.features, protocol.blocks) for part in (train, test))
    labels, device = split.labels(train.images), choose_device(options.device)
    fit, held_out = hold_out(labels)
    images, classes = train.images, len(split.classes)
    grid = _fit(options, model, protocol, classes, images.subset(fit.tolist()), features[fit], labels[fit])
    top1 = grid.top1(features[held_out].to(device), labels[held_out].to(device))
    best, best_rate = divmod(int(top1.flatten().argmax()), top1.shape[1])  # of equal ones the first
    spec, rate = protocol.specs[best], protocol.rates[best_rate]
    chosen = {"rate": rate, "input": str(spec), "top1": float(top1[best, best_rate])}
    print(f"selected on {len(held_out):,} training images: {spec}, rate {rate:g} ({chosen['top1']:.1f} %)")
    single = replace(protocol, rates=(rate,), specs=(spec,))
    head = _fit(options, model, single, classes, images, features, labels).head(0, 0)
    result = accuracy(head.scores(test_features), split.labels(test.images))
    print(result)
    broken = [*train.broken, *test.broken]
    return {"metrics": result.metrics(), "chosen": chosen, "grid": top1.tolist(), "broken": broken}


def _fit(
    options: Linear,
    model: LoadedModel,
    protocol: LinearProtocol,
    classes: int,
    images: Images,
    features: Tensor,
    labels: Tensor,
) -> LinearProbeGrid:
    """Train a grid on fixed features, or on those of random views.

    Each process forwards its share of a batch; all have the features of the whole batch.
    """
    device, precision = choose_device(options.device), options.chosen_precision()
    grid = LinearProbeGrid(protocol, features.shape[2], classes, device=device, precision=precision)
    if not options.augment:
        grid.train(features, labels)
        return grid
    backbone, kind = model.backbone.to(device), _feature_type(model, protocol.blocks)
    view = center_crop(options, model)
    for epoch in progress(range(protocol.epochs), f"{model.name}, {protocol.epochs} epochs"):
        steps = list(batches(len(images), protocol, epoch))
        shares = [step[[*ranks.local_range(range(len(step)))]].tolist() for step in steps]
        views = random_batches(images, [s for s in shares if s], options.size, mix(options.seed, epoch))

        def forward(_: range, views: Iterator[Tensor] = views) -> Tensor:
            batch = view.normalize(next(views).to(device))
            with torch.no_grad(), autocast(precision, device):
                return kind.compute(backbone, batch).float()

        for step in steps:
            rows = ranks.gather_rows(forward, range(len(step)))
            assert rows is not None
            blocks = _in_blocks(model, rows.to(device), protocol.blocks)
            grid.step(blocks, labels[step].to(device), epoch)
    return grid
