"""`python -m notebooks.execute`: every lesson and its solutions, in fresh kernels, offline."""

import json
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from dino_model.errors import EXPECTED, sentence
from dino_model.threads import PASSIVE_OMP
from notebooks import start

LESSONS = Path(__file__).parent
OUTPUT = Path("build/notebooks")
LIMIT = 900  # seconds after which a cell is taken to hang; on a busy machine the longest takes minutes


class LessonError(ValueError):
    """A lesson that ends in an error, or a figure that says nothing to who cannot see it."""


@dataclass(frozen=True)
class Execute:
    """Run the lessons and their solutions, each in a kernel of its own."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Beginnings of names, such as 1 or 3; all without any."""
    solutions: bool = False
    """Execute the solutions only. The documentation build executes the lessons."""
    output: Path = OUTPUT
    """Folder for the lessons with their outputs, as .ipynb."""
    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = None
    """File for the seconds of each."""

    def run(self) -> None:
        """Run them in order; the first that fails ends it."""
        start.data_folder()  # a wrong one is told before minutes have passed
        seconds = {}
        for lesson in lessons(self.names):
            if self.solutions and lesson.parent == LESSONS:
                continue
            began = time.perf_counter()
            execute(lesson, self.output)
            name = str(lesson.relative_to(LESSONS))
            seconds[name] = round(time.perf_counter() - began, 1)
            print(f"{name}: {seconds[name]:.0f} s", flush=True)
        if self.json_file:
            self.json_file.write_text(json.dumps({"seconds": seconds}, indent=2) + "\n")


def lessons(names: tuple[str, ...] = ()) -> list[Path]:
    """The lessons and, after each, its solutions.

    Raises:
        LessonError: a name that no lesson begins with.
    """
    found = sorted(LESSONS.glob("[1-9]_*.py"))
    for name in names:
        if not any(lesson.stem.startswith(name) for lesson in found):
            raise LessonError(
                f"no lesson begins with {name!r}: there are {', '.join(one.stem for one in found)}"
            )
    chosen = [lesson for lesson in found if not names or lesson.stem.startswith(names)]
    return [path for lesson in chosen for path in (lesson, LESSONS / "solutions" / lesson.name)]


def execute(lesson: Path, output: Path) -> Path:
    """Run one text notebook and keep it with its outputs.

    Args:
        lesson: in jupytext's percent format.
        output: folder; solutions go to a folder in it.

    Raises:
        LessonError: a cell ended in an error or took too long, or a picture has no alternative text.
    """
    try:
        import ipykernel  # noqa: F401 (the kernel that nbclient starts)
        import jupytext
        import nbformat
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, CellTimeoutError
    except ModuleNotFoundError as error:
        raise LessonError(f"{error.name} is missing: `make notebooks` installs what lessons need") from None

    notebook = jupytext.read(lesson)
    client = NotebookClient(
        notebook, timeout=LIMIT, kernel_name="python3", resources={"metadata": {"path": str(lesson.parent)}}
    )
    try:
        client.execute(env=PASSIVE_OMP | os.environ | {"HF_HUB_OFFLINE": "1"})
    except (CellExecutionError, CellTimeoutError) as error:
        plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
        raise LessonError(f"{lesson.relative_to(LESSONS)}: {plain}") from None
    silent = sum(
        "image/png" in item.get("data", {}) for cell in notebook.cells for item in cell.get("outputs", ())
    )
    if silent:
        raise LessonError(
            f"{lesson.name}: {silent} pictures without a text: draw them with notebooks.drawing"
        )
    place = place_of(lesson, output)
    place.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, place)
    return place


def place_of(lesson: Path, output: Path) -> Path:
    """Where in a folder a lesson with its outputs stands."""
    return output / lesson.relative_to(LESSONS).with_suffix(".ipynb")


def main() -> None:
    """The command."""
    try:
        tyro.cli(Execute, prog="python -m notebooks.execute").run()
    except EXPECTED as error:
        sys.exit(f"error: {sentence(error)}")


if __name__ == "__main__":
    main()
