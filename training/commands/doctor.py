"""`python -m training doctor`: problems of a run, in words and on one page of plots."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

from tyro.conf import Positional

from dino_model.runtime import files
from dino_model.runtime.outputs import JsonOptions
from training.recipes.recipe import method_of
from training.run import doctor, log
from training.run.folder import DOCTOR_PAGE, Run, RunError
from training.run.log import Line

EXIT_PROBLEMS = 3


@dataclass(frozen=True)
class Doctor(JsonOptions):
    """Diagnose a run, finished or not, and plot its log. Exit code 3 if there are problems."""

    folder: Positional[Path]
    """Folder of the run."""
    output: Path | None = None
    """File for the page. Default: doctor.png in the run's folder."""

    def run(self) -> int:
        """Diagnose, plot and print; return the exit code."""
        files.make_room(self.output, self.json)
        run = Run(self.folder)
        config, lines = run.config(), run.lines()
        method = method_of(config)
        if not lines:
            raise RunError(f"{run.log} has no whole line yet: try again after the first step")
        settings, done = doctor.run_settings(config), int(lines[-1]["step"]) + 1
        findings, is_short = doctor.findings(lines, settings), len(lines) < doctor.MIN_JUDGED_STEPS
        title = f"{self.folder.name}: {method}, {done:,} of {settings.steps:,} steps"
        page = self.output or self.folder / DOCTOR_PAGE
        healthy = "no problem found"
        if not doctor.COLLAPSE_METRICS & lines[-1].keys():
            healthy += f"; a collapse would not be seen, because {method} logs no `spread`"
        if is_short:
            healthy = f"too short to judge: a collapse may show only after {doctor.MIN_JUDGED_STEPS} steps"
        text = [*findings.values()] or [healthy]
        draw_log(lines, text, title, page)
        print(title, *(f"- {sentence}" for sentence in text), page, sep="\n")
        problems = [{"cause": cause, "sentence": text} for cause, text in findings.items()]
        facts = {"steps": len(lines), "of": settings.steps, "is_too_short": is_short}
        self.save(facts | {"findings": problems})
        return EXIT_PROBLEMS if findings else 0


def draw_log(lines: Sequence[Line], findings: Sequence[str], title: str, path: Path) -> None:
    """Plot the panels of the log; the findings are below the title."""
    from training.run import figures  # imports matplotlib

    drawn, columns = log.panels(lines), 3
    with figures.style(figures.STYLE):
        text = "\n".join(fill(finding, 120) for finding in findings)
        rows = -(-len(drawn) // columns)
        figure, axes = figures.create_page(rows, columns, f"{title}\n{text}", width=11, height=2.6)
        figure.supxlabel("step")
        for plot in list(axes.flat)[len(drawn) :]:
            plot.set_axis_off()
        for plot, (panel, labels) in zip(axes.flat, drawn, strict=False):
            for number, (name, label) in enumerate(labels.items()):
                points = [(line["step"] + 1, line[name]) for line in lines if name in line]
                figures.curve(plot, points, label, number)
            plot.set_title(panel.title, pad=22 if len(labels) > 1 else None)
            if "data_wait" in labels:
                plot.set_ylim(0, 1)
            if len(labels) > 1:  # between title and curves, where it covers nothing
                where = {"loc": "lower center", "bbox_to_anchor": (0.5, 1)}
                plot.legend(frameon=False, fontsize=8, ncols=len(labels), **where)
        figures.save(figure, path)
