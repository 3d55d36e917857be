"""The map of the paper: `docs/paper-map.toml` tells what makes each figure again; this draws the page.

A figure measured here is never copied into the map: it is looked up in the table of the page where it stands.
"""

import datetime
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "docs" / "paper-map.toml"
PAGE = ROOT / "docs" / "paper-map.md"
HEADINGS = ("in the paper", "made again by", "what it needs", "reproduced here", "not reproduced")


class MapError(ValueError):
    """An entry of the map that leads nowhere."""


@dataclass(frozen=True)
class Seen:
    """Something that was reproduced here."""

    day: datetime.date
    words: str
    """What, with a {} for each figure."""
    figures: tuple[tuple[str, str, str | int], ...] = ()
    """Where each stands: file, beginning of a row's first cell, heading or number of the column."""


@dataclass(frozen=True)
class Item:
    """One figure or table of the paper; the fields are explained at the top of `docs/paper-map.toml`."""

    number: str
    label: str
    section: str
    title: str
    paper: str
    here: str
    open: str
    commands: tuple[str, ...] = ()
    notebooks: tuple[str, ...] = ()
    tabs: tuple[str, ...] = ()
    study: str | None = None
    imagenet: bool = False
    gpu: bool = False
    seen: tuple[Seen, ...] = ()

    def __post_init__(self) -> None:
        if not (self.commands or self.notebooks):
            raise MapError(f"{self.number} names neither a command nor a lesson")


@dataclass(frozen=True)
class Map:
    """The whole map."""

    items: tuple[Item, ...]
    studies: dict[str, datetime.date]
    """The day of every study that has a page."""
    about: str
    """What stands above the table."""


def read(source: Path = SOURCE) -> Map:
    """The map from its file.

    Raises:
        MapError: a key that there is none of, or an entry that says nothing.
    """
    with source.open("rb") as file:
        found = tomllib.load(file)
    return Map(tuple(map(_item, found["item"])), found["studies"], found["about"])


def _item(entry: dict[str, Any]) -> Item:
    known = {field.name for field in fields(Item)}
    if unknown := entry.keys() - known:
        raise MapError(f"{entry.get('number')} has {sorted(unknown)}; an item has {sorted(known)}")
    seen = [
        Seen(**one | {"figures": tuple(map(tuple, one.get("figures", ())))}) for one in entry.get("seen", ())
    ]
    several = {name: tuple(entry.get(name, ())) for name in ("commands", "notebooks", "tabs")}
    return Item(**entry | several | {"seen": tuple(seen)})


# --- figures, from where they stand


def figure(file: str, row: str, column: str | int, root: Path = ROOT) -> str:
    """The cell of a Markdown table: the first row of the file that begins with `row`, below that heading.

    Args:
        file: below the project's root.
        row: beginning of the row's first cell.
        column: heading of the column, or its number, counted from 0.

    Raises:
        MapError: no such row, or its table has no such column.
    """
    heading: list[str] = []
    before: list[str] = []
    for line in (root / file).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if cells and set("".join(cells)) <= set("-: "):
            heading = before
        elif cells and cells[0].startswith(row):
            at = column if isinstance(column, int) else heading.index(column) if column in heading else None
            if at is not None and at < len(cells):
                return cells[at]
        before = cells
    raise MapError(f"{file} has no row {row!r} with a column {column!r}")


def reading(study: str, root: Path = ROOT) -> str | None:
    """What a study's page says in a sentence: the words of its picture; None where it has no page yet."""
    page = root / "docs" / "studies" / f"{study}.md"
    if not page.exists():
        return None
    found = re.search(r"!\[[^:\]]*: ([^\]]+)\]", page.read_text(encoding="utf-8"))
    if not found:
        raise MapError(f"{page} has no picture whose words say what was found")
    return found[1]


# --- the page


def page(chart: Map) -> str:
    """The map as Markdown."""
    rows = [_row(item, chart) for item in chart.items]
    lines = [_cells(HEADINGS), _cells(["---"] * len(HEADINGS)), *map(_cells, rows)]
    return f"{chart.about}\n" + "\n".join(lines) + "\n"


def _cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _row(item: Item, chart: Map) -> list[str]:
    return [
        f"**{item.number}** <br> {item.title} <br> {_place(item)}",
        " <br> ".join(_made_by(item)),
        f"{_warning(item)}the paper's: {item.paper} <br> here: {item.here}",
        " <br> ".join(_seen(item, chart)) or "nothing yet",
        item.open,
    ]


def _place(item: Item) -> str:
    return f"section {item.section}" if item.section[0].isdigit() else item.section


def _warning(item: Item) -> str:
    needs = [name for name, needed in (("ImageNet", item.imagenet), ("GPUs", item.gpu)) if needed]
    return f"**needs {' and '.join(needs)}**; " if needs else ""


def _made_by(item: Item) -> list[str]:
    made = [f"`{command}`" for command in item.commands]
    made += [f"[lesson {name[0]}](../notebooks/{name}.py)" for name in item.notebooks]
    made += [f"the page, {' and '.join(name.replace('_', ' ').capitalize() for name in item.tabs)}"] * bool(
        item.tabs
    )
    return made


def _seen(item: Item, chart: Map) -> list[str]:
    told = [f"{one.day}: {one.words.format(*(figure(*at) for at in one.figures))}" for one in item.seen]
    if item.study and (found := reading(item.study)):
        told.insert(0, f"{chart.studies[item.study]}: [the study]({_study(item.study)}): {found}")
    return told


def _study(name: str) -> str:
    return f"studies/{name}.md"


def write() -> Path:
    """Write `docs/paper-map.md` anew."""
    PAGE.write_text(page(read()), encoding="utf-8")
    return PAGE
