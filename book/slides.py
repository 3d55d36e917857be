"""The deck of the lecture: slides and notes of `docs/lecture.md` in reveal.js, which opens from a disk."""

import html
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from book.gather import BookError
from book.paper_map import ROOT

SOURCE = ROOT / "docs" / "lecture.md"
PAGE = "docs/lecture"
REVEAL = ROOT / "node_modules" / "reveal.js" / "dist"
FILES = ("reveal.js", "reveal.css", "reset.css", "theme/serif.css")
OWN = """
.reveal h2 { font-size: 1.6em; text-transform: none; }
.reveal section img { max-height: 430px; margin: 0.3em auto; }
.reveal section ul ~ p img { max-height: 290px; }
.reveal li { margin: 0.3em 0; }
"""
START = """
const notes = location.search.includes("notes");
Reveal.initialize({ hash: true, showNotes: notes, transition: "none", width: 1100, height: 700 });
"""


@dataclass(frozen=True)
class Slide:
    """One slide, in Markdown."""

    shown: str
    notes: str

    @property
    def title(self) -> str:
        """Its heading."""
        return self.shown.splitlines()[0].lstrip("# ")


def slides(text: str) -> list[Slide]:
    """The slides of a page: what stands between rules, each with its notes; before the first is no slide.

    Raises:
        BookError: a slide without a heading or without notes.
    """
    found = []
    for part in text.split("\n---\n")[1:]:
        shown, _, notes = part.strip().partition("\nNotes: ")
        slide = Slide(shown.strip(), " ".join(notes.split()))
        if not slide.shown.startswith("## ") or not slide.notes:
            raise BookError(f"the slide {slide.title!r} needs a heading and notes")
        found.append(slide)
    return found


def write(target: Path, text: str | None = None) -> None:
    """Write the deck to a folder of the site, whose pictures it shows.

    Raises:
        BookError: reveal.js is missing.
    """
    if not REVEAL.is_dir():
        raise BookError("reveal.js is missing: `npm ci` installs it (make node brings npm)")
    target.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copy(REVEAL / name, target / Path(name).name)
    shutil.copy(REVEAL.parent / "LICENSE", target / "LICENSE-reveal.txt")
    deck = page(slides(text or SOURCE.read_text(encoding="utf-8")))
    deck = re.sub(r'<img src="(?:[^"]*/)?([^"/]+)"', r'<img src="../_images/\1"', deck)
    (target / "index.html").write_text(deck, encoding="utf-8")


def led(text: str) -> str:
    """The lecture's page in the book: where it names the deck, it leads there."""
    return text.replace("`slides/index.html`", '<a href="../slides/index.html">slides/index.html</a>')


def page(found: list[Slide]) -> str:
    """The deck as HTML."""
    markdown = MarkdownIt()
    parts = ((markdown.render(one.shown), html.escape(one.notes)) for one in found)
    sections = "\n".join(
        f"<section>{shown}<aside class='notes'>{notes}</aside></section>" for shown, notes in parts
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(found[0].title)}</title>
<link rel="stylesheet" href="reset.css">
<link rel="stylesheet" href="reveal.css">
<link rel="stylesheet" href="serif.css">
<style>{OWN}</style>
</head>
<body>
<div class="reveal"><div class="slides">
{sections}
</div></div>
<script src="reveal.js"></script>
<script>{START}</script>
</body>
</html>
"""
