"""What was measured, with its protocols, and the paper's tables, as Markdown and as one HTML page.

The two stand beside each other and are never mixed: our column of a table of the paper holds what we measured
of the same model by the same evaluation on as many classes, and is empty otherwise.
"""

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.evaluation.paper import ROW_OF, Published, published

IMAGENET_CLASSES = 1000
_OURS = {
    ("2", "k-NN top-1"): ("knn", "top1"),
    ("2", "linear top-1"): ("linear", "top1"),
    ("12", "1 %"): ("logistic", "1%"),
    ("12", "10 %"): ("logistic", "10%"),
    ("3", "ROxford Medium"): ("retrieval roxford5k", "medium_map"),
    ("3", "ROxford Hard"): ("retrieval roxford5k", "hard_map"),
    ("3", "RParis Medium"): ("retrieval rparis6k", "medium_map"),
    ("3", "RParis Hard"): ("retrieval rparis6k", "hard_map"),
    ("4", "mAP"): ("copy-detection", "map"),
}
"""Table and measure of the paper, and the evaluation and figure of ours that is the same."""


@dataclass(frozen=True)
class Measured:
    """One evaluation's file."""

    name: str
    protocol: Mapping[str, Any]
    results: Sequence[Mapping[str, Any]]


Table = list[list[str]]


def read_measured(path: Path) -> Measured:
    """A file that an evaluation wrote with --json.

    Raises:
        ValueError: another file.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        measured = Measured(content["name"], content["protocol"], content["results"])
        for result in measured.results:
            result["model"], result["figures"].items()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} was not written by `training evaluate … --json`: name such files only"
        ) from error
    return measured


def markdown(measured: Sequence[Measured]) -> str:
    """The report as Markdown."""
    parts = ["# Frozen features: what was measured, and what the paper has\n", "## Measured here\n"]
    for one in measured:
        parts += [
            f"### {one.name}\n",
            f"{one.protocol.get('told', '')}\n",
            *_split(one),
            _in_markdown(ours(one)),
        ]
    parts.append("## The paper's tables\n")
    for title, table in theirs(measured):
        parts += [f"### {title}\n", _in_markdown(table)]
    return "\n".join(parts)


def page(measured: Sequence[Measured]) -> str:
    """The report as one HTML page that needs nothing else."""
    parts = ["<h1>Frozen features: what was measured, and what the paper has</h1>", "<h2>Measured here</h2>"]
    for one in measured:
        told = [str(one.protocol.get("told", "")), *_split(one)]
        parts += [
            f"<h3>{html.escape(one.name)}</h3>",
            *(f"<p>{html.escape(line)}</p>" for line in told if line),
        ]
        parts.append(_in_html(ours(one)))
    parts.append("<h2>The paper's tables</h2>")
    for title, table in theirs(measured):
        parts += [f"<h3>{html.escape(title)}</h3>", _in_html(table)]
    return _PAGE.replace("BODY", "\n".join(parts))


def ours(measured: Measured) -> Table:
    """A row for each model (and budget of labels, where there are several)."""
    rows = []
    for result in measured.results:
        for figures in result.get("each", [result["figures"]]):
            rows.append({"model": result["model"], **figures})
    names = [name for name in dict.fromkeys(key for row in rows for key in row) if _shown(rows, name)]
    return [names, *([_cell(row.get(name)) for name in names] for row in rows)]


def theirs(measured: Sequence[Measured]) -> Iterator[tuple[str, Table]]:
    """Every table of the paper with its place; where we may have the same figure, ours stands in a column."""
    found = _comparable(measured)
    tables: dict[tuple[str, str], list[Published]] = {}
    for one in published():
        tables.setdefault((one.where, one.title), []).append(one)
    models = {row: model for model, row in ROW_OF.items()}
    for (where, title), figures in tables.items():
        measures = list(dict.fromkeys(one.measure for one in figures))
        same = [m for m in measures if (figures[0].table, m) in _OURS]
        rows: dict[tuple[str, str, str], dict[str, str]] = {}
        for one in figures:
            key = (one.system, one.architecture, one.setting)
            rows.setdefault(key, {})[one.measure] = f"{one.value:g}"
        head = ["system", "architecture", "setting", *measures, *(f"ours: {m}" for m in same)]
        lines = []
        for key, values in rows.items():
            model = models.get(key[:2], "")
            mine = [found.get((model, *_OURS[figures[0].table, m]), "") for m in same]
            lines.append([*key, *(values.get(m, "") for m in measures), *mine])
        yield f"{where[0].upper()}{where[1:]}: {title}", [head, *lines]


def _comparable(measured: Sequence[Measured]) -> dict[tuple[str, str, str], str]:
    """Our figures that may stand beside the paper's: model, evaluation and figure -> in words."""
    found: dict[tuple[str, str, str], str] = {}
    for one in measured:
        if one.protocol.get("classes", IMAGENET_CLASSES) != IMAGENET_CLASSES or one.protocol.get("own_data"):
            continue
        for result in one.results:
            for figures in result.get("each", [result["figures"]]):
                named = dict(figures) | {str(figures.get("labels", "")): figures.get("top1")}
                found |= {(result["model"], one.name, name): _cell(value) for name, value in named.items()}
    return found


def _split(measured: Measured) -> list[str]:
    data, split = measured.protocol.get("data"), measured.protocol.get("split")
    return [f"{data}: {split}\n"] if data and split else []


def _shown(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    return any(isinstance(row.get(name), str | int | float) for row in rows)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def _in_markdown(table: Table) -> str:
    head, *rows = ([cell.replace("|", "\\|") for cell in row] for row in table)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _in_html(table: Table) -> str:
    head, *rows = ([html.escape(cell) for cell in row] for row in table)
    first = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<div><table><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table></div>"


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Frozen features</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; }
div { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .8rem; text-align: left; border-bottom: 1px solid #ddd; white-space: nowrap; }
th { border-bottom: 2px solid #888; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } td { border-color: #444; } }
</style>
<body>
BODY
</body>
</html>
"""
