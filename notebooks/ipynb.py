"""`python -m notebooks.ipynb`: write the lessons as Jupyter notebooks without outputs."""

import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from dino_model.runtime.outputs import run_command
from notebooks.execute import LESSONS, lessons, read

if TYPE_CHECKING:
    from nbformat import NotebookNode

FOLDER = LESSONS / "ipynb"
SET_UP = LESSONS / "set_up.py"
NO_ADDRESS = "This project has no public address yet. Open this notebook in a clone of the repository."
SERVICES = {
    "Colab": "https://colab.research.google.com/github/{repository}/blob/main/{path}",
    "Kaggle": "https://www.kaggle.com/kernels/welcome?src=https://github.com/{repository}/blob/main/{path}",
    "Binder": "https://mybinder.org/v2/gh/{repository}/main?labpath={path}",
}
"""Service -> address that opens a file of a GitHub repository."""


@dataclass(frozen=True)
class Write:
    """Write the lessons as Jupyter notebooks."""

    output: Path = FOLDER
    """Folder of the notebooks."""
    repository: str | None = None
    """Address of the repository, such as https://github.com/OWNER/NAME. Default: `Repository` in
    `[project.urls]` of pyproject.toml."""

    def run(self) -> None:
        """Write one notebook for each lesson."""
        import nbformat

        repository = project_address() if self.repository is None else self.repository
        self.output.mkdir(parents=True, exist_ok=True)
        for lesson in lessons():
            nbformat.write(convert_lesson(lesson, repository), self.output / f"{lesson.stem}.ipynb")
        print(f"{len(lessons())} notebooks in {self.output}, {repository or 'without a public address'}")


def project_address() -> str:
    """Return the address of the repository in pyproject.toml, or "" if there is none."""
    project = tomllib.loads((LESSONS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Repository", "")


def convert_lesson(lesson: Path, repository: str) -> "NotebookNode":
    """Return a lesson as a notebook: title, links and set-up cell, then the cells of the lesson.

    Args:
        lesson: File in jupytext's percent format.
        repository: Address of the repository; "" if there is none.
    """
    from nbformat.v4 import new_code_cell, new_markdown_cell

    notebook = read(lesson)
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
    set_up = SET_UP.read_text(encoding="utf-8").replace('REPOSITORY = ""', f'REPOSITORY = "{repository}"')
    links = new_markdown_cell(links_of(lesson, repository))
    notebook.cells[1:1] = [links, new_code_cell(set_up.rstrip())]
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # equal in every conversion
        cell.metadata = {}
    return notebook


def links_of(lesson: Path, repository: str) -> str:
    """Return links that open a lesson in services which read GitHub, or a sentence that there are none."""
    if not repository:
        return NO_ADDRESS
    if not repository.startswith("https://github.com/"):
        return f"The repository is {repository}."
    values = {
        "repository": repository.removeprefix("https://github.com/").removesuffix(".git"),
        "path": f"notebooks/ipynb/{lesson.stem}.ipynb",
    }
    return "Open in " + " · ".join(f"[{name}]({url.format(**values)})" for name, url in SERVICES.items())


if __name__ == "__main__":
    sys.exit(run_command(tyro.cli(Write, prog="python -m notebooks.ipynb").run))
