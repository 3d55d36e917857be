"""A report of measured results and the paper's tables, as Markdown and as one HTML page.

A column "ours" of a table of the paper holds what was measured of the same model by the same protocol on as
many classes, and is empty otherwise.
"""

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dino_model import files
from training.evaluation.options import Report
from training.evaluation.paper import ROW_OF, Published, published

IMAGENET_CLASSES = 1000
PAPER_K = 20
_KEYS = ("system", "architecture", "setting")
_FIRST_COLUMNS = ("model", "k", "labels", "precision")
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
"""Table and measure of the paper -> evaluation and metric of ours that is comparable."""
_COLUMNS = {
    "top1": ("top-1, %", 1),
    "top5": ("top-5, %", 1),
    "per_class_top1": ("mean of the classes, %", 1),
    "top1_deviation": ("deviation of top-1", 1),
    "map": ("mAP, %", 1),
    "medium_map": ("Medium: mAP, %", 1),
    "hard_map": ("Hard: mAP, %", 1),
    "images_per_second": ("images/s", 1),
    "parameters": ("parameters, M", 1e6),
    "flops": ("GFLOP per image", 1e9),
    "memory": ("MB per forward pass", 1e6),
    "size": ("pixels", 1),
}
"""Column names and units of metrics whose own names are not clear."""
_TITLE = "Frozen features: measured results and the paper's tables"
_NOTE = (
    "The first part lists the results measured here with their protocols. The second part lists the paper's"
    " tables. A column “ours” holds what was measured here of the same model by the same protocol on the same"
    " data; it is empty where nothing comparable was measured."
)


@dataclass(frozen=True)
class Results:
    """The file of one evaluation."""

    name: str
    protocol: Mapping[str, Any]
    results: Sequence[Mapping[str, Any]]


Table = list[list[str]]


def read_results(path: Path) -> Results:
    """Read a file that an evaluation wrote with --json; raises ValueError for another file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = Results(content["name"], content["protocol"], content["results"])
        for result in found.results:
            result["model"], result["metrics"].items()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} was not written by `training evaluate … --json`: pass such files."
        ) from error
    return found


def write_report(options: Report) -> None:
    """Run `evaluate report`."""
    results = [read_results(path) for path in options.results]
    files.write_text(options.output / "report.html", to_html(results))
    files.write_text(options.output / "report.md", to_markdown(results))
    print(f"{len(results)} evaluations and the paper's tables: {options.output / 'report.html'}, report.md")


def to_markdown(results: Sequence[Results]) -> str:
    """Render the report as Markdown."""
    parts = [f"# {_TITLE}\n\n{_NOTE}\n\n## Measured here\n"]
    for result in results:
        lines = "\n\n".join(_describe(result))
        parts.append(f"### {result.name}\n\n{lines}\n\n{_markdown_table(our_table(result))}")
    parts.append("## The paper's tables\n")
    parts += [f"### {title}\n\n{_markdown_table(table)}" for title, table in paper_tables(results)]
    return "\n".join(parts)


def to_html(results: Sequence[Results]) -> str:
    """Render the report as one self-contained HTML page."""
    parts = [f"<h1>{_TITLE}</h1>\n<p>{_NOTE}</p>\n<h2>Measured here</h2>"]
    for result in results:
        parts.append(f"<h3>{html.escape(result.name)}</h3>")
        parts += [f"<p>{html.escape(line)}</p>" for line in _describe(result)]
        parts.append(_html_table(result.name, our_table(result)))
    parts.append("<h2>The paper's tables</h2>")
    for title, table in paper_tables(results):
        parts += [f"<h3>{html.escape(title)}</h3>", _html_table(title, table)]
    return _PAGE.replace("TITLE", _TITLE).replace("BODY", "\n".join(parts))


def our_table(results: Results) -> Table:
    """Return a row for each model, and for each number of labels or neighbors."""
    rows = [
        {"model": result["model"], **metrics}
        for result in results.results
        for metrics in result.get("each", [result["metrics"]])
    ]
    names = [
        name
        for name in dict.fromkeys([*_FIRST_COLUMNS, *(name for row in rows for name in row)])
        if any(isinstance(row.get(name), str | int | float) for row in rows)
    ]
    head = [_COLUMNS.get(name, (name.replace("_", " "), 1))[0] for name in names]
    return [head, *([_cell(row.get(name), name) for name in names] for row in rows)]


def paper_tables(results: Sequence[Results]) -> Iterator[tuple[str, Table]]:
    """Yield title and content of every table of the paper; comparable results of ours are in a column."""
    found = _comparable(results)
    model_of_row = {row: model for model, row in ROW_OF.items()}
    tables: dict[tuple[str, str], list[Published]] = {}
    for value in published():
        tables.setdefault((value.where, value.title), []).append(value)
    for (where, title), values in tables.items():
        rows: dict[tuple[str, str, str], dict[str, str]] = {}
        for value in values:
            key = (value.system, value.architecture, value.setting)
            rows.setdefault(key, {})[value.measure] = value.printed
        columns = [[name, *(key[place] for key in rows)] for place, name in enumerate(_KEYS)]
        columns = [column for column in columns if any(column[1:])]
        for measure in dict.fromkeys(value.measure for value in values):
            columns.append([measure, *(row.get(measure, "") for row in rows.values())])
            if same := _OURS.get((values[0].table, measure)):
                ours = [found.get((model_of_row.get(key[:2], ""), *same), "") for key in rows]
                columns.append([f"ours: {measure}", *ours])
        yield f"{where[0].upper()}{where[1:]}: {title}", [list(row) for row in zip(*columns, strict=True)]


def _comparable(results: Sequence[Results]) -> dict[tuple[str, str, str], str]:
    """Return our results that are comparable to the paper's by model, evaluation and metric."""
    found: dict[tuple[str, str, str], str] = {}
    for one in results:
        is_imagenet = one.protocol.get("classes", IMAGENET_CLASSES) == IMAGENET_CLASSES
        if not is_imagenet or one.protocol.get("own_data") or one.protocol.get("official") is False:
            continue
        for result in one.results:
            for metrics in result.get("each", [result["metrics"]]):
                if metrics.get("k", PAPER_K) == PAPER_K:
                    named = dict(metrics) | {str(metrics.get("labels", "")): metrics.get("top1")}
                    found |= {(result["model"], one.name, name): _cell(v) for name, v in named.items()}
    return found


def _describe(results: Results) -> Iterator[str]:
    """Yield protocol, data, precision, and the number of images that could not be read."""
    protocol = results.protocol
    yield str(protocol.get("description", ""))
    if "data" in protocol and "split" in protocol:
        yield f"{protocol['data']}: {protocol['split']}"
    if "precision" in protocol:
        yield f"{protocol['precision']} on {protocol.get('device')}"
    for result in results.results:
        if broken := result.get("broken"):
            yield f"{result['model']}: {len(broken)} images could not be read, such as {broken[0]}"


def _cell(value: object, name: str = "") -> str:
    unit = _COLUMNS.get(name, ("", 1))[1]
    if isinstance(value, int | float) and unit != 1:
        value = value / unit
    if value is None:
        return ""
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def _markdown_table(table: Table) -> str:
    head, *rows = ([cell.replace("|", "\\|") for cell in row] for row in table)
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]) + "\n"


def _html_table(name: str, table: Table) -> str:
    """Render a table in a region that scrolls on narrow screens, also by keyboard."""
    head, *rows = ([html.escape(cell) for cell in row] for row in table)
    first = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    region = f'<div role="region" tabindex="0" aria-label="{html.escape(name)}">'
    return f"{region}<table><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table></div>"


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
