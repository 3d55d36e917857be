"""Fine-tune a whole network on labeled images (section 4.2.3, Table 6).

The recipes are those that the authors named for their results (DeiT's with changes); what they left open is
DeiT's: AdamW, cosine, five epochs of warm-up, mixup 0.8 and cutmix 1.0, label smoothing 0.1. Several
processes share every batch; a ViT then learns what one process would teach it.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from timm.data.mixup import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import param_groups_weight_decay
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel

from dino_model.data.collection import Images
from dino_model.data.framing import Framing
from dino_model.inference.feature_cache import model_fingerprint
from dino_model.models.catalogue import SUFFIXES, WeightsError
from dino_model.models.checkpoint import read_torch, write_safetensors
from dino_model.models.load import LoadedModel
from dino_model.runtime import files, ranks
from dino_model.runtime.device import ComputePrecision, autocast, choose_device
from dino_model.runtime.errors import pluralize
from dino_model.runtime.outputs import OutputFolder
from dino_model.runtime.progress import progress
from training.augmentation.randomness import copy_to_device, mix
from training.distributed import barrier, synchronise_batch_norm
from training.evaluation.datasets import Split
from training.evaluation.metrics import accuracy
from training.evaluation.options import Finetune
from training.evaluation.run import (
    Metrics,
    evaluate_models,
    extract,
    framing_of,
    open_options,
    random_batches,
)
from training.recipes.validation import at_least, positive

WEIGHT_DECAY, WARMUP_EPOCHS = 0.05, 5
MIXUP, CUTMIX, SMOOTHING = 0.8, 1.0, 0.1


@dataclass(frozen=True)
class FinetuneRecipe:
    """Settings that differ between data sets."""

    epochs: int
    batch: int
    rate: float = 1e-4
    """Peak learning rate for this batch."""
    measure: str = ""
    """Name of the data set in Table 6."""

    def __post_init__(self) -> None:
        at_least(self, epochs=1, batch=2)
        positive(self, "rate")


RECIPES = {
    "own": FinetuneRecipe(50, 64),
    "imagenet": FinetuneRecipe(300, 1024, 5e-4),
    "cifar10": FinetuneRecipe(1000, 768, 7.5e-6, "CIFAR-10"),
    "cifar100": FinetuneRecipe(1000, 768, 5e-6, "CIFAR-100"),
    "flowers": FinetuneRecipe(1000, 768, 7.5e-6, "Flowers"),
    "cars": FinetuneRecipe(1000, 768, 7.5e-6, "Cars"),
    "inat18": FinetuneRecipe(300, 1024, 1e-4, "iNat-18"),
    "inat19": FinetuneRecipe(300, 1024, 1e-4, "iNat-19"),
}
"""Recipes by data set. The authors named ImageNet, CIFAR-10 and -100, and iNat (5e-5 for a batch of 512).
Flowers and Cars follow CIFAR-10, as in DeiT. `own` is this project's, for some thousand images."""


