"""`python -m training evaluate logistic`."""

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, stdev

import torch
from torch import Tensor

from dino_model.device import choose_device
from dino_model.features import CLS
from dino_model.images import Images
from dino_model.weights import LoadedModel
from training.commands.evaluate.base import Cropped, Figures
from training.evaluation.accuracy import Accuracy, accuracy
from training.evaluation.labelled import (
    BACKGROUND,
    Split,
    draw_per_class,
    draw_share,
    listed,
    open_split,
)
from training.evaluation.logistic import LogisticProtocol, Solver, fit


@dataclass(frozen=True)
class Logistic(Cropped):
    """Accuracy of a logistic regression on frozen features, from few labels and from all; no augmentation.

    Which pictures are tested is as in `evaluate knn`.
    """

    data: Path
    """Labelled pictures, a folder for each class: FOLDER, uncompressed TAR or LIST; or `train` and `val`."""
    test: Path | None = None
    """Pictures to test on."""
    split: Path | None = None
    """Text file with the names of the pictures of --data to test on, one a line."""
    labels: tuple[str, ...] = ("1%", "10%", "100%")
    """How many training pictures are labelled: a share of each class (1%), a number of each (5), or a file
    with their names, such as the published lists of ImageNet's 1 % and 10 %."""
    seeds: int = 5
    """Draws of a share or number below all, whose mean and deviation are told."""
    leave_out: tuple[str, ...] = (BACKGROUND,)
    """Classes that are neither trained on nor tested."""
    strength: float = 0.1
    """Of the penalty: λ = strength / n; the released figures have 0.1."""
    intercept: bool = False
    """Give each class a constant, which is not penalised."""
    unit: bool = True
    """L2-normalise features before."""
    solver: Solver = field(default="auto")
    """auto: scikit-learn up to 50,000 pictures of at most 1,000 numbers, else L-BFGS on the device."""

    def run(self) -> None:
        """Read, compute, print."""
        protocol = LogisticProtocol(self.strength, self.intercept, self.unit, self.solver)
        split = open_split(self.data, test=self.test, split=self.split, leave_out=self.leave_out)
        for wanted in self.labels:  # before the long part
            self._draws(wanted, split.train, split.labels(split.train), split.classes)
        told = f"{self.told_view()}; {CLS}; {protocol}"
        print(told, f"{self.data.name}: {split}", sep="\n")
        described = {"told": told, "data": self.data.name, "split": str(split), "classes": len(split.classes)}

        def measure(model: LoadedModel) -> Figures:
            return self._measure(model, split, protocol)

        self.collect("logistic", described | asdict(protocol), measure, "12", "1 %", "10 %")

    def _measure(self, model: LoadedModel, split: Split, protocol: LogisticProtocol) -> Figures:
        view = self.view(model)
        train, test = (self.extract(model, view, images) for images in (split.train, split.test))
        labels, truth = split.labels(train.images), split.labels(test.images)
        features = torch.nn.functional.normalize(test.features, dim=1) if protocol.unit else test.features
        figures = []
        for wanted in self.labels:
            found: list[Accuracy] = []
            draws = self._draws(wanted, train.images, labels, split.classes)
            for chosen in draws:
                device = choose_device(self.device)
                model_ = fit(
                    train.features[chosen], labels[chosen], len(split.classes), protocol, device=device
                )
                found.append(accuracy(model_.scores(features), truth))
            line = _summary(wanted, len(draws[0]), found) | {"solver": model_.solver}
            print(_told(line), f"F = {model_.objective:.6f}, gradient {model_.gradient:.1g}, {model_.solver}")
            figures.append(line)
        return {"figures": figures[-1], "each": figures, "broken": [*train.broken, *test.broken]}

    def _draws(self, wanted: str, images: Images, labels: Tensor, names: tuple[str, ...]) -> list[Tensor]:
        """Indices of the labelled pictures, once for each seed."""
        if match := re.fullmatch(r"(\d+(?:\.\d+)?)%", wanted):
            share = float(match[1]) / 100
            return [draw_share(labels, share, seed) for seed in range(1 if share == 1 else self.seeds)]
        if wanted.isdecimal():
            return [draw_per_class(labels, int(wanted), seed, names) for seed in range(self.seeds)]
        if not Path(wanted).is_file():
            raise ValueError(f"--labels {wanted} is no share (1%), number (5) or file of names")
        return [listed(images, Path(wanted))]


def _summary(wanted: str, count: int, found: list[Accuracy]) -> Figures:
    """Mean over the draws, and the deviation of the top-1."""
    each = [one.figures() for one in found]
    means = {name: mean(one[name] for one in each) for name in each[0]}
    deviation = stdev(one["top1"] for one in each) if len(each) > 1 else 0.0
    return {"labels": wanted, "pictures": count, "draws": len(each), **means, "top1_deviation": deviation}


def _told(line: Figures) -> str:
    of = f" ± {line['top1_deviation']:.1f} over {line['draws']} draws" if line["draws"] > 1 else ""
    budget = f"{line['labels']} of each class" if line["labels"].isdecimal() else f"labels: {line['labels']}"
    return (
        f"{budget} ({line['pictures']:,} pictures): top-1 {line['top1']:.1f} %{of}"
        f" (mean of the classes {line['per_class_top1']:.1f}), top-5 {line['top5']:.1f} %;"
    )
