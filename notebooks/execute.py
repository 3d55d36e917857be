"""`python -m notebooks.execute`: execute lessons in fresh kernels, offline."""

import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dino_model.runtime.outputs import run_command

if TYPE_CHECKING:
    from nbformat import NotebookNode

LESSONS = Path(__file__).parent
OUTPUT = Path("build/executed")
"""Folder of executed lessons. The documentation build writes here, too."""
CELL_TIMEOUT_S = 900
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


class LessonError(ValueError):
    """A lesson that ends in an error, or that does not exist."""


@dataclass(frozen=True)
class Execute:
    """Execute lessons and write them with their outputs."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """First characters of lessons, such as 1 or a. Default: all lessons."""
    output: Path = OUTPUT
    """Folder for the executed notebooks."""

    def run(self) -> None:
        """Execute the lessons in order and stop at the first error."""
        for lesson in lessons(self.names):
            start = time.perf_counter()
            execute(lesson, self.output)
            print(f"{lesson.name}: {time.perf_counter() - start:.0f} s", flush=True)


def lessons(names: tuple[str, ...] = ()) -> list[Path]:
    """Return the lessons whose file name begins with one of `names`, or all.

    Raises:
        LessonError: No lesson begins with a name.
    """
    found = sorted(LESSONS.glob("[0-9a-z]_*.py"))
    for name in names:
        if not any(lesson.stem.startswith(name) for lesson in found):
            stems = ", ".join(lesson.stem for lesson in found)
            raise LessonError(f"No lesson begins with {name!r}. Available: {stems}.")
    return [lesson for lesson in found if not names or lesson.stem.startswith(names)]


def read(lesson: Path) -> "NotebookNode":
    """Read a lesson in jupytext's percent format."""
    return parse(lesson.read_text(encoding="utf-8"))


def parse(text: str) -> "NotebookNode":
    """Return the text of a lesson as a notebook of Python's kernel."""
    import jupytext

    notebook = jupytext.reads(text, fmt="py:percent")
    notebook.metadata["kernelspec"] = KERNEL
    return notebook


def execute(lesson: Path, output: Path = OUTPUT) -> Path:
    """Execute a lesson and write it with its outputs as .ipynb.

    Args:
        lesson: File in jupytext's percent format.
        output: Folder that is created if it is missing.

    Raises:
        LessonError: A cell fails or takes longer than `CELL_TIMEOUT_S`.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    notebook = read(lesson)
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name="python3",
        record_timing=False,  # times would change the key of the outputs in the cache of the documentation
        resources={"metadata": {"path": str(lesson.parent)}},
    )
    try:
        client.execute(env=os.environ | environment())
    except (CellExecutionError, CellTimeoutError) as error:
        plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
        raise LessonError(f"{lesson.name}: {plain}") from None
    output.mkdir(parents=True, exist_ok=True)
    path = output / f"{lesson.stem}.ipynb"
    nbformat.write(notebook, path)
    return path


def environment() -> dict[str, str]:
    """Return the environment variables of the kernels: offline, on one thread, quiet about open exercises."""
    quiet = "ignore:IProgress not found"  # tqdm without ipywidgets
    paths = {"PYTHONPATH": str(LESSONS.parent), "PYTHONWARNINGS": quiet}
    return {
        "OMP_WAIT_POLICY": "passive",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "LESSONS_QUIET": "1",
    } | paths


if __name__ == "__main__":
    sys.exit(run_command(tyro.cli(Execute, prog="python -m notebooks.execute").run))
