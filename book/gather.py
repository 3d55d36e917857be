"""The repository's pages as pages of the book.

They keep their places below the root, so that links between them hold. A link to what is no page becomes a
download where the file is small, and plain words where it is not.
"""

import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from book.paper_map import ROOT

PAGES = {
    "index": "README.md",
    "CONTRIBUTING": "CONTRIBUTING.md",
    "CHANGELOG": "CHANGELOG.md",
    "dino_model/embedded/card": "dino_model/embedded/card.md",
    "notebooks/README": "notebooks/README.md",
    "tests/oracles/README": "tests/oracles/README.md",
}
"""Pages outside docs/, by their name in the book."""
SOURCES = {"notebooks/drawing": "notebooks/drawing.py"}
"""Code that the book shows as it is, by its name in the book."""
FOLDERS = {"docs/studies": "docs/studies/README", "notebooks": "notebooks/README"}
"""Folders that a page stands for."""
LARGEST_DOWNLOAD = 150_000  # bytes: the site is handed out
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


class BookError(ValueError):
    """A page that cannot be made, or a link that leads nowhere."""


def pages(root: Path = ROOT) -> dict[str, Path]:
    """Every Markdown page of the book that stands in the repository: its name in the book, and its file."""
    found = {name: root / file for name, file in PAGES.items()}
    for file in sorted((root / "docs").rglob("*.md")):
        found[str(file.relative_to(root).with_suffix(""))] = file
    return found


def lessons(root: Path = ROOT) -> list[str]:
    """Names of the lessons in the book."""
    return [f"notebooks/{file.stem}" for file in sorted((root / "notebooks").glob("[1-9]_*.py"))]


def write(source: Path, name: str, text: str) -> None:
    """Write a page; a file that says the same already is left alone: Sphinx does not read it again."""
    place = source / f"{name}.md"
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists() or place.read_text(encoding="utf-8") != text:
        place.write_text(text, encoding="utf-8")


def gather(source: Path, contents: Mapping[str, list[str]], root: Path = ROOT) -> None:
    """Write every page of the repository to `source`, its links led to pages of the book.

    Args:
        source: folder that Sphinx reads.
        contents: captions, and the names of the pages below each.
        root: of the repository.

    Raises:
        BookError: a link leads to a file that is not there.
    """
    there = pages(root)
    for name, file in there.items():
        text = linked(file, name, source, root)
        write(source, name, f"{text}\n{table_of_contents(contents)}" if name == "index" else text)
    for name, shown in SOURCES.items():
        code = (root / shown).read_text(encoding="utf-8")
        write(source, name, f"# `{shown}`\n\n```python\n{code}```\n")
    studies = sorted(name for name in there if name.startswith("docs/studies/"))
    titles = {name: there[name].read_text(encoding="utf-8").splitlines()[0].lstrip("# ") for name in studies}
    lines = [f"- [{titles[name]}](/{name}.md)" for name in studies]
    about = "The paper's conclusions, drawn again with short runs by `python -m training study`."
    write(source, FOLDERS["docs/studies"], "\n".join(["# Studies", "", about, "", *lines, ""]))


def table_of_contents(contents: Mapping[str, list[str]]) -> str:
    """Hidden toctrees, one a caption: what Sphinx orders the pages by."""
    trees = []
    for caption, names in contents.items():
        body = "\n".join(f"/{name}" for name in names)
        trees.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{body}\n```\n")
    return "\n".join(trees)


def linked(file: Path, name: str, source: Path, root: Path = ROOT) -> str:
    """A page's text with its links led to the book's pages; what they load is copied beside it.

    Args:
        file: the page in the repository.
        name: its name in the book.
        source: folder that Sphinx reads.
        root: of the repository.

    Raises:
        BookError: a link leads to a file that is not there.
    """
    text = file.read_text(encoding="utf-8")
    return outside_code(
        text, lambda part: LINK.sub(lambda found: _led(found, file, name, source, root), part)
    )


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Markdown with `change` made everywhere but in fenced blocks of code."""
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def _led(found: re.Match[str], file: Path, name: str, source: Path, root: Path) -> str:
    picture, words, target = found.groups()
    path, _, place = target.partition("#")
    if "://" in target or not path:
        return found[0]
    aimed = (file.parent / path).resolve()
    if not aimed.exists():
        raise BookError(f"{file.relative_to(root)} links to {target}, which is not there")
    relative = str(PurePosixPath(aimed.relative_to(root)))
    page = page_of(relative, root)
    if page:
        return f"[{words}]({_from(name, page)}{'#' * bool(place)}{place})"
    if aimed.is_file() and (picture or aimed.stat().st_size <= LARGEST_DOWNLOAD):
        copy = source / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists() or copy.stat().st_mtime < aimed.stat().st_mtime:
            shutil.copy(aimed, copy)
        return f"{picture}[{words}]({_from(name, relative)})"
    return f"{words} (`{relative}`)"


def page_of(relative: str, root: Path = ROOT) -> str | None:
    """The file in the book that stands for a file or folder of the repository; None where there is none."""
    for name, file in pages(root).items():
        if str(file.relative_to(root)) == relative:
            return f"{name}.md"
    for name, shown in SOURCES.items():
        if shown == relative:
            return f"{name}.md"
    if relative in FOLDERS:
        return f"{FOLDERS[relative]}.md"
    without = relative.removesuffix(".py")
    return f"{without}.ipynb" if without in lessons(root) else None


def _from(name: str, to: str) -> str:
    return os.path.relpath(to, PurePosixPath(name).parent)