def learning_rate(recipe: FinetuneRecipe, epoch: float) -> float:
    """Compute the learning rate after a number of epochs: a linear warm-up, then a cosine to 0."""
    warmup = min(WARMUP_EPOCHS, recipe.epochs // 2)
    if epoch < warmup:
        return recipe.rate * epoch / warmup
    done = (epoch - warmup) / (recipe.epochs - warmup)
    return recipe.rate * (1 + math.cos(math.pi * done)) / 2


def _local_share(batch: Sequence[int]) -> tuple[list[int], float]:
    """Return this process's images of a batch, and the weight of their mean loss.

    Mixup pairs the first image with the last, the second with the last but one. The share holds both images
    of its pairs in their order, so that mixup within the share is mixup within the batch. The mean over the
    processes of weight × mean loss is the mean loss of the batch. The last of an odd batch is left out.
    """
    half = len(batch) // 2
    part = ranks.local_range(range(half))
    pairs = part or range(1)  # DistributedDataParallel needs a loss from each process
    chosen = [*pairs, *(2 * half - 1 - pair for pair in reversed(pairs))]
    return [batch[index] for index in chosen], len(part) * ranks.world() / half


def _train_epoch(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: GradScaler,
    batches: Iterable[tuple[Tensor, Tensor, float]],
    rates: Sequence[float],
    classes: int,
    precision: ComputePrecision,
) -> None:
    """Train for one epoch on images, labels and loss weights, with a learning rate for each step.

    Raises:
        ValueError: A loss is not finite. The host learns it after the epoch, so that no step waits for it.
    """
    checked: Tensor | None = None
    mixup = Mixup(MIXUP, CUTMIX, label_smoothing=SMOOTHING, num_classes=classes)
    criterion = SoftTargetCrossEntropy()
    network.train()
    for (images, labels, weight), rate in zip(batches, rates, strict=False):
        for group in optimizer.param_groups:
            group["lr"] = rate
        images, targets = mixup(images, labels)
        with autocast(precision, images.device):  # once per step: it caches the casts of the weights
            loss = weight * criterion(network(images), targets.to(images.device))
        latest = loss.detach()  # the first loss that is not finite stays
        checked = latest if checked is None else torch.where(checked.isfinite(), latest, checked)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    if checked is not None and not checked.isfinite():
        raise ValueError(f"The loss is {float(checked)}: lower --rate, or pass --precision fp32.")


def evaluate(options: Finetune) -> None:
    """Run `evaluate finetune`."""
    changes = {"epochs": options.epochs, "rate": options.rate, "batch": options.batch}
    given: Metrics = {name: value for name, value in changes.items() if value is not None}
    recipe, split = replace(RECIPES[options.recipe], **given), open_options(options)
    split.check_single("finetune")
    description = (
        f"{framing_of(options)}; random crops, flips; {pluralize(recipe.epochs, 'epoch')},"
        f" batch {recipe.batch}, AdamW,"
        f" rate {recipe.rate:g} (warm-up {WARMUP_EPOCHS}, cosine), weight decay {WEIGHT_DECAY:g},"
        f" mixup {MIXUP:g}, cutmix {CUTMIX:g}, label smoothing {SMOOTHING:g}"
    )
    published = ("6", recipe.measure) if recipe.measure else ()
    settings = {"recipe": asdict(recipe), "size": options.size, "resize_to": options.resize_to}
    settings |= {"seed": options.seed, "precision": options.chosen_precision()}

    def open_folder() -> OutputFolder:
        return options.open_output(settings | {"images": split.train.inventory()})

    folder = ranks.on_first(open_folder, ranks.LISTING_LIMIT)  # the others read it
    measure = partial(_finetune, options, recipe, split, folder)
    evaluate_models(options, "finetune", description, measure, *published, split=split)
    if ranks.rank() == 0:
        folder.finish()


def output_file(options: Finetune, model: str) -> Path:
    """Return the file of a fine-tuned network, named by model and data."""
    name = re.sub(r"[/:]", "_", model)
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return options.output / f"{name}-on-{options.data.stem}.safetensors"


def _finetune(
    options: Finetune,
    recipe: FinetuneRecipe,
    split: Split,
    folder: OutputFolder,
    model: LoadedModel,
) -> Metrics:
    """Train, test and save a model; continue the training that the folder holds."""
    if model.config is None:
        raise ValueError(
            f"{model.name} has no architecture of this package, so that its weights cannot be saved:"
            " choose another model."
        )
    readable = extract(options, model, framing_of(options, model), split.train).images
    print(*(f"warning: {text}\n" for text in split.unreadable(readable, split.test)), sep="", end="")
    device, classes = choose_device(options.device), len(split.classes)
    images = replace(readable, channel_range=model.channel_range)
    file = output_file(options, model.name)
    item = f"{file.stem}-{model_fingerprint(model.backbone)}"
    if folder.has(item):
        print(f"network: {file}, finished before")
        return dict(folder.finished[item])
    unfinished = ranks.on_first(lambda: folder.state_file(item))
    torch.manual_seed(options.seed)
    backbone = model.backbone.requires_grad_(True)
    head = nn.Linear(int(backbone.num_features), classes)  # type: ignore[arg-type]
    nn.init.trunc_normal_(head.weight, std=2e-5)
    nn.init.zeros_(head.bias)
    network = nn.Sequential(backbone, head).to(device)
    trained: nn.Module = network
    if ranks.world() > 1:
        synchronise_batch_norm(network)
        trained = DistributedDataParallel(network, broadcast_buffers=False)
    groups, precision = param_groups_weight_decay(network, WEIGHT_DECAY), options.chosen_precision()
    optimizer = torch.optim.AdamW(groups, lr=recipe.rate, fused=device.type == "cuda")
    scaler = GradScaler(device.type, enabled=precision == "fp16")
    first = _restore(network, optimizer, scaler, unfinished)
    barrier()  # all have read the file before it is replaced
    framing, steps = framing_of(options, model), math.ceil(len(images) / recipe.batch)
    for epoch in progress(range(first, recipe.epochs), model.name, recipe.epochs, done=first):
        seed = mix(options.seed, epoch)
        np.random.seed(seed % 2**32)  # noqa: NPY002 (timm's mixup draws from it)
        batches = _batches(images, split.labels(images), recipe.batch, framing, device, seed)
        rates = [learning_rate(recipe, epoch + (step + 1) / steps) for step in range(steps)]
        _train_epoch(trained, optimizer, scaler, batches, rates, classes, precision)
        if ranks.rank() == 0:
            state = {"model": network.state_dict(), "optimizer": optimizer.state_dict()}
            state["scaler"] = scaler.state_dict()
            with files.replace_file(unfinished) as temporary:
                torch.save({"epoch": epoch + 1, **state}, temporary)
    classifier = replace(model, backbone=network)
    scores = extract(replace(options, cache=None), classifier, framing, split.test)
    result = accuracy(scores.features, split.labels(scores.images))
    outcome: Metrics = {"metrics": asdict(result), "network": str(file), "broken": [*scores.broken]}
    if ranks.rank() == 0:
        statistics: Metrics = {"mean": model.mean, "std": model.std, "channel_range": model.channel_range}
        write_safetensors(backbone.cpu(), folder.path(file.name), config=model.config, **statistics)
        folder.add(item, outcome)
    compare = f"python -m app --models-dir {options.output}"
    print(result, f"network: {file}; `{compare}` compares it with the frozen one", sep="\n")
    return outcome


def _batches(
    images: Images, labels: Tensor, batch_size: int, framing: Framing, device: torch.device, seed: int
) -> Iterator[tuple[Tensor, Tensor, float]]:
    """Yield normalized random crops, labels and loss weight of this process's share of every batch."""
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    shares = [_local_share(chunk.tolist()) for chunk in order.split(batch_size) if len(chunk) > 1]
    crops = random_batches(images, [chosen for chosen, _ in shares], framing.size, seed)
    for crop, (chosen, weight) in zip(crops, shares, strict=True):
        images_on_device = copy_to_device(crop, device)
        yield framing.normalize(images_on_device), copy_to_device(labels[chosen], device), weight


def _restore(network: nn.Module, optimizer: torch.optim.Optimizer, scaler: GradScaler, file: Path) -> int:
    """Load an unfinished training; returns the epoch to continue with."""
    if not file.exists():
        return 0
    try:
        state = read_torch(file)
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        if scaler.is_enabled():
            scaler.load_state_dict(state["scaler"])
        return int(state["epoch"])
    except (WeightsError, KeyError, RuntimeError, ValueError) as error:
        raise ValueError(f"{file} cannot be read: pass --overwrite to start again.") from error
