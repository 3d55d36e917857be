"""The book's own parts: pages gathered with their links, lessons kept, references written, a site checked."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from book import commands, gather, lessons, links, reference, site
from book.gather import BookError
from dino_model.options import ModelOptions
from notebooks import execute

# --- pages and their links


def repository(folder: Path, **pages: str) -> Path:
    """A small repository with these pages of docs/ and an empty one for every other page."""
    for name in (*gather.PAGES.values(), *gather.SOURCES.values()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("# Title\n")
    (folder / "notebooks" / "1_first.py").write_text("# %%\n")
    (folder / "docs" / "studies").mkdir(parents=True)
    (folder / "docs" / "studies" / "odd.md").write_text("# Odd things\n")
    (folder / "docs" / "data.csv").write_text("a,b\n")
    for name, text in pages.items():
        (folder / "docs" / f"{name}.md").write_text(text)
    return folder


def test_links_between_pages_lead_to_pages_of_the_book(tmp_path):
    root = repository(
        tmp_path / "root",
        a="[one](../README.md#here) [lesson](../notebooks/1_first.py) [studies](studies) [table](data.csv) "
        "[code](../notebooks/drawing.py)",
    )
    gather.gather(tmp_path / "book", {"All": ["docs/a"]}, root)
    text = (tmp_path / "book" / "docs" / "a.md").read_text()
    assert text == (
        "[one](../index.md#here) [lesson](../notebooks/1_first.ipynb) [studies](studies/README.md) "
        "[table](data.csv) [code](../notebooks/drawing.md)"
    )
    shown = (tmp_path / "book" / "notebooks" / "drawing.md").read_text()
    assert shown == "# `notebooks/drawing.py`\n\n```python\n# Title\n```\n"
    assert (tmp_path / "book" / "docs" / "data.csv").is_file()
    assert (
        "[Odd things](/docs/studies/odd.md)"
        in (tmp_path / "book" / "docs" / "studies" / "README.md").read_text()
    )
    assert "/docs/a" in (tmp_path / "book" / "index.md").read_text()


def test_what_is_no_page_and_too_large_to_download_becomes_words(tmp_path):
    root = repository(tmp_path / "root", a="[the weights](large.bin)")
    (root / "docs" / "large.bin").write_bytes(bytes(gather.LARGEST_DOWNLOAD + 1))
    gather.gather(tmp_path / "book", {}, root)
    assert (tmp_path / "book" / "docs" / "a.md").read_text() == "the weights (`docs/large.bin`)"


def test_a_link_to_nothing_is_refused_but_not_in_code(tmp_path):
    root = repository(tmp_path / "root", a="```\n[x](gone.md)\n```\n")
    gather.gather(tmp_path / "book", {}, root)
    repository(tmp_path / "other", a="[x](gone.md)")
    with pytest.raises(BookError, match=r"docs/a\.md links to gone\.md, which is not there"):
        gather.gather(tmp_path / "book", {}, tmp_path / "other")


def test_every_link_in_every_page_of_the_repository_leads_somewhere(tmp_path):
    gather.gather(tmp_path, site.contents())


def test_every_page_stands_in_the_table_of_contents_once():
    named = [name for names in site.contents().values() for name in names]
    assert len(named) == len(set(named))
    assert set(gather.pages()) - {"index"} <= set(named)


def test_a_page_that_says_the_same_is_not_written_again(tmp_path):
    gather.write(tmp_path, "a", "text")
    before = (tmp_path / "a.md").stat().st_mtime_ns
    gather.write(tmp_path, "a", "text")
    assert (tmp_path / "a.md").stat().st_mtime_ns == before


# --- lessons


def test_a_lesson_is_executed_without_data_unless_it_is_kept(tmp_path, monkeypatch):
    asked = []

    def pretend(path: Path, output: Path) -> Path:
        asked.append(path)
        assert lessons.start.DATA not in lessons.os.environ
        return output / "1_first.ipynb"

    monkeypatch.setenv(lessons.start.DATA, "somewhere")
    monkeypatch.setattr(execute, "execute", pretend)
    monkeypatch.setattr(execute, "kept", lambda path, output: None)
    assert lessons.executed(tmp_path / "1_first.py", tmp_path) == tmp_path / "1_first.ipynb"
    monkeypatch.setattr(execute, "kept", lambda path, output: tmp_path / "kept.ipynb")
    assert lessons.executed(tmp_path / "1_first.py", tmp_path) == tmp_path / "kept.ipynb"
    assert len(asked) == 1
    assert lessons.os.environ[lessons.start.DATA] == "somewhere"


# --- references


@dataclass(frozen=True)
class Example(ModelOptions):
    """A command."""

    output: Path
    """Where
    to."""
    sort: Literal["one", "two"] = "one"
    """Which."""
    often: bool = True
    """Or not."""


def test_options_are_the_fields_with_defaults_and_what_their_docstrings_say():
    found = {option.flag: option for option in commands.options(Example)}
    assert found["--output"].default is None
    assert found["--output"].told == "Where to."
    assert found["--often, --no-often"].default == "yes"
    assert found["--size"].default == "480"
    assert found["--sort"].kind == "one | two"


@pytest.mark.parametrize("name", commands.table())
def test_every_command_has_a_reference_in_which_every_option_says_what_it_means(name: str):
    silent = [one.flag for one in commands.options(commands.class_of(name)) if not one.told]
    assert not silent


def test_every_command_that_usage_names_is_in_the_reference():
    from training.__main__ import USAGE

    for name in re.findall(r"^  ([a-z-]+) ", USAGE, re.MULTILINE):
        assert name == "evaluate" or f"training {name}" in commands.table()


def test_citation_is_the_one_of_the_file():
    text = reference.cite()
    assert "author    = {Caron, Mathilde and Touvron, Hugo and" in text
    assert "Emerging Properties in Self-Supervised Vision Transformers" in text


def test_modules_of_the_reference_are_libraries():
    names = reference.modules("training")
    assert "training.methods.dino" in names
    assert not [name for name in names if "commands" in name or "__" in name]


# --- the site


def pages_of(folder: Path, **pages: str) -> Path:
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text)
    return folder


def test_a_site_whose_links_hold_is_told_to_hold(tmp_path):
    pages_of(tmp_path, a='<a href="b.html#there">b</a><a href="https://arxiv.org">p</a>', b='<p id="there">')
    assert links.wrong(tmp_path) == []
    assert "2 pages" in site.check(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<a href="c.html">', "a.html leads to c.html: no such file"),
        ('<a href="#gone">', "a.html leads to #gone: no such place on that page"),
        ('<img src="https://elsewhere.org/x.png">', "a.html loads https://elsewhere.org/x.png"),
        ('<script src="//cdn.org/x.js"></script>', "a.html loads //cdn.org/x.js"),
    ],
)
def test_what_does_not_hold_is_named(tmp_path, text, said):
    assert links.wrong(pages_of(tmp_path, a=text))[0] == said
    with pytest.raises(BookError, match="links do not hold"):
        site.check(tmp_path)


def test_a_site_that_is_too_large_names_what_makes_it_so(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "LARGEST", 10)
    with pytest.raises(BookError, match=r"largest: a\.html"):
        site.check(pages_of(tmp_path, a="<p>more than ten bytes</p>"))


def test_without_sphinx_a_sentence_says_what_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sphinx.cmd.build", None)
    with pytest.raises(BookError, match="`make docs` installs"):
        site.build(tmp_path, tmp_path, tmp_path)


def test_the_built_site_holds():
    built = Path(__file__).parents[2] / "build" / "docs"
    if not (built / "index.html").is_file() or shutil.which("make") is None:
        pytest.skip("build/docs is not there: `make docs` builds it")
    site.check(built)
