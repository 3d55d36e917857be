"""Reproduce the published scores, given a network and the data sets.

python -m benchmarks.official [--davis DIR] [--voc DIR] [--imagenet DIR] [--output FOLDER]

For each published model: download the weights, run the project's commands on the given data, and compare
every metric with the paper's. FOLDER/official.json holds the result.
"""

import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro

from dino_model.models.catalogue import OFFICIAL
from dino_model.runtime.files import write_json

TOLERANCE = {"k-NN": 0.3, "linear": 0.5, "VOC12": 1.0, "DAVIS": 0.5}
"""Points by which a metric may differ from the paper's. Not all of the masks' protocol is published."""
MODELS = tuple(name for name, weights in OFFICIAL.items() if weights.scores.linear)
"""Models with published scores."""


@dataclass(frozen=True)
class Official:
    """VOC12, DAVIS, k-NN and linear scores of the published models, next to the paper's."""

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
        """Measure, print a verdict for each metric, write the file."""
        if not any((self.davis, self.voc, self.imagenet)):
            raise SystemExit("error: name at least one of --davis, --voc and --imagenet")
        if unknown := sorted({*self.models}.difference(MODELS)):
            raise SystemExit(f"error: {unknown[0]} is none of {', '.join(MODELS)}")
        machine = {
            "system": platform.platform(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        }
        rows: list[dict[str, Any]] = []
        for model, metric, paper, command in (plan for name in self.models for plan in self.plans(name)):
            file = self.output / f"{model}-{metric}.json"
            score = measure_metric(metric, file, [*command, "--json", str(file)])
            outcome, value = verdict(metric, score, paper), "none" if score is None else f"{score:.1f}"
            print(f"{model:14} {metric:7} package {value:>5}, the paper {paper:.1f}: {outcome}", flush=True)
            row = {"model": model, "metric": metric, "score": score, "paper": paper}
            rows.append(row | {"verdict": outcome})
            content = {"name": "official", "machine": machine, "verdicts": rows}
            write_json(self.output / "official.json", content)
        right = sum(row["verdict"] == "reproduced" for row in rows)
        print(f"{right} of {len(rows)} scores reproduced; to send: {self.output / 'official.json'}")
        if failed := sum(row["score"] is None for row in rows):
            raise SystemExit(f"error: {failed} scores were not measured, see above: mend it and run again")

    def plans(self, model: str) -> Iterator[tuple[str, str, float, list[str]]]:
        """Yield model, metric, published value and command of all that the data and the paper allow."""
        scores, output = OFFICIAL[model].scores, self.output
        view = ["--resize-to", "256", "--size", "224", "--cache", f"{output}/features"]
        classify = ["--data", f"{self.imagenet}", *view]
        knn, linear = (["training", "evaluate", name, *classify] for name in ("knn", "linear"))
        voc = ["segmentation", "voc", "--root", f"{self.voc}", "--output", f"{output}/{model}-voc"]
        davis = ["segmentation", "davis", "--root", f"{self.davis}", "--output", f"{output}/{model}-davis"]
        plans = (
            ("k-NN", scores.knn, self.imagenet, [*knn, "--k", "20"]),
            ("linear", scores.linear, self.imagenet, [*linear, "--head", model]),
            ("VOC12", scores.voc, self.voc, voc),
            ("DAVIS", scores.davis, self.davis, davis),
        )
        for metric, paper, folder, command in plans:
            if paper is not None and folder is not None:  # the paper has no VOC12 score of ViT-B
                yield model, metric, paper, [*command, "--model", model]


def measure_metric(metric: str, file: Path, command: Sequence[str]) -> float | None:
    """Read a metric from its file, after running the command if the file is missing; None if that fails."""
    if not file.is_file():
        print("python -m", *command, flush=True)
        if subprocess.run([sys.executable, "-m", *command]).returncode:
            return None
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if metric == "VOC12":
        return float(content["jaccard"])
    if metric == "DAVIS":
        return 100 * float(content["dataset"]["J&F_mean"])
    return float(content["results"][0]["metrics"]["top1"])


def verdict(metric: str, score: float | None, paper: float) -> str:
    """Compare a metric with the paper's."""
    if score is None:
        return "not measured: the command failed, see above"
    allowed, difference = TOLERANCE[metric], abs(score - paper)
    if difference <= allowed + 1e-9:
        return "reproduced"
    return f"{difference:.1f} points {'above' if score > paper else 'below'}, allowed are {allowed:g}"


if __name__ == "__main__":
    tyro.cli(Official).run()
