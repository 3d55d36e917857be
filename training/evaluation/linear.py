"""Linear classification of frozen features (section 4.1 and appendix F), a whole grid in one pass.

Features are [CLS] of the last blocks, then the mean of the last block's patches: [images, blocks + 1, width].
Each classifier of the grid selects its inputs from them. Several processes share the forward passes of random
crops; each trains the whole grid.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from dino_model.inference.classifier import FeatureSpec, LinearClassifier, feature_type, in_blocks
from dino_model.inference.features import OUTPUT, has_cls
from dino_model.models.catalogue import OFFICIAL, OFFICIAL_ADDRESS
from dino_model.models.checkpoint import read_torch
from dino_model.models.load import LoadedModel
from dino_model.runtime import ranks
from dino_model.runtime.device import DTYPES, autocast, choose_device
from dino_model.runtime.download import PublishedFile
from dino_model.runtime.errors import pluralize
from dino_model.runtime.progress import progress
from training.augmentation.randomness import mix
from training.evaluation.datasets import every_fifth
from training.evaluation.metrics import (
    Accuracy,
    MultiLabelQuality,
    accuracy,
    mean_average_precision,
    multi_label_quality,
)
from training.evaluation.options import Linear
from training.evaluation.outcomes import Outcomes
from training.evaluation.run import (
    Labeled,
    Metrics,
    evaluate_models,
    extract,
    extract_parts,
    framing_of,
    open_options,
    random_batches,
)

MOMENTUM = 0.9
"""Momentum of SGD; there is no weight decay."""
MIN_HELD_OUT = 50
"""Training images for the selection, below which a warning is printed: each is 2 % of the accuracy."""
_ROWS_AT_ONCE = 4096


class LinearProbeGrid:
    """A grid of linear classifiers trained on the same batches, with one matrix product per input."""

    def __init__(self, options: Linear, width: int, classes: int) -> None:
        """Initialize weights from N(0, 0.01²) and biases with zero, as the official code does.

        Args:
            options: Rates and inputs, epochs, batch and seed; device and precision of the products. Weights,
                momentum and softmax are fp32.
            width: Width of a block's [CLS].
            classes: Number of classes.
        """
        self.options, self.classes = options, classes
        self.specs = [FeatureSpec.parse(text) for text in options.features]
        self.dtype, self.device = DTYPES[options.chosen_precision()], choose_device(options.device)
        random = torch.Generator().manual_seed(options.seed)
        self.weights: list[Tensor] = []
        for spec in self.specs:
            values = width * (spec.blocks + (spec.average != "no"))
            initial = torch.randn(values, classes, generator=random) * 0.01
            weights = torch.cat([initial, torch.zeros(1, classes)])  # the last row: biases
            self.weights.append(weights.repeat(1, len(options.rates)).to(self.device))
        self.momenta = [torch.zeros_like(weights) for weights in self.weights]
        self._rate_of_column = torch.tensor(options.rates, device=self.device).repeat_interleave(classes)

    def step(self, features: Tensor, labels: Tensor, epoch: int) -> None:
        """Train for one step.

        Args:
            features: [batch, blocks + 1, width].
            labels: int64 [batch], for a softmax; or bool [batch, classes], for a sigmoid of each class.
            epoch: From 0.
        """
        cosine = (1 + math.cos(math.pi * epoch / self.options.epochs)) / 2
        rates = self._rate_of_column * (cosine * self.options.batch / 256)
        for spec, weights, momenta in zip(self.specs, self.weights, self.momenta, strict=True):
            inputs = spec.select(features.to(self.dtype))
            logits = self._logits(inputs, weights)  # [batch, rates, classes]
            if labels.ndim == 2:
                gradient = logits.sigmoid() - labels[:, None].float()
            else:
                gradient = logits.softmax(dim=2)
                target = labels[:, None, None].expand(-1, len(self.options.rates), 1)
                probability = gradient.gather(2, target)
                gradient.scatter_(2, target, probability - 1)
            gradient = gradient.flatten(1).div_(len(labels))
            momenta.mul_(MOMENTUM)
            momenta[:-1] += inputs.T @ gradient.to(self.dtype)
            momenta[-1] += gradient.sum(dim=0)
            weights.addcmul_(momenta, rates, value=-1)

    def train(self, features: Tensor, labels: Tensor) -> None:
        """Train on features [images, blocks + 1, width] and labels as in `step` for all epochs."""
        features, labels = features.to(self.device, self.dtype), labels.to(self.device)
        for epoch in range(self.options.epochs):
            for chosen in batches(len(labels), self.options, epoch):
                self.step(features[chosen], labels[chosen], epoch)

    def score(self, features: Tensor, labels: Tensor) -> Tensor:
        """Compute top-1 accuracy, or mAP for labels bool, of every classifier in percent: [inputs, rates]."""
        if labels.ndim == 2:
            return self._mean_precision(features.float().cpu(), labels)
        correct = torch.zeros(len(self.specs), len(self.options.rates))
        features, labels = features.to(self.device), labels.to(self.device)
        for part, truth in zip(features.split(_ROWS_AT_ONCE), labels.split(_ROWS_AT_ONCE), strict=True):
            for number, spec in enumerate(self.specs):
                predicted = self._logits(spec.select(part.to(self.dtype)), self.weights[number]).argmax(dim=2)
                correct[number] += (predicted == truth[:, None]).sum(dim=0).cpu()
        return 100 * correct / len(labels)

    def _mean_precision(self, features: Tensor, labels: Tensor) -> Tensor:
        inputs = [spec.select(features) for spec in self.specs]
        return 100 * torch.tensor(
            [
                [
                    mean_average_precision(self.classifier(spec, rate).scores(selected), labels)
                    for rate in range(len(self.options.rates))
                ]
                for spec, selected in enumerate(inputs)
            ]
        )

    def _logits(self, inputs: Tensor, weights: Tensor) -> Tensor:
        logits = (inputs @ weights[:-1].to(self.dtype)).float() + weights[-1]
        return logits.unflatten(1, (-1, self.classes))

    def classifier(self, spec: int, rate: int) -> LinearClassifier:
        """Return one classifier of the grid, on the CPU, by the numbers of its input and rate."""
        weights = self.weights[spec].unflatten(1, (-1, self.classes))[:, rate].cpu()
        return LinearClassifier(weights[:-1].T.contiguous(), weights[-1])


def batches(count: int, options: Linear, epoch: int) -> Iterator[Tensor]:
    """Yield the image numbers of every step of an epoch; the last batch may be smaller."""
    random = torch.Generator().manual_seed(mix(options.seed, epoch))
    yield from torch.randperm(count, generator=random).split(options.batch)


def parse_official_head(tensors: Mapping[str, Tensor], width: int) -> tuple[FeatureSpec, LinearClassifier]:
    """Convert a published head's state dict for a [CLS] of this width; return its input and the classifier.

    DINO's heads are named `linear.weight`, with or without prefixes, and DINOv2's `weight`.

    Raises:
        ValueError: Other tensors, or a number of inputs that no combination of [CLS] and average has.
    """
    is_dinov2 = tensors.keys() == {"weight", "bias"}
    classifier = {
        name.rpartition("linear.")[2]: tensor
        for name, tensor in tensors.items()
        if is_dinov2 or "linear." in name
    }
    if classifier.keys() != {"weight", "bias"}:
        names = sorted(tensors)[:3]
        raise ValueError(f"Found no linear head: expected linear.weight and linear.bias, found {names}.")
    values = classifier["weight"].shape[1]
    specs = {width: FeatureSpec(1), 2 * width: FeatureSpec(1, "interleaved"), 4 * width: FeatureSpec(4)}
    if is_dinov2:
        specs = {2 * width: FeatureSpec(1, "after"), 5 * width: FeatureSpec(4, "after")}
    if values not in specs:
        raise ValueError(f"The head has {values} inputs, which a model of width {width} does not output.")
    return specs[values], LinearClassifier(classifier["weight"].float(), classifier["bias"].float())


def fetch_official_head(model: str) -> Path:
    """Download the linear head that was published with a model of `OFFICIAL`, once."""
    stem = OFFICIAL[model].stem
    file = f"{stem.removesuffix('_pretrain')}_linearweights.pth"
    return PublishedFile(f"{OFFICIAL_ADDRESS}/{stem}/{file}", file, read_torch).fetch()


def evaluate(options: Linear) -> None:
    """Run `evaluate linear`."""
    head_file = None
    if options.head is not None:
        head_file = fetch_official_head(options.head) if options.head in OFFICIAL else Path(options.head)
        read_torch(head_file)  # refused before a model is loaded
    split, rates = open_options(options), options.rates
    how = "random crops (8 to 100 %, bilinear) and flips" if options.augment else "no augmentation"
    specs = "; ".join(str(FeatureSpec.parse(text)) for text in options.features)
    outcomes = Outcomes(options, split)
    measure = partial(_train_and_test, outcomes, options)
    held_out = len(every_fifth(split.labels(split.train))[1])
    unsure = f"input and rate are selected on {pluralize(held_out, 'image')}: other images can give others"
    warnings = [unsure] * (head_file is None and held_out < MIN_HELD_OUT)
    description = (
        f"{framing_of(options)}; {how}; {len(rates)} learning rates from {min(rates):g} to {max(rates):g} ×"
        f" {len(options.features)} inputs ({specs}); SGD, momentum {MOMENTUM:g}, no weight decay, cosine to 0"
        f" by epochs, {pluralize(options.epochs, 'epoch')}, batch {options.batch}; selected on every fifth"
        " training image"
    )
    if head_file is not None:
        measure = partial(_measure_head, outcomes, options, head_file)
        description = f"published head, {framing_of(options)}"
    published = () if split.several else ("2", "linear top-1")
    evaluate_models(options, "linear", description, measure, *published, split=split, warnings=warnings)


def _measure_head(outcomes: Outcomes, options: Linear, file: Path, model: LoadedModel) -> Metrics:
    """Test a published head."""
    payload, split = read_torch(file), outcomes.split
    width = getattr(model.backbone, "num_features", None)
    if not isinstance(width, int):
        raise ValueError(f"{model.name} is own code: published heads are of published models.")
    spec, classifier = parse_official_head(payload.get("state_dict", payload), width)
    if (count := len(classifier.weight)) != len(split.classes):
        raise ValueError(f"{file} has {count} classes, {options.data} has {len(split.classes)}.")
    kind = feature_type(model, spec.blocks)
    extracted = extract(options, model, framing_of(options, model), split.test, kind)
    test = Labeled(extracted.features, split.labels(extracted.images), extracted.images, extracted.broken)
    print(f"{file.name}: input {spec}")
    metrics = _test(outcomes, model, spec, classifier, test)
    return {"metrics": metrics, "head": file.name, "broken": [*test.broken]}


def _test(
    outcomes: Outcomes, model: LoadedModel, spec: FeatureSpec, classifier: LinearClassifier, test: Labeled
) -> Metrics:
    """Test a classifier on features [images, values], print the result, write what the options ask for."""
    task = outcomes.task(model, spec)
    scores = task.scores(classifier, model, test.features)
    result: Accuracy | MultiLabelQuality
    if task.several:
        result = multi_label_quality(scores.sigmoid(), test.labels)
    else:
        result = accuracy(scores, test.labels)
    print(result)
    probabilities = partial(task.probabilities, classifier, model)
    outcomes.write(model, test, probabilities, feature_type(model, spec.blocks))
    outcomes.save_head(model, task, classifier)
    return asdict(result)


def _train_and_test(outcomes: Outcomes, options: Linear, model: LoadedModel) -> Metrics:
    """Train the grid, select a classifier, train it on all training images, test it."""
    split = outcomes.split
    if not has_cls(model.backbone):
        options = replace(options, features=("1",))
        print(f"the one feature of {model.name} is used: {OUTPUT.describe(model.backbone)}")
    blocks = max(FeatureSpec.parse(text).blocks for text in options.features)
    raw_train, test = extract_parts(options, model, split, feature_type(model, blocks))
    train = raw_train._replace(features=in_blocks(model, raw_train.features, blocks))
    fit, held_out = every_fifth(train.labels)
    learned = Labeled(train.features[fit], train.labels[fit], train.images.subset(fit.tolist()), ())
    grid = _fit(options, model, learned, len(split.classes))
    scores = grid.score(train.features[held_out], train.labels[held_out])
    best, best_rate = divmod(int(scores.flatten().argmax()), scores.shape[1])  # of equal ones the first
    spec, rate = grid.specs[best], options.rates[best_rate]
    metric = "map" if split.several else "top1"
    chosen = {"rate": rate, "input": str(spec), metric: float(scores[best, best_rate])}
    images = pluralize(len(held_out), "training image")
    print(f"selected on {images}: {spec}, rate {rate:g} ({chosen[metric]:.1f} %)")
    single = replace(options, rates=(rate,), features=(options.features[best],))
    classifier = _fit(single, model, train, len(split.classes)).classifier(0, 0)
    test = _last_blocks(model, test, blocks, spec.blocks)
    metrics = _test(outcomes, model, spec, classifier, test)
    broken = [*train.broken, *test.broken]
    return {"metrics": metrics, "chosen": chosen, "grid": scores.tolist(), "broken": broken}


def _last_blocks(model: LoadedModel, test: Labeled, blocks: int, wanted: int) -> Labeled:
    """Keep the features of the last `wanted` of `blocks` blocks, and the mean of the patches."""
    if not has_cls(model.backbone):
        return test
    features = in_blocks(model, test.features, blocks)[:, blocks - wanted :]
    return test._replace(features=features.flatten(1))


def _fit(options: Linear, model: LoadedModel, train: Labeled, classes: int) -> LinearProbeGrid:
    """Train a grid on fixed features, or on those of random views.

    Each process forwards its share of a batch; all have the features of the whole batch.
    """
    blocks, images = train.features.shape[1] - 1, train.images
    grid, framing = LinearProbeGrid(options, train.features.shape[2], classes), framing_of(options, model)
    if not options.augment:
        grid.train(train.features, train.labels)
        return grid
    backbone, kind = model.backbone.to(grid.device), feature_type(model, blocks)
    precision = options.chosen_precision()
    for epoch in progress(range(options.epochs), f"{model.name}, {pluralize(options.epochs, 'epoch')}"):
        steps = list(batches(len(images), options, epoch))
        shares = [step[[*ranks.local_range(range(len(step)))]].tolist() for step in steps]
        views = random_batches(images, [s for s in shares if s], options.size, mix(options.seed, epoch))

        def forward(_: range, views: Iterator[Tensor] = views) -> Tensor:
            batch = framing.normalize(next(views).to(grid.device))
            with torch.no_grad(), autocast(precision, grid.device):
                return kind.compute(backbone, batch).float()

        for step in steps:
            rows = ranks.gather_rows(forward, range(len(step)))
            assert rows is not None
            features = in_blocks(model, rows.to(grid.device), blocks)
            grid.step(features, train.labels[step].to(grid.device), epoch)
    return grid
