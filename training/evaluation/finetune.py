"""Fine-tune a whole network on labeled images (section 4.2.3, Table 6).

The recipes are those that the authors named for their results (DeiT's with changes); what they left open is
DeiT's: AdamW, cosine, five epochs of warm-up, mixup 0.8 and cutmix 1.0, label smoothing 0.1. Several
processes share every batch; a ViT then learns what one process would teach it.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from timm.data.mixup import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import param_groups_weight_decay
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from dino_model import checkpoints, files, ranks
from dino_model.ahead import load_ahead
from dino_model.checkpoints import WeightsError, read_torch, write_safetensors
from dino_model.collections import Images
from dino_model.device import ComputePrecision, autocast, choose_device
from dino_model.errors import SettingError
from dino_model.feature_cache import model_fingerprint
from dino_model.progress import progress
from dino_model.views import View
from dino_model.weights import LoadedModel
from training.distributed import barrier, synchronise_batch_norm
from training.evaluation.metrics import accuracy
from training.evaluation.options import Finetune
from training.evaluation.run import Metrics, center_crop, evaluate_models, open_options, random_batches
from training.randomness import mix

Labeled = tuple[Images, Tensor]
"""Images and their labels, int64 [images]."""
_PAPER_MEASURES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "flowers": "Flowers",
    "cars": "Cars",
    "inat18": "iNat-18",
    "inat19": "iNat-19",
}


@dataclass(frozen=True)
class FinetuneRecipe:
    """Settings of a fine-tuning other than model and images."""

    epochs: int = 300
    batch: int = 256
    rate: float = 1e-4
    """Peak learning rate for this batch."""
    weight_decay: float = 0.05
    warmup: int = 5
    """Epochs in which the learning rate rises from 0."""
    mixup: float = 0.8
    cutmix: float = 1.0
    smoothing: float = 0.1
    min_scale: float = 0.08
    """Smallest share of the image area that a random crop covers."""

    def __str__(self) -> str:
        return (
            f"{self.epochs} epochs, batch {self.batch}, AdamW, rate {self.rate:g} (warm-up {self.warmup},"
            f" cosine), weight decay {self.weight_decay:g}, mixup {self.mixup:g}, cutmix {self.cutmix:g},"
            f" label smoothing {self.smoothing:g}"
        )


RECIPES = {
    "own": FinetuneRecipe(epochs=50, batch=64),
    "imagenet": FinetuneRecipe(batch=1024, rate=5e-4),
    "cifar10": FinetuneRecipe(epochs=1000, batch=768, rate=7.5e-6),
    "cifar100": FinetuneRecipe(epochs=1000, batch=768, rate=5e-6),
    "flowers": FinetuneRecipe(epochs=1000, batch=768, rate=7.5e-6),
    "cars": FinetuneRecipe(epochs=1000, batch=768, rate=7.5e-6),
    "inat18": FinetuneRecipe(batch=1024, rate=1e-4),
    "inat19": FinetuneRecipe(batch=1024, rate=1e-4),
}
"""By data set. The authors named ImageNet, CIFAR-10 and -100, and iNat (5e-5 for a batch of 512); Flowers and
Cars follow CIFAR-10, as in DeiT. `own` is this project's, for a folder of some thousand images."""


class Classifier(nn.Module):
    """A backbone and a linear layer on its feature, initialized close to zero."""

    def __init__(self, backbone: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(width, classes)
        nn.init.trunc_normal_(self.head.weight, std=2e-5)
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor) -> Tensor:
        """[batch, 3, height, width] -> [batch, classes]."""
        scores: Tensor = self.head(self.backbone(images))
        return scores


