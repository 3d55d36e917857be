"""`python -m notebooks.ipynb`: write the lessons as Jupyter notebooks."""

import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from dino_model.runtime.outputs import run_command
from notebooks.execute import KERNEL, LESSONS, LessonError, lessons, read
from notebooks.solve import solve

if TYPE_CHECKING:
    from nbformat import NotebookNode

FOLDER = LESSONS / "ipynb"
SOLVED = Path("build/solutions")
SET_UP = LESSONS / "set_up.py"
NO_ADDRESS = "This project has no public address yet. Open this notebook in a clone of the repository."
HIDDEN = "hide-input"
"""Tag of a cell whose code is folded, in Jupyter and on the site: plumbing that the text does not discuss."""
BRANCH = "notebooks"
"""Branch to which the workflow `pages` pushes the executed notebooks."""


@dataclass(frozen=True)
class Write:
    """Write the lessons as Jupyter notebooks."""

    output: Path | None = None
    """Folder of the notebooks. Default: notebooks/ipynb, or build/solutions with --solutions."""
    repository: str | None = None
    """Address of the repository, such as https://github.com/OWNER/NAME. Default: `Repository` in
    `[project.urls]` of pyproject.toml."""
    executed: Path | None = None
    """Folder of executed lessons (`make docs` writes build/executed), whose outputs are copied. Default: no
    outputs."""
    solutions: bool = False
    """Complete the exercises and append the answers to the open ones."""

    def run(self) -> None:
        """Write one notebook for each lesson.

        Raises:
            LessonError: The folder has no outputs of the present code of a lesson.
        """
        import nbformat

        repository = project_address() if self.repository is None else self.repository
        output = self.output or (SOLVED if self.solutions else FOLDER)
        output.mkdir(parents=True, exist_ok=True)
        for lesson in lessons():
            notebook = convert_lesson(lesson, repository, self.solutions)
            if self.executed is not None:
                copy_outputs(self.executed / f"{lesson.stem}.ipynb", notebook)
            nbformat.write(notebook, output / f"{lesson.stem}.ipynb")
        print(f"{len(lessons())} notebooks in {output}, {repository or 'without a public address'}")


def project_address() -> str:
    """Return the address of the repository in pyproject.toml, or "" if there is none."""
    project = tomllib.loads((LESSONS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Repository", "")


def convert_lesson(lesson: Path, repository: str, solutions: bool = False) -> "NotebookNode":
    """Return a lesson as a notebook: title, links and set-up cell, then the cells of the lesson.

    Args:
        lesson: File in jupytext's percent format.
        repository: Address of the repository; "" if there is none.
        solutions: Complete the exercises and append the answers.
    """
    from nbformat.v4 import new_code_cell, new_markdown_cell

    notebook = read(lesson)
    if solutions:
        solve(lesson, notebook)
    notebook.metadata = {"kernelspec": KERNEL}
    set_up = SET_UP.read_text(encoding="utf-8").replace('REPOSITORY = ""', f'REPOSITORY = "{repository}"')
    links = new_markdown_cell(links_of(lesson, repository))
    notebook.cells[1:1] = [links, new_code_cell(set_up.rstrip())]
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            cell.source = move_links(cell.source, repository)
        cell.id = f"cell-{number}"  # equal in every conversion
        is_folded = HIDDEN in cell.metadata.get("tags", [])
        cell.metadata = {"tags": [HIDDEN], "jupyter": {"source_hidden": True}} if is_folded else {}
    return notebook


def move_links(text: str, repository: str) -> str:
    """Change links of a lesson into links from its notebook: to GitHub, or from one folder deeper."""
    if not is_on_github(repository):
        return text.replace("](../", "](../../")
    images = re.sub(r"(!\[[^]]*\]\()\.\./", rf"\1{repository}/raw/main/", text)
    return images.replace("](../", f"]({repository}/blob/main/")


def copy_outputs(executed: Path, notebook: "NotebookNode") -> None:
    """Copy the outputs of an executed lesson to its notebook; results of predictions are folded.

    Raises:
        LessonError: There are none, or they belong to other code.
    """
    import nbformat

    cells = [cell for cell in notebook.cells if cell.cell_type == "code"][1:]  # without the set-up
    found = nbformat.read(executed, as_version=4).cells if executed.is_file() else []
    outputs = [cell for cell in found if cell.cell_type == "code"]
    if [cell.source for cell in outputs] != [cell.source for cell in cells]:
        raise LessonError(
            f"{executed} has no outputs of the present code. Run `make notebooks LESSONS={executed.stem[0]}`."
        )
    for cell, output in zip(cells, outputs, strict=True):
        cell.outputs, cell.execution_count = output.outputs, output.execution_count
    is_predicted = False
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            is_predicted = "**Prediction.**" in cell.source
        elif is_predicted:
            cell.metadata["jupyter"] = cell.metadata.get("jupyter", {}) | {"outputs_hidden": True}


def is_on_github(repository: str) -> bool:
    """Report whether an address is that of a repository on GitHub."""
    return repository.startswith("https://github.com/")


def links_of(lesson: Path, repository: str) -> str:
    """Return a link that opens a lesson of a GitHub repository in Colab, or a sentence that there is none."""
    if not repository:
        return NO_ADDRESS
    if not is_on_github(repository):
        return f"The repository is {repository}."
    name = repository.removeprefix("https://github.com/").removesuffix(".git")
    address = f"https://colab.research.google.com/github/{name}/blob/{BRANCH}/{lesson.stem}.ipynb"
    return f"[Open in Colab]({address})"


if __name__ == "__main__":
    sys.exit(run_command(tyro.cli(Write, prog="python -m notebooks.ipynb").run))
