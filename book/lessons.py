"""The lessons with their outputs: executed once, and again when they or what they call have changed."""

import os
import shutil
from pathlib import Path

from notebooks import execute, start


def executed(lesson: Path, output: Path) -> Path:
    """A lesson with its outputs, without any data set: what is handed out shows free photographs only.

    Args:
        lesson: in jupytext's percent format.
        output: folder that keeps lessons with their outputs.

    Raises:
        LessonError: a cell ends in an error.
    """
    named = os.environ.pop(start.DATA, None)
    try:
        return execute.kept(lesson, output) or execute.execute(lesson, output)
    finally:
        if named is not None:
            os.environ[start.DATA] = named


def put(output: Path, source: Path) -> None:
    """Put every lesson with its outputs among the pages; one that is not kept in `output` takes minutes."""
    for lesson in sorted(execute.LESSONS.glob("[1-9]_*.py")):
        place = source / "notebooks" / f"{lesson.stem}.ipynb"
        place.parent.mkdir(parents=True, exist_ok=True)
        found = executed(lesson, output)
        if not place.exists() or place.read_bytes() != found.read_bytes():
            shutil.copy(found, place)
        print(f"lesson {lesson.stem}", flush=True)
