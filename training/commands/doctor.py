"""`python -m training doctor`: what is wrong with a run, in words and on one page."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import fill
from typing import Annotated

import tyro
from tyro.conf import Positional

from dino_model import files
from training import doctor
from training.doctor import Facts, Finding, Line
from training.recipe import METHODS
from training.run import Run, RunError

HEALTHY, ILL = 0, 3
WAITING = "share of a step spent waiting"
PANELS: dict[str, tuple[str, ...]] = {
    "loss": ("loss",),
    "teacher's output (nats)": ("teacher_entropy", "code_entropy", "kl", "ln_k"),
    "spread of projections": ("spread",),
    "k-NN top-1 (%)": ("knn_teacher", "knn_student"),
    "feature rank (RankMe)": ("rank_teacher", "rank_student"),
    "prototypes in use": ("prototypes",),
    "gradient norm": ("gradient_norm_backbone", "gradient_norm_head"),
    "teacher from student, relative": ("teacher_distance",),
    "pictures a second": ("images_per_second",),
    WAITING: ("data_wait",),
}
"""What the page shows, where the log has it."""


@dataclass(frozen=True)
class Doctor:
    """Read the folder of a run, finished or not; say what is wrong, draw one page. Ends with 3 when ill."""

    folder: Positional[Path]
    """Folder of the run."""
    output: Path | None = None
    """File for the page; left out: doctor.png in the run's folder."""
    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = None
    """File for the findings."""

    def run(self) -> int:
        """Read, judge, draw; returns the exit code."""
        files.make_room(self.output, self.json_file)
        run = Run(self.folder)
        config = run.config()
        if config.get("method") not in METHODS:
            raise RunError(
                f"{self.folder} was trained with {config.get('method')!r}, which this version knows not"
            )
        lines = run.lines()
        if not lines:
            raise RunError(f"{run.log} has no whole line yet: ask again when the run has taken a step")
        facts = doctor.facts(config)
        found = doctor.findings(lines, METHODS[config["method"]].method_class().diagnose, facts)
        page = self.output or self.folder / "doctor.png"
        draw(lines, found, f"{self.folder.name}: {config['method']}, {_where(lines, facts)}", page)
        print(f"{self.folder}: {config['method']}, {_where(lines, facts)}")
        print(
            *(f"- {finding.sentence}" for finding in found) if found else ["nothing found that is wrong"],
            sep="\n",
        )
        print(page)
        if self.json_file:
            content = {"steps": len(lines), "of": facts.steps, "findings": [asdict(one) for one in found]}
            files.write_json(self.json_file, content)
        return ILL if found else HEALTHY


def _where(lines: Sequence[Line], facts: Facts) -> str:
    done = int(lines[-1]["step"]) + 1
    return f"{done:,} of {facts.steps:,} steps" + ("" if done >= facts.steps else ", not at its end")


def draw(lines: Sequence[Line], found: Sequence[Finding], title: str, path: Path) -> None:
    """The page: a panel for each figure that the log has, and the findings below the title."""
    there = {
        panel: names
        for panel, wanted in PANELS.items()
        if (names := [name for name in wanted if any(name in line for line in lines)])
    }
    from training import figures  # imports matplotlib

    columns = 3
    rows = -(-len(there) // columns)
    with figures.style(figures.STYLE):
        words = "\n".join(fill(finding.sentence, 120) for finding in found) or "nothing found that is wrong"
        figure, axes = figures.page(rows, columns, f"{title}\n{words}", width=11, height=2.6)
        figure.supxlabel("step", fontsize=10)
        for place, (panel, names) in zip(axes.flat, there.items(), strict=False):
            for number, name in enumerate(names):
                points = [(line["step"] + 1, line[name]) for line in lines if name in line]
                figures.curve(place, [x for x, _ in points], [y for _, y in points], _short(name), number)
            place.set_title(panel, fontsize=10, pad=22 if len(names) > 1 else None)
            place.margins(y=0.1)
            if panel == WAITING:
                place.set_ylim(0, 1)
            if len(names) > 1:  # between title and curves, of which it would cover some
                place.legend(
                    fontsize=8, ncols=len(names), loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False
                )
        for place in list(axes.flat)[len(there) :]:
            place.set_axis_off()
        figures.save(figure, path)


def _short(name: str) -> str:
    """A figure's name in a legend."""
    for beginning in ("knn_", "rank_", "gradient_norm_"):
        name = name.removeprefix(beginning)
    return {"ln_k": "ln K", "kl": "KL"}.get(name, name.replace("_", " "))
