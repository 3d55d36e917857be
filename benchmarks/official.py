"""Reproduce the published figures, given a network and the data sets.

python -m benchmarks.official [--davis DIR] [--voc DIR] [--imagenet DIR] [--output FOLDER]

For each published model: download the weights, run the project's commands on the given data, and compare
every figure with the paper's. FOLDER/official.json holds the result.
"""

import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import tyro

from dino_model import files
from dino_model.weights import OFFICIAL

TOLERANCE = {"k-NN": 0.3, "linear": 0.5, "VOC12": 1.0, "DAVIS": 0.5}
"""Points by which a figure may differ from the paper's. Not all of the masks' protocol is published."""
MODELS = tuple(name for name, weights in OFFICIAL.items() if weights.scores.linear)
"""Models with published figures."""


@dataclass(frozen=True)
class Verdict:
    """A measured figure beside the paper's."""

    model: str
    figure: str
    ours: float | None
    paper: float
    said: str

    def __str__(self) -> str:
        ours = "none" if self.ours is None else f"{self.ours:.1f}"
        return f"{self.model:14} {self.figure:7} ours {ours:>5}, the paper {self.paper:.1f}: {self.said}"


@dataclass(frozen=True)
class Official:
    """VOC12, DAVIS, k-NN and linear figures of the published models, beside the paper's."""

    davis: Path | None = None
    """DAVIS-2017, its publisher's layout."""
    voc: Path | None = None
    """VOCdevkit."""
    imagenet: Path | None = None
    """ImageNet-1k, folders `train` and `val` with a folder for each class."""
    models: tuple[str, ...] = MODELS
    """Published models to evaluate."""
    output: Path = Path("output/official")
    """Folder for official.json and the output of the commands; existing results are not measured again."""

    def run(self) -> None:
        """Measure, print a verdict for each figure, write the file."""
        if not any((self.davis, self.voc, self.imagenet)):
            raise SystemExit("error: name at least one of --davis, --voc and --imagenet")
        if unknown := sorted({*self.models}.difference(MODELS)):
            raise SystemExit(f"error: {unknown[0]} is none of {', '.join(MODELS)}")
        for folder in (self.davis, self.voc, self.imagenet):
            if folder is not None and not folder.is_dir():
                raise SystemExit(f"error: {folder} is not there: nothing was measured")
        verdicts = []
        for model in self.models:
            for verdict in self.of_model(model):
                print(verdict, flush=True)
                verdicts.append(verdict)
                self.write(verdicts)
        right = sum(verdict.said == "reproduced" for verdict in verdicts)
        print(f"{right} of {len(verdicts)} figures reproduced; to send: {self.output / 'official.json'}")
        if missing := sum(verdict.ours is None for verdict in verdicts):
            raise SystemExit(f"error: {missing} figures were not measured, see above: mend it and run again")

    def of_model(self, model: str) -> Iterator[Verdict]:
        """Yield a verdict for every figure that the data and the paper allow."""
        for figure, paper, words in self.plans(model):
            if paper is not None:  # the paper has no VOC12 figure of ViT-B
                file = self.output / f"{model}-{figure}.json"
                ours = measured(figure, file, [*words, "--json", str(file)])
                yield verdict(model, figure, ours, paper)

    def plans(self, model: str) -> Iterator[tuple[str, float | None, list[str]]]:
        """Yield name, published value and command of every figure."""
        scores = OFFICIAL[model].scores
        out = str(self.output / model)
        view = ["--resize-to", "256", "--size", "224", "--cache", str(self.output / "features")]
        if self.imagenet:
            data = ["--data", str(self.imagenet), "--model", model, *view]
            yield "k-NN", scores.knn, ["training", "evaluate", "knn", *data, "--k", "20"]
            yield "linear", scores.linear, ["training", "evaluate", "linear", *data, "--head", model]
        if model != "dino_resnet50":
            if self.voc:
                words = ["segmentation", "voc", "--root", str(self.voc), "--model", model]
                yield "VOC12", scores.voc, [*words, "--output", f"{out}-voc"]
            if self.davis:
                words = ["segmentation", "davis", "--root", str(self.davis), "--model", model]
                yield "DAVIS", scores.davis, [*words, "--output", f"{out}-davis"]

    def write(self, verdicts: Sequence[Verdict]) -> None:
        """Write the verdicts so far, with a description of the machine."""
        machine = {
            "system": platform.platform(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        }
        content = {"name": "official", "machine": machine, "verdicts": [asdict(one) for one in verdicts]}
        files.write_json(self.output / "official.json", content)


def measured(figure: str, file: Path, words: Sequence[str]) -> float | None:
    """Read a figure from its file, after running the command if the file is missing; None if that fails."""
    if not file.is_file():
        print("python -m", *words, flush=True)
        if subprocess.run([sys.executable, "-m", *words]).returncode:
            return None
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if figure == "VOC12":
        return float(content["jaccard"])
    if figure == "DAVIS":
        return 100 * float(content["dataset"]["J&F_mean"])
    return float(content["results"][0]["metrics"]["top1"])


def verdict(model: str, figure: str, ours: float | None, paper: float) -> Verdict:
    """Compare a figure with the paper's."""
    if ours is None:
        return Verdict(model, figure, None, paper, "not measured: the command failed, see above")
    allowed, difference = TOLERANCE[figure], abs(ours - paper)
    if difference <= allowed + 1e-9:
        return Verdict(model, figure, ours, paper, "reproduced")
    side = "above" if ours > paper else "below"
    said = f"{difference:.1f} points {side}, allowed are {allowed:g}"
    return Verdict(model, figure, ours, paper, said)


if __name__ == "__main__":
    tyro.cli(Official).run()
