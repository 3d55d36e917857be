"""Ship a training's model as the embedded one, with everything that is made from it.

python -m benchmarks.ship LOG-OR-RUN … RUN --data caltech101_112px.tar --voc VOCdevkit --davis DAVIS2016

Writes `dino_model/embedded/` (weights, log, and in the card the figures, phases and steps), the class map of
the page's tab, docs/gallery.jpg, and docs/embedded-model.png: teacher and student, phase after phase. The
steps are the project's own commands, run one after the other; begun again after an interruption, it makes all
of them anew.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import tyro

from dino_model import files, photographs
from dino_model.weights import EMBEDDED_FILE
from training import figures
from training.commands.thin_log import Record, read_log

REPOSITORY = Path(__file__).parents[1]
CARD = EMBEDDED_FILE.parent / "card.md"
LOG = EMBEDDED_FILE.parent / "log.jsonl"
Figures = dict[str, Any]


@dataclass(frozen=True)
class Ship:
    """Put a run's teacher in the place of the embedded model and remake what ships beside it."""

    logs: tyro.conf.Positional[tuple[Path, ...]]
    """Logs of the phases before, if any, and last the run whose teacher ships."""
    data: Path = field(kw_only=True)
    """Labelled pictures of the class map and of k-NN: the Caltech tar."""
    voc: Path = field(kw_only=True)
    """VOCdevkit of the protocol: 63 frames of DAVIS."""
    davis: Path = field(kw_only=True)
    """DAVIS2016 of the protocol."""
    figures: Path = Path("output/ship")
    """Folder for what the commands measured, one JSON each."""

    def run(self) -> None:
        """Export, measure, write."""
        for path in (*self.logs, self.data, self.voc, self.davis):
            if not path.exists():
                raise SystemExit(f"{path} is not there: nothing was changed")
        make("dino_model", "export", self.logs[-1], "--dtype", "fp16", "--output", EMBEDDED_FILE)
        make("training", "thin-log", *self.logs, "--output", LOG)
        self.draw()
        found = {name: self.measured(name) for name in ("embedded", "random:embedded")}
        text = with_figures(CARD.read_text(encoding="utf-8"), *found.values())
        files.write_text(CARD, with_phases(text, read_log(LOG)))
        print(f"written: {CARD}; look at it, at docs/gallery.jpg and at the class map before you commit")

    def draw(self) -> None:
        """The class map, the sheet of photographs, and the curves of the log."""
        draw_probes(read_log(LOG), REPOSITORY / "docs/embedded-model.png")
        output = REPOSITORY / "app/static/maps/caltech101"
        shown = ("--data", self.data, "--size", 112, "--no-thumbnails")
        make("dino_model", "class-map", "--model", "embedded", *shown, "--output", output)
        with tempfile.TemporaryDirectory() as folder:
            names = [f"{name}.jpg" for name in photographs.names()]
            only = Path(folder) / "photographs.txt"
            files.write_text(only, "".join(f"{name}\n" for name in names))
            sheet = ("--only", only, "--count", len(names), "--output", REPOSITORY / "docs/gallery.jpg")
            make("segmentation", "gallery", photographs.FOLDER, *sheet)

    def measured(self, model: str) -> Figures:
        """What the three commands say of a model, from their JSON."""
        folder = self.figures / model.replace(":", "-")
        frames = ("--ground-truth", "object", "--void", "exclude", "--mass", 0.6, "--resize", "short-side")
        how: dict[str, tuple[Any, ...]] = {
            "knn": ("training", "evaluate", "knn", "--data", self.data),
            "voc": (
                "segmentation",
                "voc",
                "--root",
                self.voc,
                *frames,
                "--size",
                224,
                "--output",
                folder / "voc",
            ),
            "davis": ("segmentation", "davis", "--root", self.davis, "--output", folder / "davis"),
        }
        for name, command in how.items():
            make(*command, "--model", model, "--json", folder / f"{name}.json")
        return {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in how}


