"""`python -m training evaluate report`."""

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from dino_model import files
from training.evaluation.report import markdown, page, read_measured


@dataclass(frozen=True)
class Report:
    """One page of what was measured and of the paper's tables: report.html, and the same as report.md."""

    results: Positional[tuple[Path, ...]]
    """Files that evaluations wrote with --json."""
    output: Path = Path("report")
    """Folder to write to."""

    def run(self) -> None:
        """Read, write."""
        if not self.results:
            raise ValueError("name at least one file that an evaluation wrote with --json")
        measured = [read_measured(path) for path in self.results]
        files.write_text(self.output / "report.html", page(measured))
        files.write_text(self.output / "report.md", markdown(measured))
        print(f"{len(measured)} evaluations and the paper's tables: {self.output / 'report.html'}, report.md")
