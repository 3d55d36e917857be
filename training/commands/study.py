"""`python -m training study`: test a law of the paper with short runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Annotated

import tyro
from tqdm import tqdm
from tyro.conf import Positional

from dino_model import files
from dino_model.configs import Precision
from dino_model.device import choose_device, choose_precision
from dino_model.errors import SettingError
from dino_model.outputs import OutputOptions
from dino_model.predictor import AttentionPredictor
from dino_model.weights import load_model
from training.evaluation.metrics import photograph_lifts
from training.evaluation.run import Pixels
from training.recipe import Plan
from training.run import Run
from training.settings import at_least
from training.studies import report
from training.studies.laws import GRIDS, LAWS, Law
from training.studies.report import Outcome
from training.studies.runs import Result, StudyData, check_base, textures, train_run


@dataclass(frozen=True, kw_only=True)
class StudyCommand(OutputOptions):
    """Test a law of the paper: write a figure, a table and a sentence with the effect and its interval."""

    name: Positional[str]
    """collapse, teacher, lead, multicrop, loss or emergence; `grids` lists comparisons that need a GPU."""
    output: Path = Path("study")
    """Folder for runs and results."""
    seeds: int = 3
    """Runs of each variant."""
    epochs: int | None = None
    """Passes over the 3,200 textures instead of the study's own number."""
    device: str = "auto"
    """auto, cpu, mps or cuda."""
    precision: Precision = "fp32"
    """Precision of the networks; the loss is fp32."""
    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = None
    """Write verdict, effect and values to this file."""

    def run(self) -> int:
        """Train the missing runs, then report."""
        if self.name == "grids":
            print(grids_text())
            return 0
        if self.name not in LAWS:
            raise SettingError(f"Unknown study {self.name!r}. Available: {', '.join(LAWS)}, grids.")
        at_least(self, seeds=1)
        law, epochs = LAWS[self.name], self.epochs or LAWS[self.name].epochs
        files.make_room(self.json_file)
        device = choose_device(self.device)
        precision = choose_precision(self.precision, device)
        settings = {"study": law.name, "seeds": self.seeds, "epochs": epochs, "precision": precision}
        folder = self.open_output(settings)
        runs, figure, page = (folder.path(name) for name in ("runs", f"{law.name}.png", f"{law.name}.md"))
        if law.name == "emergence":
            outcome = emergence(str(device), precision)
        else:
            outcome = train_study(law, textures(device, precision), runs, self.seeds, epochs)
        report.draw(law, outcome, figure)
        files.write_text(page, report.page(law, outcome))
        folder.finish()
        print(*report.table(law, outcome), "", report.verdict(law, outcome), sep="\n")
        print(figure, page)
        if self.json_file:
            files.write_json(self.json_file, report.as_json(law, outcome))
        return 0


def train_study(law: Law, data: StudyData, folder: Path, seeds: int, epochs: int) -> Outcome:
    """Train the base runs, check that they beat pixels and untrained weights, train the other variants.

    Raises:
        StudyError: A base run does not.
    """
    recipes = law.variants(epochs)
    steps = {name: Plan.of(recipe, len(data.train)).steps for name, recipe in recipes.items()}
    results: dict[str, list[Result]] = {}
    done, pixels = 0, data.accuracy(Pixels(), next(iter(recipes.values())).crops.global_size)
    with tqdm(total=seeds * sum(steps.values()), unit="step") as bar:
        for name, recipe in recipes.items():
            results[name] = []
            for seed in range(seeds):
                bar.set_description(f"{name}, seed {seed}")
                run = Run(folder / f"{name.replace(' ', '-')}-{seed}")
                after_step = partial(_move, bar, done)
                results[name].append(train_run(run, recipe, seed, data, law.probes, after_step))
                done += steps[name]
                _move(bar, done, 0)
            if len(results) == 1:  # the base
                check_base(results[name], pixels)
    return outcome_of(law, results, pixels, is_short=epochs < law.epochs)


def _move(bar: "tqdm[None]", done: int, steps: int) -> None:
    bar.update(done + steps - bar.n)


def outcome_of(law: Law, results: Mapping[str, list[Result]], pixels: float, *, is_short: bool) -> Outcome:
    """Reduce the results of all runs to the values of the report."""
    by_seed = [dict(zip(results, row, strict=True)) for row in zip(*results.values(), strict=True)]
    points = [law.values(row) for row in by_seed]
    untrained = fmean(result.untrained for row in results.values() for result in row)
    is_accuracy = law.unit == "points"
    return Outcome(
        values={name: [row[name] for row in points] for name in points[0]},
        differences=[law.effect(row) for row in by_seed],
        baselines={"pixels": pixels, "untrained": untrained} if is_accuracy else {},
        seconds={name: fmean(result.seconds for result in row) for name, row in results.items()},
        is_short=is_short,
    )


def emergence(device: str, precision: Precision) -> Outcome:
    """Compare the attention of the embedded model with that of random weights on the same photographs."""
    random, trained = (
        photograph_lifts(AttentionPredictor(load_model(name), size=224, precision=precision, device=device))
        for name in ("random:embedded", "embedded")
    )
    differences = [after - before for before, after in zip(random, trained, strict=True)]
    values = {"random weights": random, "trained": trained}
    return Outcome(values, differences, {"attention in proportion to area": 1.0}, {})


def grids_text() -> str:
    """List the comparisons that need a GPU: command, source and expected effect."""
    lines = ["ViT-S/16, 100 epochs of ImageNet: 250 to 390 V100 hours a run."]
    for name, grid in GRIDS.items():
        values = "|".join(map(str, grid.values))
        command = (
            f"python -m training pretrain --data imagenet/train --epochs 100 {grid.option} {values}".strip()
        )
        lines += [
            f"{name} ({grid.source}, largest effect {grid.effect}):",
            f"  {command} --output runs/{name}",
        ]
    return "\n".join(lines)