def draw_probes(log: Sequence[Record], path: Path) -> None:
    """Teacher and student by the log's probes, all phases one after the other; write as PNG.

    k-NN is in per cent, lift a ratio. What no phase of the log tells is left out.
    """
    *ends, _ = phase_ends(log)
    with figures.style(figures.STYLE):
        figure, axes = figures.page(1, 2, "The embedded model while it learned")
        for panel, quantity, title in zip(
            axes[0],
            ("knn", "lift"),
            ("k-NN top-1 on held-out training pictures (%)", "lift of the attention on the photographs"),
            strict=True,
        ):
            panel.set(title=title, xlabel="step; lines part the phases")
            told = {name: probes(log, f"{quantity}_{name}") for name in ("teacher", "student")}
            if not all(told.values()):
                continue
            for number, (network, points) in enumerate(told.items()):
                steps, values = zip(*points, strict=True)
                figures.curve(panel, steps, values, network, number)
            for end in ends:
                if end > steps[0]:
                    panel.axvline(end, color="grey", linewidth=0.8)
            panel.legend(fontsize=9)
        figures.save(figure, path)


def probes(log: Sequence[Record], quantity: str) -> list[tuple[int, float]]:
    """Steps done since the first phase began, and what a quantity was after them, where the log tells it."""
    begins = [0, *phase_ends(log)]
    return [
        (begins[record["phase"] - 1] + record["step"] + 1, record[quantity])
        for record in log
        if quantity in record
    ]


def phase_ends(log: Sequence[Record]) -> list[int]:
    """Steps done by the end of each phase, in all."""
    return list(accumulate({record["phase"]: record["step"] + 1 for record in log}.values()))


def make(module: str, *arguments: Any) -> None:
    """Run one of the project's commands, saying which.

    Raises:
        SystemExit: it failed.
    """
    words = ["-m", module, *map(str, arguments)]
    print("python", *words, flush=True)
    if subprocess.run([sys.executable, *words]).returncode:
        raise SystemExit(f"stopped: python {' '.join(words)} failed; mend it and begin again")


def with_figures(card: str, model: Figures, fresh: Figures) -> str:
    """The card with these figures in its table; the column without a network stays.

    Raises:
        ValueError: a row that the card does not have.
    """
    cells = {
        "k-NN on": lambda f: "{top1:.1f} % ({per_class_top1:.1f})".format_map(_of_one_model(f["knn"])),
        "best-head Jaccard": lambda f: f"{f['voc']['jaccard']:.1f} %",
        "lift of": lambda f: f"{f['voc']['lift']:.2f}",
        "J&F on": lambda f: "{J&F_mean:.1f} ({J_mean:.1f}, {F_mean:.1f})".format_map(_percent(f)),
    }
    for start, cell in cells.items():
        row = re.compile(rf"^(\| {start}[^|]*\|)[^|]*\|[^|]*\|", re.MULTILINE)
        card, count = row.subn(rf"\g<1> {cell(model)} | {cell(fresh)} |", card)
        if count != 1:
            raise ValueError(f"{CARD} has {count} rows that begin with {start!r}, expected one")
    return card


def _of_one_model(evaluation: Figures) -> Figures:
    """The figures of the only model that `training evaluate` was given."""
    (result,) = evaluation["results"]
    figures: Figures = result["metrics"]
    return figures


def _percent(figures: Figures) -> dict[str, float]:
    """DAVIS' means, out of a hundred."""
    return {name: 100 * value for name, value in figures["davis"]["dataset"].items()}


def with_phases(card: str, log: Sequence[Record]) -> str:
    """The card with the number of phases and, in hundreds, of steps that the log tells.

    Raises:
        ValueError: no line on phases in the card.
    """
    ends = phase_ends(log)
    said = f"{len(ends)} phases, {round(ends[-1], -2):,} steps"
    card, count = re.subn(r"\d+ phases, [\d,]+ steps", said, card)
    if count != 1:
        raise ValueError(f"{CARD} tells its phases {count} times, expected once")
    return card


if __name__ == "__main__":
    tyro.cli(Ship).run()
