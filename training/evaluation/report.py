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
_KEYS = ("system", "architecture", "setting")
_APART = ("model", "k", "labels", "precision")
"""What tells rows apart stands first: a narrow screen shows it."""
PAPERS_K = 20
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
    ("6", "CIFAR-10"): ("finetune cifar10", "top1"),
    ("6", "CIFAR-100"): ("finetune cifar100", "top1"),
    ("6", "iNat-18"): ("finetune inat18", "top1"),
    ("6", "iNat-19"): ("finetune inat19", "top1"),
    ("6", "Flowers"): ("finetune flowers", "top1"),
    ("6", "Cars"): ("finetune cars", "top1"),
}
"""Table and measure of the paper, and the evaluation and figure of ours that is the same."""
_WORDS = {
    "top1": ("top-1, %", 1),
    "top5": ("top-5, %", 1),
    "per_class_top1": ("mean of the classes, %", 1),
    "top1_deviation": ("deviation of top-1", 1),
    "map": ("mAP, %", 1),
    "medium_map": ("Medium: mAP, %", 1),
    "hard_map": ("Hard: mAP, %", 1),
    "images_per_second": ("images/s", 1),
    "parameters": ("parameters, M", 1e6),
    "flops": ("GFLOP a picture", 1e9),
    "memory": ("MB a forward", 1e6),
    "size": ("pixels", 1),
}
"""What figures are called in tables, and the unit they are told in, where their own names would not do."""
_TITLE = "Frozen features: what was measured, and what the paper has"
_NOTE = (
    "What was measured here stands first, with its protocols. The paper's tables follow as they are printed;"
    " beside a measure, “ours” holds what was measured here of the same model by the same evaluation on the"
    " same data, and is empty where nothing was."
)


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
    parts = [f"# {_TITLE}\n\n{_NOTE}\n", "## Measured here\n"]
    for one in measured:
        parts += [f"### {one.name}\n", *(f"{line}\n" for line in _told(one)), _in_markdown(ours(one))]
    parts.append("## The paper's tables\n")
    for title, table in theirs(measured):
        parts += [f"### {title}\n", _in_markdown(table)]
    return "\n".join(parts)


def page(measured: Sequence[Measured]) -> str:
    """The report as one HTML page that needs nothing else."""
    parts = [f"<h1>{_TITLE}</h1>\n<p>{_NOTE}</p>\n<h2>Measured here</h2>"]
    for one in measured:
        parts.append(f"<h3>{html.escape(one.name)}</h3>")
        parts += [f"<p>{html.escape(line)}</p>" for line in _told(one)]
        parts.append(_in_html(one.name, ours(one)))
    parts.append("<h2>The paper's tables</h2>")
    for title, table in theirs(measured):
        parts += [f"<h3>{html.escape(title)}</h3>", _in_html(title, table)]
    return _PAGE.replace("TITLE", _TITLE).replace("BODY", "\n".join(parts))


def ours(measured: Measured) -> Table:
    """A row for each model (and budget of labels or number of neighbours, where there are several)."""
    rows = []
    for result in measured.results:
        for figures in result.get("each", [result["figures"]]):
            rows.append({"model": result["model"], **figures})
    keys = dict.fromkeys([*_APART, *(key for row in rows for key in row)])
    names = [name for name in keys if _shown(rows, name)]
    head = [_WORDS.get(name, (name.replace("_", " "), 1))[0] for name in names]
    return [head, *([_cell(row.get(name), name) for name in names] for row in rows)]


def theirs(measured: Sequence[Measured]) -> Iterator[tuple[str, Table]]:
    """Every table of the paper with its place; where we may have the same figure, ours stands in a column."""
    found = _comparable(measured)
    tables: dict[tuple[str, str], list[Published]] = {}
    for one in published():
        tables.setdefault((one.where, one.title), []).append(one)
    models = {row: model for model, row in ROW_OF.items()}
    for (where, title), figures in tables.items():
        rows: dict[tuple[str, str, str], dict[str, str]] = {}
        for one in figures:
            key = (one.system, one.architecture, one.setting)
            rows.setdefault(key, {})[one.measure] = one.printed
        columns = [_column(name, [key[place] for key in rows]) for place, name in enumerate(_KEYS)]
        for measure in dict.fromkeys(one.measure for one in figures):
            columns.append(_column(measure, [values.get(measure, "") for values in rows.values()]))
            if same := _OURS.get((figures[0].table, measure)):
                mine = [found.get((models.get(key[:2], ""), *same), "") for key in rows]
                columns.append([f"ours: {measure}", *mine])
        table = [list(row) for row in zip(*filter(None, columns), strict=True)]
        yield f"{where[0].upper()}{where[1:]}: {title}", table


def _column(name: str, cells: list[str]) -> list[str]:
    """A column with its name; nothing where all cells are empty."""
    return [name, *cells] if any(cells) else []


def _comparable(measured: Sequence[Measured]) -> dict[tuple[str, str, str], str]:
    """Our figures that may stand beside the paper's: model, evaluation and figure -> in words."""
    found: dict[tuple[str, str, str], str] = {}
    for one in measured:
        others = one.protocol.get("classes", IMAGENET_CLASSES) != IMAGENET_CLASSES
        if others or one.protocol.get("own_data") or one.protocol.get("official") is False:
            continue
        for result in one.results:
            for figures in result.get("each", [result["figures"]]):
                if figures.get("k", PAPERS_K) == PAPERS_K:
                    named = dict(figures) | {str(figures.get("labels", "")): figures.get("top1")}
                    found |= {
                        (result["model"], one.name, name): _cell(value) for name, value in named.items()
                    }
    return found


def _told(measured: Measured) -> Iterator[str]:
    """Protocol, pictures, arithmetic, and what could not be read."""
    protocol = measured.protocol
    yield str(protocol.get("told", ""))
    if "data" in protocol and "split" in protocol:
        yield f"{protocol['data']}: {protocol['split']}"
    if "precision" in protocol:
        yield f"{protocol['precision']} on {protocol.get('device')}"
    for result in measured.results:
        if broken := result.get("broken"):
            yield f"{result['model']}: {len(broken)} pictures could not be read, such as {broken[0]}"


def _shown(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    return any(isinstance(row.get(name), str | int | float) for row in rows)


def _cell(value: object, name: str = "") -> str:
    unit = _WORDS.get(name, ("", 1))[1]
    if isinstance(value, int | float) and unit != 1:
        value = value / unit
    if value is None:
        return ""
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def _in_markdown(table: Table) -> str:
    head, *rows = ([cell.replace("|", "\\|") for cell in row] for row in table)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _in_html(name: str, table: Table) -> str:
    """A table in a frame of its own, which scrolls where the screen is narrow, by keys too."""
    head, *rows = ([html.escape(cell) for cell in row] for row in table)
    first = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    frame = f'<div role="region" tabindex="0" aria-label="{html.escape(name)}">'
    return f"{frame}<table><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table></div>"


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>TITLE</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff; }
h1 { font-size: 1.6rem; line-height: 1.25; }
h3 { margin: 2rem 0 .3rem; }
p { margin: .3rem 0; max-width: 60rem; }
div { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .8rem; text-align: left; border-bottom: 1px solid #ddd; white-space: nowrap; }
th { border-bottom: 2px solid #888; white-space: normal; min-width: 4rem; vertical-align: bottom; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } td { border-color: #444; } }
</style>
<body>
BODY
</body>
</html>
"""
