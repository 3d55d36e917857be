"""`python -m training evaluate linear`."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from dino_model import files
from dino_model.checkpoints import WeightsError, read_torch
from dino_model.device import autocast, choose_device
from dino_model.download import fetch
from dino_model.feature_cache import model_fingerprint
from dino_model.features import CLS, FeatureType, ImageFeatures, has_cls_tokens
from dino_model.images import Images
from dino_model.progress import progress
from dino_model.weights import OFFICIAL, OFFICIAL_ADDRESS, LoadedModel
from training.commands.evaluate import pictures
from training.commands.evaluate.base import Cropped, Figures
from training.evaluation.accuracy import accuracy
from training.evaluation.augmented import random_views
from training.evaluation.labelled import BACKGROUND, Split, open_split
from training.evaluation.linear import (
    RATES,
    Choice,
    Head,
    Heads,
    LinearProtocol,
    Reads,
    batches,
    choose,
    deepest,
    held_back,
    learn,
    official_head,
)


@dataclass(frozen=True)
class Linear(Cropped):
    """Accuracy of a linear classifier on frozen features: a grid of rates and kinds of features in one pass.

    Rate and kind are chosen on every fifth training picture of each class; the chosen one then learns from
    all training pictures. Which pictures are tested is as in `evaluate knn`.
    """

    data: Path
    """Labelled pictures, a folder for each class: FOLDER, uncompressed TAR or LIST; or `train` and `val`."""
    test: Path | None = None
    """Pictures to test on."""
    split: Path | None = None
    """Text file with the names of the pictures of --data to test on, one a line."""
    augment: bool = False
    """Learn from random crops and mirrored pictures, as the paper does: every epoch runs the backbone.
    Without it, fixed features of the middle of each picture are computed once."""
    epochs: int = 100
    """Passes over the training pictures."""
    rates: tuple[float, ...] = RATES
    """Learning rates for a batch of 256."""
    reads: tuple[str, ...] = ("1", "4", "1+average")
    """What is looked at: [CLS] of so many last blocks, with or without the mean of the patches."""
    head: str | None = None
    """A published head instead of learning one: its file, or the name of the model that it was published
    with, such as dino_vits16, to download it once. Its classes are ImageNet's, folders sorted."""
    batch: int = 256
    """Pictures in a step."""
    seed: int = 0
    """Of first weights, order and crops."""
    leave_out: tuple[str, ...] = (BACKGROUND,)
    """Classes that are neither trained on nor tested."""
    curves: Path | None = field(default=None)
    """Draw the accuracy of every classifier of the grid to this file (.png)."""

    def run(self) -> None:
        """Read, compute, print."""
        files.make_room(self.curves)
        reads = tuple(parse_reads(one) for one in self.reads)
        protocol = LinearProtocol(self.rates, reads, self.epochs, self.batch, seed=self.seed)
        split = open_split(self.data, test=self.test, split=self.split, leave_out=self.leave_out)
        how = "random crops (8 to 100 %, bilinear) and mirrored" if self.augment else "no augmentation"
        told = f"a published head, {self.told_view()}"
        if self.head is None:
            told = f"{self.told_view()}; {how}; {protocol}; chosen on every fifth training picture"
        print(told, f"{self.data.name}: {split}", sep="\n")
        described = {"told": told, "data": self.data.name, "split": str(split), "classes": len(split.classes)}

        def measure(model: LoadedModel) -> Figures:
            return self._published(model, split) if self.head else self._learnt(model, split, protocol)

        described |= asdict(protocol) | {"augment": self.augment}
        self.collect("linear", described, measure, "2", "linear top-1")

    def _learnt(self, model: LoadedModel, split: Split, protocol: LinearProtocol) -> Figures:
        if not has_cls_tokens(model.backbone):
            protocol = replace(protocol, reads=(Reads(1),))
            print(f"{model.name} has no [CLS] token in its blocks: its one output feature is used")
        blocks = deepest(protocol.reads)
        train, test = (self._features(model, images, blocks) for images in (split.train, split.test))
        labels, truth = split.labels(train.images), split.labels(test.images)
        learn, judge = held_back(labels)
        x = _in_blocks(model, train.features, blocks)
        part, device = train.images.subset(learn.tolist()), choose_device(self.device)
        heads = self._train(model, part, x[learn], labels[learn], protocol, split)
        choice = choose(heads, x[judge].to(device), labels[judge].to(device))
        rate, reads = protocol.rates[choice.rate], protocol.reads[choice.kind]
        print(
            f"chosen on {len(judge):,} training pictures: {reads}, rate {rate:g}"
            f" ({choice.top1[choice.kind][choice.rate]:.1f} % of them)"
        )
        alone = LinearProtocol((rate,), (reads,), self.epochs, self.batch, seed=self.seed)
        final = self._train(model, train.images, x, labels, alone, split).head(0, 0)
        found = accuracy(_scores(final, _in_blocks(model, test.features, blocks)), truth)
        print(found)
        self._draw(model, protocol, choice)
        return {
            "figures": found.figures(),
            "chosen": {"rate": rate, "reads": str(reads), "top1": choice.top1[choice.kind][choice.rate]},
            "grid": choice.top1,
            "broken": [*train.broken, *test.broken],
        }

    def _features(self, model: LoadedModel, images: Images, blocks: int) -> ImageFeatures:
        kind = FeatureType(blocks, "average") if has_cls_tokens(model.backbone) else CLS
        return self.extract(model, self.view(model), images, kind)

    def _train(
        self,
        model: LoadedModel,
        images: Images,
        features: Tensor,
        labels: Tensor,
        protocol: LinearProtocol,
        split: Split,
    ) -> Heads:
        device, precision = choose_device(self.device), self.chosen_precision()
        heads = Heads(protocol, features.shape[2], len(split.classes), device=device, precision=precision)
        epochs = self._epochs(model, images, heads)
        if not self.augment:
            learn(heads, features, labels, epochs)
            return heads
        for epoch in epochs:
            for chosen, x in self._seen(model, images, protocol, epoch):
                heads.step(x, labels[chosen].to(device), epoch)
        return heads

    def _epochs(self, model: LoadedModel, images: Images, heads: Heads) -> Iterator[int]:
        """The epochs that are left; with a cache the grid is kept after each, and gone on with."""
        kept, epochs = self._kept(model, images, heads.protocol), heads.protocol.epochs
        first = _restore(heads, kept)
        name = f"{model.name}, {epochs} epochs"
        for epoch in progress(range(first, epochs), name, epochs, done=first):
            yield epoch
            if kept is not None:
                with files.replacing(kept) as beside:
                    torch.save({"epoch": epoch + 1, **heads.state()}, beside)

    def _seen(
        self, model: LoadedModel, images: Images, protocol: LinearProtocol, epoch: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Numbers of pictures, and features of random views of them: [batch, blocks + 1, width]."""
        device, view, blocks = choose_device(self.device), self.view(model), deepest(protocol.reads)
        backbone = model.backbone.to(device)
        order = torch.cat(list(batches(len(images), protocol, epoch)))
        kind = FeatureType(blocks, "average") if has_cls_tokens(model.backbone) else CLS
        for chosen, crops in random_views(images, order, self.size, protocol.batch_size, self.seed, epoch):
            with torch.no_grad(), autocast(self.chosen_precision(), device):
                features = kind.compute(backbone, view.normalise(crops.to(device))).float()
            yield chosen, _in_blocks(model, features, blocks)

    def _kept(self, model: LoadedModel, images: Images, protocol: LinearProtocol) -> Path | None:
        """Where a grid is kept while it learns, by all that decides what it becomes."""
        if self.cache is None:
            return None
        computed = [self.chosen_precision(), choose_device(self.device).type]
        seen = [images.fingerprint(), asdict(self.view(model)), self.augment]
        key = [model_fingerprint(model.backbone), *seen, *computed, asdict(protocol)]
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
        return self.cache / f"linear-{digest}.pt"

    def _published(self, model: LoadedModel, split: Split) -> Figures:
        assert self.head is not None
        file = published_head(self.head) if self.head in OFFICIAL else Path(self.head)
        payload = read_torch(file)
        tensors = payload.get("state_dict", payload)
        width = int(model.backbone.num_features)  # type: ignore[arg-type]
        head = official_head(tensors, width)
        if len(head.weights) != len(split.classes):
            raise ValueError(
                f"{file} names {len(head.weights)} classes, {self.data} has {len(split.classes)}"
            )
        test = self._features(model, split.test, head.reads.blocks)
        scores = _scores(head, _in_blocks(model, test.features, head.reads.blocks))
        found = accuracy(scores, split.labels(test.images))
        print(f"{file.name}: reads {head.reads}", found, sep="\n")
        return {"figures": found.figures(), "head": file.name, "broken": [*test.broken]}

    def _draw(self, model: LoadedModel, protocol: LinearProtocol, choice: Choice) -> None:
        if self.curves is None:
            return
        lines = {
            str(reads): list(zip(protocol.rates, row, strict=True))
            for reads, row in zip(protocol.reads, choice.top1, strict=True)
        }
        pictures.curves(
            self.curves,
            lines,
            title=f"{model.name}: linear classifiers on held-back training pictures",
            across="learning rate for a batch of 256",
            up="top-1, %",
        )
        print(f"curves: {self.curves}")


def parse_reads(text: str) -> Reads:
    """`4` or `1+average` as what a classifier reads.

    Raises:
        ValueError: another form.
    """
    if not (match := re.fullmatch(r"(\d+)(\+average)?", text)):
        raise ValueError(f"--reads {text} is no number of blocks, such as 4, or 1+average")
    return Reads(int(match[1]), "after" if match[2] else "no")


def published_head(model: str) -> Path:
    """The linear head that was published with a model of `OFFICIAL`, downloaded once into the cache."""
    stem = OFFICIAL[model].stem
    file = f"{stem.removesuffix('_pretrain')}_linearweights.pth"
    return fetch(f"{OFFICIAL_ADDRESS}/{stem}/{file}", file, read_torch)


def _in_blocks(model: LoadedModel, features: Tensor, blocks: int) -> Tensor:
    """[pictures, numbers] as [pictures, blocks + 1, width]; without blocks, the one feature repeated."""
    if not has_cls_tokens(model.backbone):
        return features[:, None].expand(-1, blocks + 1, -1)
    return features.unflatten(1, (blocks + 1, -1))


def _scores(head: Head, features: Tensor) -> Tensor:
    return torch.cat([head.scores(part.float()) for part in features.split(4096)])


def _restore(heads: Heads, kept: Path | None) -> int:
    """The epoch to go on with."""
    if kept is None or not kept.exists():
        return 0
    try:
        state = read_torch(kept)
        heads.restore(state)
    except (WeightsError, KeyError, RuntimeError) as error:
        raise ValueError(f"{kept} cannot be gone on with: delete it") from error
    return int(state["epoch"])
