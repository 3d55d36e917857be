"""`python -m book site`: gather, build, check."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from book import gather, lessons, links, live, reference, slides
from book.gather import BookError
from book.paper_map import ROOT
from notebooks import execute

LARGEST = 25_000_000  # bytes
CONF = Path(__file__).parent


@dataclass(frozen=True)
class Site:
    """Build the book: one static site that opens from a disk, without a network or a server."""

    output: Path = Path("build/docs")
    """Folder of the site; index.html is its first page."""
    work: Path = Path("build/book")
    """Folder that keeps Sphinx's state and the figures' data from one time to the next."""

    def run(self) -> None:
        """Gather the pages, let Sphinx write the site, check what it wrote.

        Raises:
            BookError: a link leads nowhere, Sphinx complains, or the site is too large to hand out.
        """
        source = self.work / "source"
        gather.gather(source, contents())
        lecture = (source / f"{slides.PAGE}.md").read_text(encoding="utf-8")
        gather.write(source, slides.PAGE, slides.led(lecture))
        for name, text in {
            "cite": reference.cite(),
            **reference.command_pages(),
            **reference.module_pages(),
        }.items():
            gather.write(source, name, text)
        lessons.put(execute.OUTPUT, source)
        build(source, self.output, self.work / "doctrees")
        slides.write(self.output / "slides")
        live.put(self.work / "figures", self.output / "_static" / "figures")
        print(check(self.output))


def contents() -> dict[str, list[str]]:
    """Captions, and the pages below each; a page of docs/ that is named nowhere is a guide."""
    packages = [f"reference/api/{package}-package" for package in reference.PACKAGES]
    named = {
        "Begin": ["docs/live", "docs/paper-map", "docs/glossary", "docs/lecture", "docs/lab-sheet"],
        "Lessons": ["notebooks/README", *gather.lessons(), *gather.SOURCES],
        "Guides": ["docs/page", "docs/segmentation", "docs/pretraining", "docs/methods", "docs/evaluation"],
        "Studies": [gather.FOLDERS["docs/studies"]],
        "The embedded model": [
            "dino_model/embedded/card",
            "docs/embedded-model",
            "docs/embedded-attempts",
            "docs/photographs",
        ],
        "Reference": [*reference.command_names(), *packages, "tests/oracles/README", "docs/benchmarks"],
        "About": ["cite", "CHANGELOG", "CONTRIBUTING", "docs/shipped"],
    }
    there = gather.pages()
    known = {name for names in named.values() for name in names}
    left = [name for name in there if name not in known and name != "index"]
    named["Studies"] += [name for name in left if name.startswith("docs/studies/")]
    named["Guides"] += [name for name in left if not name.startswith("docs/studies/")]
    return named


def build(source: Path, output: Path, doctrees: Path) -> None:
    """Let Sphinx write the site.

    Raises:
        BookError: Sphinx failed, or complained.
    """
    try:
        from sphinx.cmd.build import build_main
    except ModuleNotFoundError:
        raise BookError("Sphinx is missing: `make docs` installs what the book needs") from None
    sys.path.insert(0, str(ROOT))
    options = ["-b", "html", "-c", str(CONF), "-d", str(doctrees), "-q", "--keep-going", "-W"]
    if build_main([*options, str(source), str(output)]):
        raise BookError("Sphinx complained, see above")
    shutil.rmtree(output / "_sources", ignore_errors=True)


def check(site: Path) -> str:
    """What the site comes to.

    Raises:
        BookError: a link inside leads nowhere, something is loaded from elsewhere, or it is too large.
    """
    if wrong := links.wrong(site):
        raise BookError("\n".join([f"{len(wrong)} links do not hold:", *wrong[:40]]))
    files = [file for file in site.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    if size > LARGEST:
        largest = sorted(files, key=lambda file: -file.stat().st_size)[:5]
        named = ", ".join(f"{file.relative_to(site)} {file.stat().st_size / 1e6:.1f} MB" for file in largest)
        raise BookError(
            f"{site} is {size / 1e6:.1f} MB, expected at most {LARGEST / 1e6:.0f}; largest: {named}"
        )
    pages = sum(file.suffix == ".html" for file in files)
    return f"{site / 'index.html'}: {pages} pages, {size / 1e6:.1f} MB, all links inside lead somewhere"
