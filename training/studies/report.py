"""What a study leaves: a picture, a table beside the paper's, its raw log, and a paragraph."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from dino_model import files
from training.studies import drawing
from training.studies.study import Reading, Result, Study, Variant, of_variant, summary


def write(
    folder: Path, study: Study, variants: Sequence[Variant], results: Sequence[Result], about: Sequence[str]
) -> Reading:
    """Write NAME.png, NAME.md and NAME.jsonl into a folder.

    Args:
        folder: where to.
        study: what was asked.
        variants, results: of its runs, all at their end.
        about: sentences on pictures, machine and command.
    """
    reading = study.read(study, variants, results)
    drawing.draw(study, variants, results, folder / f"{study.name}.png")
    files.write_text(folder / f"{study.name}.md", page(study, variants, results, reading, about))
    raw = (
        json.dumps({"variant": result.variant, "seed": result.seed} | _rounded(line)) + "\n"
        for result in results
        for line in result.lines
    )
    files.write_text(folder / f"{study.name}.jsonl", "".join(raw))
    return reading


def page(
    study: Study,
    variants: Sequence[Variant],
    results: Sequence[Result],
    reading: Reading,
    about: Sequence[str],
) -> str:
    """The study as Markdown: conclusion of the paper, what was read, picture, table, how it was made."""
    notes = [f"- {note}" for note in (*study.notes, *about)]
    return "\n".join(
        [
            f"# {study.title}",
            "",
            f"The paper ({study.source}): {study.conclusion}",
            "",
            " ".join(reading.sentences),
            "",
            f"![{study.title}: {reading.sentences[-1]}]({study.name}.png)",
            "",
            *table(study, variants, results),
            "",
            *notes,
            "",
        ]
    )


def table(study: Study, variants: Sequence[Variant], results: Sequence[Result]) -> list[str]:
    """Lines of a Markdown table, a row for each variant, the paper's figures beside ours."""
    grouped = any(variant.group for variant in variants)
    names = ["group"] * grouped + ["variant", "k-NN here (%)", "untrained", "KL", "entropy / ln K", "seconds"]
    names.append(f"paper: {study.paper_figure}")
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    for variant in variants:
        runs = of_variant(results, variant.name)
        cells = [variant.group] * grouped + [variant.label, *_cells(runs)]
        cells.append(variant.told or "–" if variant.paper is None else f"{variant.paper:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _cells(runs: Sequence[Result]) -> list[str]:
    values = [run.knn() for run in runs]
    knn = f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")
    if any(run.diverged for run in runs):
        knn += " (diverged)"
    kl, entropy, top = (
        [value for run in runs if (value := run.late(name)) is not None]
        for name in ("kl", "teacher_entropy", "ln_k")
    )
    return [
        knn,
        f"{fmean(run.untrained for run in runs):.1f}",
        f"{fmean(kl):.2f}" if kl else "–",
        f"{fmean(entropy) / fmean(top):.2f}" if entropy else "–",
        f"{sum(run.seconds for run in runs):.0f}",
    ]


def as_json(study: Study, results: Sequence[Result], reading: Reading) -> dict[str, object]:
    """The figures of a study for --json."""
    return {
        "study": study.name,
        "shows": reading.shows,
        "reading": list(reading.sentences),
        "runs": [summary(result) for result in results],
    }


def _rounded(line: object) -> dict[str, float]:
    assert isinstance(line, dict)
    return {name: float(f"{value:.5g}") for name, value in line.items()}
