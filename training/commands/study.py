"""`python -m training study`: a conclusion of the paper, drawn again with short runs."""

import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from tyro.conf import Positional

from dino_model import files
from dino_model.collections import open_images
from dino_model.device import Precision, choose_device, choose_precision
from dino_model.errors import SettingError
from training.commands.pretrain import EXIT_CODES, stop_signal
from training.settings import at_least
from training.studies import report, runs
from training.studies.base import CLASSES, PER_CLASS, choose
from training.studies.grids import STUDIES
from training.studies.study import Study, Variant


@dataclass(frozen=True)
class StudyCommand:
    """Run a small grid of short runs; leave a picture, a table beside the paper's, the log and a reading."""

    name: Positional[str]
    """collapse, teacher, components, methods, crops, head, batch, patch or heads."""
    data: Path
    """Labelled pictures: a folder for each class, or a tar or list of such."""
    output: Path
    """Folder of the study: its runs, and what they say."""
    resume: bool = False
    """Go on with the study in --output."""
    jobs: int = 1
    """Runs at a time."""
    seeds: int | None = None
    """Runs of each variant; left out: the study's own number."""
    epochs: int | None = None
    """Passes of each run over the pictures; left out: the study's own number."""
    device: str = "auto"
    """auto, cpu, mps or cuda."""
    precision: Precision = "auto"
    """auto is bf16 where the hardware has it, else fp32; the loss is always fp32."""
    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = None
    """File for the figures."""

    def run(self) -> int:
        """Train what is not trained yet, then read it; returns the exit code."""
        study = find(self.name)
        at_least(self, jobs=1)
        if self.seeds is not None or self.epochs is not None:
            at_least(self, **{name: 1 for name in ("seeds", "epochs") if getattr(self, name) is not None})
        files.make_room(self.json_file)
        device = choose_device(self.device)
        images = choose(open_images(self.data))
        where = runs.Where(images, device, choose_precision(self.precision, device))
        plan = begin(self, study, where)
        variants = list(study.make(plan["epochs"]))
        cells = grid(self.output, variants, plan["seeds"])
        distinct = [cell for cell in cells if cell.folder.name == f"{cell.variant}-{cell.seed}"]
        print(f"{study.title}: {len(distinct)} runs of {plan['epochs']} epochs on {len(images):,} pictures")
        if not train(distinct, where, self.jobs):
            print(f"{self.output}: stopped, --resume goes on")
            return next(iter(EXIT_CODES.values()))
        results = [runs.result(cell) for cell in cells]
        seconds = sum(runs.result(cell).seconds for cell in distinct)
        reading = report.write(self.output, study, variants, results, self._about(plan, where, seconds))
        print(*report.table(study, variants, results), "", *reading.sentences, sep="\n")
        print(f"{self.output / study.name}.png, .md and .jsonl")
        if self.json_file:
            files.write_json(self.json_file, report.as_json(study, results, reading))
        return 0

    def _about(self, plan: dict[str, Any], where: runs.Where, seconds: float) -> list[str]:
        """How it was made."""
        words = [f"python -m training study {self.name} --data {self.data.name} --output {self.output.name}"]
        words += [f"--{name} {plan[name]}" for name in ("seeds", "epochs") if getattr(self, name) is not None]
        seeds = f"seeds 0 to {plan['seeds'] - 1}" if plan["seeds"] > 1 else "seed 0"
        return [
            f"Ours: {len(where.images):,} pictures of the {CLASSES} largest classes of `{self.data.name}` "
            f"({PER_CLASS} each), {plan['epochs']} epochs, {seeds}, the base setting of "
            "`training/studies/base.py`.",
            "Every picture is named by its ten nearest of the four fifths that it is not part of. Classes "
            "are few and easy: compare differences with the paper's, not figures.",
            "KL and entropy are means over the last tenth of the steps.",
            f"`{' '.join(words)}`",
            f"{seconds:.0f} seconds of training in all ({where.device.type}, {where.precision}, torch "
            f"{torch.__version__}, {platform.machine()}), on a machine that may have done other work too.",
        ]


def find(name: str) -> Study:
    """The study of that name.

    Raises:
        SettingError: there is none.
    """
    if name not in STUDIES:
        raise SettingError(f"no study {name!r}: choose {', '.join(STUDIES)}")
    return STUDIES[name]


def begin(options: StudyCommand, study: Study, where: runs.Where) -> dict[str, Any]:
    """Make the study's folder, or look whether the one that is there goes on; returns what is planned.

    Raises:
        SettingError: another study, other pictures or settings, or one that was not to be resumed.
    """
    plan: dict[str, Any] = {
        "study": study.name,
        "seeds": options.seeds or study.seeds,
        "epochs": options.epochs or study.epochs,
        "data": where.images.inventory(),
        "precision": where.precision,
    }
    path = options.output / "study.json"
    if not path.exists():
        if options.output.is_dir() and any(options.output.iterdir()):
            raise SettingError(f"{options.output} is not empty and holds no study: pass another --output")
        files.write_json(path, plan)
        return plan
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        there = before["study"]
    except (ValueError, KeyError, TypeError):
        raise SettingError(f"{path} is damaged: pass another --output") from None
    if there != study.name:
        raise SettingError(
            f"{options.output} holds the study {there!r}: pass another --output for {study.name!r}"
        )
    if not options.resume:
        raise SettingError(
            f"{options.output} holds this study already: --resume goes on, or pass another --output"
        )
    if options.seeds is None:
        plan["seeds"] = before["seeds"]
    if options.epochs is None:
        plan["epochs"] = before["epochs"]
    for name, words in {
        "epochs": "--epochs",
        "data": "the pictures' fingerprint",
        "precision": "--precision",
    }.items():
        if before[name] != plan[name]:
            raise SettingError(
                f"{options.output} was begun otherwise: {words} was {before[name]}, now {plan[name]}: "
                "pass its own, or another --output"
            )
    files.write_json(path, plan)  # more seeds may have been asked for
    return plan


def grid(folder: Path, variants: list[Variant], seeds: int) -> list[runs.Cell]:
    """The runs, seed by seed, so that the first seed of all is there soonest; one for variants alike.

    The base setting is a row of several of a study's tables, and is trained once.
    """
    first = {
        variant.name: next(v.name for v in variants if v.recipe == variant.recipe) for variant in variants
    }
    return [
        runs.Cell(variant.name, seed, variant.recipe, folder / "runs" / f"{first[variant.name]}-{seed}")
        for seed in range(seeds)
        for variant in variants
    ]


def train(cells: list[runs.Cell], where: runs.Where, jobs: int) -> bool:
    """Train all, telling of each; returns whether all are at their end."""
    ended = 0
    with stop_signal() as received:
        for cell in runs.train_all(cells, where, jobs, lambda: bool(received)):
            ended += 1
            print(f"{ended}/{len(cells)} {told(cell)}", flush=True)
    return ended == len(cells)


def told(cell: runs.Cell) -> str:
    """One run at its end, in a line."""
    found = runs.result(cell)
    kl = found.late("kl")
    after = "" if kl is None else f", KL {kl:.2f}"
    return f"{cell.variant}, seed {cell.seed}: k-NN {found.knn():.1f} %{after}, {found.seconds:.0f} s"
