"""`python -m training evaluate finetune`."""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dino_model import checkpoints, files
from dino_model.ahead import load_ahead
from dino_model.checkpoints import WeightsError, read_torch, write_safetensors
from dino_model.device import autocast, choose_device
from dino_model.feature_cache import model_fingerprint
from dino_model.progress import progress
from dino_model.views import View
from dino_model.weights import LoadedModel
from training.commands.evaluate.base import Cropped, Figures
from training.evaluation.accuracy import Accuracy, accuracy
from training.evaluation.augmented import random_view
from training.evaluation.collections import CollectionName, Pictures, open_collection
from training.evaluation.finetune import (
    RECIPES,
    Classifier,
    FinetuneRecipe,
    optimizer_of,
    train_epoch,
)
from training.evaluation.labelled import BACKGROUND, open_split
from training.randomness import mix

_MEASURES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "flowers": "Flowers",
    "cars": "Cars",
    "inat18": "iNat-18",
    "inat19": "iNat-19",
}


@dataclass(frozen=True)
class _Data:
    train: Pictures
    test: Pictures
    labels: Tensor
    truth: Tensor
    told: str

    @property
    def classes(self) -> int:
        return int(torch.cat([self.labels, self.truth]).max()) + 1


@dataclass(frozen=True)
class Finetune(Cropped):
    """Train a whole network on labelled pictures and test it; the network is kept for the page.

    Its attention can be looked at beside the frozen model's, the paper's comparison: `python -m app
    --models-dir OUTPUT`, tab Compare, with the written file as the other model.
    """

    data: Path
    """Labelled pictures as in `evaluate knn`; with --collection, torchvision's folder of data sets."""
    output: Path
    """Folder to write each network to, as MODEL-on-DATA.safetensors; interrupted work goes on from there."""
    collection: CollectionName | None = None
    """A data set in its publisher's layout below --data; the authors' figures are at --size 224."""
    test: Path | None = None
    """Pictures to test on."""
    split: Path | None = None
    """Text file with the names of the pictures of --data to test on, one a line."""
    recipe: str | None = None
    """Whose numbers: own, imagenet, or a collection's name; left out: the collection's, or own."""
    epochs: int | None = None
    """Instead of the recipe's."""
    rate: float | None = None
    """Peak of the learning rate, instead of the recipe's."""
    batch: int | None = None
    """Pictures in a step, instead of the recipe's; the rate stays."""
    seed: int = 0
    """Of order, crops and mixup."""
    leave_out: tuple[str, ...] = (BACKGROUND,)
    """Classes that are neither trained on nor tested."""

    def run(self) -> None:
        """Read, train, test, write."""
        recipe, data = self._recipe(), self._data()
        told = f"{self.told_view()}; random crops, mirrored; {recipe}; {data.told}"
        print(told)

        def measure(model: LoadedModel) -> Figures:
            return self._measure(model, data, recipe)

        described = {"told": told, "data": self.data.name, "own_data": self.collection is None}
        name = f"finetune {self.collection}" if self.collection else "finetune"
        paper = ("6", _MEASURES[self.collection]) if self.collection else ()
        self.collect(name, described | asdict(recipe), measure, *paper)

    def _recipe(self) -> FinetuneRecipe:
        name = self.recipe or self.collection or "own"
        if name not in RECIPES:
            raise ValueError(f"--recipe {name} is not known: choose one of {', '.join(RECIPES)}")
        given = {"epochs": self.epochs, "rate": self.rate, "batch": self.batch}
        recipe = replace(RECIPES[name], **{k: v for k, v in given.items() if v is not None})  # type: ignore[arg-type]
        if recipe.epochs < 1 or recipe.batch < 2 or recipe.rate <= 0:
            raise ValueError("--epochs must be at least 1, --batch at least 2, --rate above 0")
        return recipe

    def _data(self) -> _Data:
        if self.collection:
            train, test = open_collection(self.collection, self.data)
            labels, truth = torch.tensor(train.labels), torch.tensor(test.labels)
            told = f"{self.collection}: {len(test):,} tested, {len(train):,} train"
            return _Data(train, test, labels, truth, told)
        split = open_split(self.data, test=self.test, split=self.split, leave_out=self.leave_out)
        labels, truth = split.labels(split.train), split.labels(split.test)
        return _Data(split.train, split.test, labels, truth, f"{self.data.name}: {split}")

    def _written(self, model: LoadedModel) -> Path:
        """The file of a network: told by its model and by what it learnt from."""
        name = re.sub(r"[/:]", "_", model.name)
        for suffix in checkpoints.SUFFIXES:
            name = name.removesuffix(suffix)
        return self.output / f"{name}-on-{self.collection or self.data.stem}.safetensors"

    def _measure(self, model: LoadedModel, data: _Data, recipe: FinetuneRecipe) -> Figures:
        if model.config is None:
            raise ValueError(f"{model.name} is no backbone of this package: its weights could not be written")
        if self.chosen_precision() == "fp16":
            raise ValueError("fine-tuning has no loss scaling for fp16: pass --precision bf16 or fp32")
        device = choose_device(self.device)
        width = int(model.backbone.num_features)  # type: ignore[arg-type]
        pictures = data.train.inventory()
        key = [model_fingerprint(model.backbone), pictures, self.size, self.seed, asdict(recipe)]
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
        torch.manual_seed(self.seed)
        network = Classifier(model.backbone.requires_grad_(True), width, data.classes).to(device)
        optimizer, kept = optimizer_of(network, recipe), self.output / f"finetune-{digest}.unfinished"
        first = _restore(network, optimizer, kept)
        view = self.view(model)
        steps = math.ceil(len(data.train) / recipe.batch)
        name = f"{model.name}, {recipe.epochs} epochs"
        for epoch in progress(range(first, recipe.epochs), name, recipe.epochs, done=first):
            np.random.seed(mix(self.seed, epoch) % 2**32)  # noqa: NPY002 (timm's mixup draws from it)
            batches = self._batches(data, view, recipe, epoch)
            precision = self.chosen_precision()
            loss = train_epoch(network, optimizer, batches, recipe, data.classes, epoch, steps, precision)
            with files.replacing(kept) as beside:
                state = {"model": network.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({"epoch": epoch + 1, "loss": loss, **state}, beside)
        found = self._test(network, data, view)
        written = self._written(model)
        write_safetensors(
            network.backbone.cpu(), written, config=model.config, mean=model.mean, std=model.std
        )
        kept.unlink(missing_ok=True)
        look = f"python -m app --models-dir {self.output}"
        print(found, f"the network: {written}; {look} shows it beside the frozen one, in Compare", sep="\n")
        return {"figures": found.figures(), "network": str(written)}

    def _batches(
        self, data: _Data, view: View, recipe: FinetuneRecipe, epoch: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        device, seed = choose_device(self.device), mix(self.seed, epoch)
        order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed)).tolist()

        def load(index: int) -> Tensor:
            return random_view(data.train.read(index), self.size, mix(seed, index), least=recipe.least)

        for chosen, crops in _stacked(order, load_ahead(load, order, recipe.batch), recipe.batch):
            yield view.normalise(crops.to(device)), data.labels[chosen].to(device)

    @torch.no_grad()
    def _test(self, network: Classifier, data: _Data, view: View) -> Accuracy:
        device, numbers = choose_device(self.device), range(len(data.test))
        network.eval()
        crops = load_ahead(lambda index: view.crop(data.test.read(index)), numbers, self.batch_size)
        scores = []
        with autocast(self.chosen_precision(), device):
            for _, seen in _stacked(numbers, crops, self.batch_size):
                scores.append(network(view.normalise(seen.to(device))).float().cpu())
        return accuracy(torch.cat(scores), data.truth)


def _stacked(
    numbers: Sequence[int], crops: Iterator[Tensor], size: int
) -> Iterator[tuple[list[int], Tensor]]:
    for start in range(0, len(numbers), size):
        chosen = list(numbers[start : start + size])
        yield chosen, torch.stack([next(crops) for _ in chosen])


def _restore(network: Classifier, optimizer: torch.optim.Optimizer, kept: Path) -> int:
    """The epoch to go on with."""
    if not kept.exists():
        return 0
    try:
        state = read_torch(kept)
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return int(state["epoch"])
    except (WeightsError, KeyError, RuntimeError, ValueError) as error:
        raise ValueError(f"{kept} cannot be gone on with: delete it") from error
