"""The references: every command from its dataclass, every module from its docstrings, and how to cite."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from book import commands
from book.commands import Option
from book.paper_map import ROOT

GROUPS = {
    "app": "The page",
    "dino_model": "Models",
    "segmentation": "Segmentation",
    "training": "Training",
    "training evaluate": "Evaluation",
}
"""Beginnings of commands, each with the title of the page that tells of them."""
PACKAGES = ("dino_model", "segmentation", "training")
ORPHAN = "---\norphan: true\n---\n\n"
"""Modules stand in the tables of their packages: in the sidebar of every page they would take megabytes."""
NOT_A_LIBRARY = {"commands", "__main__"}


# --- commands


def command_names() -> list[str]:
    """Names of the pages of the commands."""
    return [f"reference/{group.replace(' ', '-')}" for group in GROUPS]


def command_pages() -> dict[str, str]:
    """Pages of the commands: name in the book, and Markdown."""
    found = {}
    for page, (group, title) in zip(command_names(), GROUPS.items(), strict=True):
        names = [name for name in commands.table() if _group(name) == group]
        told = "\n".join(_command(name) for name in names)
        found[page] = f"# {title}: commands\n\n{told}"
    return found


def _group(name: str) -> str:
    return max((group for group in GROUPS if f"{name} ".startswith(f"{group} ")), key=len)


def _command(name: str) -> str:
    chosen = commands.class_of(name)
    about = inspect.cleandoc(chosen.__doc__ or "")
    parts = [f"## `python -m {name}`", about, options_table(commands.options(chosen))]
    if name == "training pretrain":
        parts.append(_methods())
    return "\n\n".join(parts) + "\n"


def _methods() -> str:
    from training.recipe import METHODS

    parts = [
        "Settings of the recipe are shown with DINO's defaults; `--recipe` and `--method` bring their own."
    ]
    for name, config in METHODS.items():
        parts += [f"### `--method {name}`", options_table(commands.options(config))]
    return "\n\n".join(parts)


def options_table(options: Iterator[Option]) -> str:
    """A table of options: how each is typed, its default, what it means."""
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for option in options:
        default = "needed" if option.default is None else f"`{option.default}`"
        cells = (f"`{option.flag}` <br> {option.kind}", default, option.told)
        rows.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(rows)


# --- modules


def modules(package: str, root: Path = ROOT) -> list[str]:
    """Importable names of a package's modules, without its commands, in alphabetical order."""
    found = []
    for file in sorted((root / package).rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        if not NOT_A_LIBRARY & set(parts) and not any(
            part.startswith("_") and part != "__init__" for part in parts
        ):
            found.append(".".join(part for part in parts if part != "__init__"))
    return sorted(found)


def module_pages(root: Path = ROOT) -> dict[str, str]:
    """Pages of the packages and of their modules: name in the book, and Markdown."""
    found = {}
    for package in PACKAGES:
        names = modules(package, root)
        rows = [f"| [{name}]({name}.md) | {_first_line(name, root)} |" for name in names]
        table = "\n".join(["| module | |", "|---|---|", *rows])
        found[f"reference/api/{package}-package"] = f"# `{package}`\n\n{table}\n"
        for name in names:
            directive = f"```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n   :ignore-module-all:\n```"
            found[f"reference/api/{name}"] = f"{ORPHAN}# `{name}`\n\n{directive}\n"
    return found


def _first_line(module: str, root: Path) -> str:
    path = root / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    told = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(told.split("\n\n")[0].split()).replace("|", "&#124;")


# --- how to cite


def cite(root: Path = ROOT) -> str:
    """How to cite, from CITATION.cff."""
    found = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    (paper,) = found["references"]
    authors = " and ".join(f"{one['family-names']}, {one['given-names']}" for one in paper["authors"])
    software = _bibtex(
        "software", "dino-attention-lab", author=found["authors"][0]["name"], title=found["title"]
    )
    article = _bibtex(
        "inproceedings",
        "caron2021emerging",
        author=authors,
        title=paper["title"],
        booktitle=paper["collection-title"],
        year=paper["year"],
        url=paper["url"],
    )
    return f"# How to cite\n\n{found['message']}\n\n```bibtex\n{software}\n\n{article}\n```\n"


def _bibtex(kind: str, key: str, **entries: Any) -> str:
    lines = [f"  {name:<9} = {{{value}}}," for name, value in entries.items()]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])