def learning_rate(recipe: FinetuneRecipe, epoch: float) -> float:
    """Compute the learning rate after a number of epochs: a linear warm-up, then a cosine to 0."""
    warmup = min(recipe.warmup, recipe.epochs // 2)
    if epoch < warmup:
        return recipe.rate * epoch / warmup
    done = (epoch - warmup) / max(recipe.epochs - warmup, 1e-9)
    return recipe.rate * (1 + math.cos(math.pi * done)) / 2


def local_share(batch: Sequence[int]) -> tuple[list[int], float]:
    """Return this process's images of a batch, and the weight of their mean loss.

    Mixup pairs the first image with the last, the second with the last but one. The share holds both images
    of its pairs in their order, so that mixup within the share is mixup within the batch. The mean over the
    processes of weight × mean loss is the mean loss of the batch.

    Args:
        batch: An even number of images.
    """
    half = len(batch) // 2
    part = ranks.local_range(range(half))
    pairs = part or range(1)  # DistributedDataParallel needs a loss from each process
    chosen = [*pairs, *(len(batch) - 1 - pair for pair in reversed(pairs))]
    return [batch[index] for index in chosen], len(part) * ranks.world() / half


def train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[tuple[Tensor, Tensor, float]],
    recipe: FinetuneRecipe,
    classes: int,
    epoch: int,
    steps: int,
    precision: ComputePrecision = "fp32",
) -> None:
    """Train for one epoch.

    Each step has its own autocast context: autocast caches the casts of the weights until it is left, so that
    a context around several steps would train on the weights of the first step.

    Args:
        model, optimizer: Changed in place.
        batches: Images [batch, 3, height, width], int64 labels [batch], both on the model's device, and the
            weight of the loss.
        recipe, classes: Recipe of all epochs, number of classes.
        epoch, steps: Number of the epoch, from 0; batches per epoch.
        precision: Precision of forward pass and loss.

    Raises:
        ValueError: The loss is not finite.
    """
    mixup = Mixup(recipe.mixup, recipe.cutmix, label_smoothing=recipe.smoothing, num_classes=classes)
    criterion = SoftTargetCrossEntropy()
    model.train()
    for step, (images, labels, weight) in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(recipe, epoch + (step + 1) / steps)
        images, targets = mixup(images.clone(), labels)
        with autocast(precision, images.device):
            loss = weight * criterion(model(images), targets.to(images.device))
        if not loss.isfinite():
            raise ValueError(
                f"The loss is {float(loss)} in epoch {epoch + 1}: lower --rate, or pass --precision fp32."
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def evaluate(options: Finetune) -> None:
    """Run `evaluate finetune`."""
    if options.chosen_precision() == "fp16":
        raise SettingError("Fine-tuning has no loss scaling for fp16: pass --precision bf16 or fp32.")
    changes = {"epochs": options.epochs, "rate": options.rate, "batch": options.batch}
    given: Metrics = {name: value for name, value in changes.items() if value is not None}
    recipe = replace(RECIPES[options.recipe], **given)
    split = open_options(options)
    train, test = ((part, split.labels(part)) for part in (split.train, split.test))
    description = f"{center_crop(options)}; random crops, flips; {recipe}; {options.data.name}: {split}"
    print(description)
    protocol = split.protocol(description, options.data.name)
    published = ("6", _PAPER_MEASURES[options.recipe]) if options.recipe in _PAPER_MEASURES else ()

    def measure(model: LoadedModel) -> Metrics:
        return _finetune(options, model, recipe, train, test)

    evaluate_models(options, "finetune", protocol | asdict(recipe), measure, *published, images=split.train)


def output_file(options: Finetune, model: str) -> Path:
    """Return the file of a fine-tuned network, named by model and data."""
    name = re.sub(r"[/:]", "_", model)
    for suffix in checkpoints.SUFFIXES:
        name = name.removesuffix(suffix)
    return options.output / f"{name}-on-{options.data.stem}.safetensors"


def _finetune(
    options: Finetune, model: LoadedModel, recipe: FinetuneRecipe, train: Labeled, test: Labeled
) -> Metrics:
    """Train a model, continuing an interrupted training; test and save it."""
    if model.config is None:
        raise ValueError(
            f"{model.name} has no architecture of this package, so that its weights cannot be saved:"
            " choose another model."
        )
    train, test = ((replace(part[0], channel_range=model.channel_range), part[1]) for part in (train, test))
    device, images, view = choose_device(options.device), train[0], center_crop(options, model)
    classes = int(max(train[1].max(), test[1].max())) + 1
    key = [model_fingerprint(model.backbone), images.inventory(), options.size, options.seed]
    digest = hashlib.sha256(json.dumps([*key, asdict(recipe)]).encode()).hexdigest()[:16]
    unfinished = options.output / f"finetune-{digest}.unfinished"
    torch.manual_seed(options.seed)
    width = int(model.backbone.num_features)  # type: ignore[arg-type]
    network = Classifier(model.backbone.requires_grad_(True), width, classes).to(device)
    trained: nn.Module = network
    if ranks.world() > 1:
        synchronise_batch_norm(network)
        trained = DistributedDataParallel(network, broadcast_buffers=False)
    optimizer = torch.optim.AdamW(param_groups_weight_decay(network, recipe.weight_decay), lr=recipe.rate)
    first = _restore(network, optimizer, unfinished)
    barrier()  # all have read the file before it is replaced
    steps = math.ceil(len(images) / recipe.batch)
    for epoch in progress(range(first, recipe.epochs), model.name, recipe.epochs, done=first):
        np.random.seed(mix(options.seed, epoch) % 2**32)  # noqa: NPY002 (timm's mixup draws from it)
        batches = _batches(options, recipe, train, view, device, mix(options.seed, epoch))
        precision = options.chosen_precision()
        train_epoch(trained, optimizer, batches, recipe, classes, epoch, steps, precision)
        if ranks.rank() == 0:
            state = {"model": network.state_dict(), "optimizer": optimizer.state_dict()}
            with files.replacing(unfinished) as temporary:
                torch.save({"epoch": epoch + 1, **state}, temporary)
    result = accuracy(_scores(options, network, view, test[0]).cpu(), test[1])
    file = output_file(options, model.name)
    if ranks.rank() == 0:
        statistics: Metrics = {"mean": model.mean, "std": model.std, "channel_range": model.channel_range}
        write_safetensors(network.backbone.cpu(), file, config=model.config, **statistics)
        unfinished.unlink(missing_ok=True)
    compare = f"python -m app --models-dir {options.output}"
    print(result, f"network: {file}; `{compare}` compares it with the frozen one", sep="\n")
    return {"metrics": result.metrics(), "network": str(file)}


def _batches(
    options: Finetune, recipe: FinetuneRecipe, train: Labeled, view: View, device: torch.device, seed: int
) -> Iterator[tuple[Tensor, Tensor, float]]:
    """Yield normalized random crops, labels and loss weight of this process's share of every batch.

    Mixup needs an even number of images: the last of an odd batch is left out.
    """
    images, labels = train
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed)).tolist()
    chunks = [order[start : start + recipe.batch] for start in range(0, len(order), recipe.batch)]
    shares = [local_share(chunk[: len(chunk) // 2 * 2]) for chunk in chunks if len(chunk) > 1]
    chosen = [numbers for numbers, _ in shares]
    crops = random_batches(images, chosen, options.size, seed, min_scale=recipe.min_scale)
    for crop, (numbers, weight) in zip(crops, shares, strict=True):
        yield view.normalize(crop.to(device)), labels[numbers].to(device), weight


@torch.no_grad()
def _scores(options: Finetune, network: Classifier, view: View, images: Images) -> Tensor:
    """Classify the test images, each process its share: [images, classes]."""
    network.eval()
    device, size = choose_device(options.device), options.batch_size

    def classify(share: range) -> Tensor:
        crops = load_ahead(lambda index: view.crop(images.read(index)), share, size)
        scores = []
        with autocast(options.chosen_precision(), device):
            while batch := list(islice(crops, size)):
                scores.append(network(view.normalize(torch.stack(batch).to(device))).float())
        return torch.cat(scores)

    scores = ranks.gather_rows(classify, range(len(images)))
    assert scores is not None
    return scores


def _restore(network: Classifier, optimizer: torch.optim.Optimizer, file: Path) -> int:
    """Load an unfinished training; returns the epoch to continue with."""
    if not file.exists():
        return 0
    try:
        state = read_torch(file)
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return int(state["epoch"])
    except (WeightsError, KeyError, RuntimeError, ValueError) as error:
        raise ValueError(f"{file} cannot be read: delete it to start again.") from error
