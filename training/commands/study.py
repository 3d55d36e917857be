"""`python -m training study`: test a law of the paper with short runs. It imports torch when it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from tyro.conf import Positional

from dino_model.runtime import files
from dino_model.runtime.errors import SettingError
from dino_model.runtime.outputs import JsonOptions, OutputOptions
from dino_model.runtime.precision import Precision
from training.recipes.validation import at_least
from training.run.folder import Run
from training.studies.laws import LAWS, Law

if TYPE_CHECKING:
    from training.studies.report import Outcome
    from training.studies.runs import Result, StudyData


@dataclass(frozen=True, kw_only=True)
class StudyCommand(OutputOptions, JsonOptions):
    """Test a law of the paper: write a figure, a table and a sentence with the effect and its interval."""

    name: Positional[str]
    """collapse, teacher, multicrop, loss or emergence."""
    output: Path = Path("study")
    """Folder for runs and results."""
    seeds: int | None = None
    """Runs of each variant instead of the study's own number."""
    epochs: int | None = None
    """Passes over the 3,200 textures instead of the study's own number."""
    device: str = "auto"
    """auto, cpu, mps or cuda."""
    precision: Precision = "fp32"
    """Precision of the networks; the loss is fp32."""

    def run(self) -> int:
        """Train the missing runs, then report."""
        if self.name not in LAWS:
            raise SettingError(f"Unknown study {self.name!r}. Available: {', '.join(LAWS)}.")
        at_least(self, **{name: 1 for name in ("seeds", "epochs") if getattr(self, name) is not None})
        from dino_model.data.collection import open_images
        from dino_model.runtime.device import choose_device, choose_precision
        from training.studies import report
        from training.studies.runs import StudyData

        law = LAWS[self.name]
        epochs, seeds = self.epochs or law.epochs, self.seeds or law.seeds
        files.make_room(self.json)
        device = choose_device(self.device)
        precision = choose_precision(self.precision, device)
        settings = {"study": law.name, "seeds": seeds, "epochs": epochs, "precision": precision}
        folder = self.open_output(settings)
        runs, figure, page = (folder.path(name) for name in ("runs", f"{law.name}.png", f"{law.name}.md"))
        if law.name == "emergence":
            outcome = emergence(str(device), precision)
        else:
            textures = open_images("textures:"), open_images("textures:test")
            outcome = train_study(law, StudyData(*textures, device, precision), runs, seeds, epochs)
        report.draw_outcome(outcome, figure)
        files.write_text(page, report.outcome_page(outcome))
        folder.finish()
        print(*report.outcome_table(outcome), "", report.verdict(outcome), sep="\n")
        print(figure, page)
        self.save(report.outcome_json(outcome))
        return 0


def train_study(law: Law, data: StudyData, folder: Path, seeds: int, epochs: int) -> Outcome:
    """Train the base runs, check that they beat pixels and untrained weights, train the other variants.

    Raises:
        ValueError: A base run does not.
    """
    from training.evaluation.run import Pixels
    from training.studies.report import Outcome
    from training.studies.runs import check_base, train_run

    recipes = law.recipes(epochs)
    pixels = data.accuracy(Pixels(), next(iter(recipes.values())).crops.global_size)
    results: dict[str, list[Result]] = {}
    for name, recipe in recipes.items():
        runs = [Run(folder / f"{name.replace(' ', '-')}-{seed}") for seed in range(seeds)]
        results[name] = [train_run(run, recipe, seed, data) for seed, run in enumerate(runs)]
        if len(results) == 1:  # the base
            check_base(results[name], pixels)
    points = [law.values({name: row[seed] for name, row in results.items()}) for seed in range(seeds)]
    untrained = fmean(result.untrained for row in results.values() for result in row)
    return Outcome(
        law,
        values={name: [row[name] for row in points] for name in points[0]},
        baselines={"pixels": pixels, "untrained": untrained} if law.unit == "points" else {},
        seconds={name: fmean(result.seconds for result in row) for name, row in results.items()},
        is_short=epochs < law.epochs,
    )


def emergence(device: str, precision: Precision) -> Outcome:
    """Compare the attention of `embedded-dino` with that of random weights on the same images."""
    from dino_model.models.load import load_model
    from training.evaluation.metrics import photograph_lifts
    from training.studies.report import Outcome

    random, trained = (
        photograph_lifts(load_model(name), precision=precision, device=device)
        for name in ("random:embedded", "embedded-dino")
    )
    values = {"random weights": random, "trained": trained}
    return Outcome(LAWS["emergence"], values, {"attention in proportion to area": 1.0}, {})
