"""A report of measured results and the paper's tables in Markdown.

A column "ours" of a table of the paper holds what was measured of the same model by the same protocol on as
many classes, and is empty otherwise.
"""

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
_UNITS: dict[str, tuple[str, float]] = {
    "parameters": ("parameters, M", 1e6),
    "flops": ("GFLOP per image", 1e9),
    "memory": ("MB per forward pass", 1e6),
}
"""Column name and unit of metrics that are large numbers."""


@dataclass(frozen=True)
class Results:
    """The file of one evaluation."""

    name: str
    protocol: Mapping[str, Any]
    results: Sequence[Mapping[str, Any]]

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield the metrics of each model, and of each number of labels or neighbors."""
        for result in self.results:
            for metrics in result.get("each", [result["metrics"]]):
                yield {"model": result["model"], **metrics}


Table = list[list[str]]


def read_results(path: Path) -> Results:
    """Read a file that an evaluation wrote with --json; raises ValueError for another file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = Results(content["name"], content["protocol"], content["results"])
        [*found.rows()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} was not written by `training evaluate … --json`: pass such files."
        ) from error
    return found


def write_report(options: Report) -> None:
    """Run `evaluate report`."""
    results = [read_results(path) for path in options.results]
    files.write_text(options.output, to_markdown(results))
    print(f"{len(results)} evaluations and the paper's tables: {options.output}")


def to_markdown(results: Sequence[Results]) -> str:
    """Render the report: measured results with their protocols, then the paper's tables."""
    parts = [
        "# Frozen features: measured results and the paper's tables\n\nA column “ours” holds what was"
        " measured here of the same model by the same protocol on the same data. Accuracies and mAP are in"
        " percent.\n\n## Measured here\n"
    ]
    for result in results:
        lines = "\n\n".join(_describe(result))
        parts.append(f"### {result.name}\n\n{lines}\n\n{_render(our_table(result))}")
    parts.append("## The paper's tables\n")
    parts += [f"### {title}\n\n{_render(table)}" for title, table in paper_tables(results)]
    return "\n".join(parts)


def our_table(results: Results) -> Table:
    """Return a row for each model, and for each number of labels or neighbors."""
    rows = [*results.rows()]
    names = [
        name
        for name in dict.fromkeys([*_FIRST_COLUMNS, *(name for row in rows for name in row)])
        if any(isinstance(row.get(name), str | int | float) for row in rows)
    ]
    head = [_UNITS.get(name, (name.replace("_", " "), 1))[0] for name in names]
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
    for result in results:
        is_imagenet = result.protocol.get("classes", IMAGENET_CLASSES) == IMAGENET_CLASSES
        if not is_imagenet or result.protocol.get("own_data") or result.protocol.get("official") is False:
            continue
        for row in result.rows():
            if row.get("k", PAPER_K) == PAPER_K:
                values = {**row, str(row.get("labels", "")): row.get("top1")}
                found |= {(row["model"], result.name, name): _cell(value) for name, value in values.items()}
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
    if isinstance(value, int | float) and name in _UNITS:
        value = value / _UNITS[name][1]
    if value is None:
        return ""
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def _render(table: Table) -> str:
    head, *rows = ([cell.replace("|", "\\|") for cell in row] for row in table)
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]) + "\n"
