"""`python -m tools.slides`: print the built slides of the lecture as a PDF, with Chromium."""

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks import serving
from dino_model.runtime.outputs import run_command

PRINTED = "document.querySelectorAll('.pdf-page').length >= document.querySelectorAll('.slides h2').length"
"""Reveal has put every slide on a page."""


@dataclass(frozen=True)
class Slides:
    """Print the slides of the lecture as a PDF."""

    page: Path = Path("build/docs/slides/docs/lecture.html")
    """Slides that `make slides` builds."""
    output: Path = Path("build/docs/slides/lecture.pdf")
    """PDF with one page for each slide."""

    def run(self) -> None:
        """Write the PDF.

        Raises:
            ValueError: Chromium or playwright is missing.
            FileNotFoundError: The slides are not built.
        """
        if missing := serving.missing_for_browser():
            raise ValueError(missing)
        if not self.page.is_file():
            raise FileNotFoundError(f"Found no {self.page}. Run `make slides`.")
        with serving.browser() as browser:
            page = browser.new_page()
            page.goto(f"{self.page.resolve().as_uri()}?print-pdf")
            page.wait_for_function(PRINTED)
            page.evaluate("Promise.all([...document.images].map((image) => image.decode()))")
            page.pdf(path=self.output, prefer_css_page_size=True, print_background=True)
        print(f"{self.output}: {self.output.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    sys.exit(run_command(tyro.cli(Slides, prog="python -m tools.slides").run))
