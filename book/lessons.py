"""The lessons with their outputs: executed once, and again when they or what they call have changed."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from book.paper_map import ROOT
from notebooks import execute, start

PACKAGES = ("dino_model", "segmentation", "training", "notebooks")


def fingerprint(lesson: Path, root: Path = ROOT) -> str:
    """What the outputs of a lesson depend on, in 16 letters: itself, all of the packages, and the model."""
    digest = hashlib.sha256(lesson.read_bytes())
    for file in _read_by_all(root):
        digest.update(str(file.relative_to(root)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _read_by_all(root: Path) -> Iterator[Path]:
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            if not file.name[0].isdigit():  # another lesson
                yield file
    yield root / "dino_model" / "embedded" / "model.safetensors"


def executed(lesson: Path, cache: Path) -> Path:
    """A lesson with its outputs, without any data set: what is handed out shows free photographs only.

    Args:
        lesson: in jupytext's percent format.
        cache: folder that keeps outputs.

    Raises:
        LessonError: a cell ends in an error.
    """
    kept = cache / f"{lesson.stem}-{fingerprint(lesson)}.ipynb"
    if kept.exists():
        return kept
    named = os.environ.pop(start.DATA, None)
    try:
        made = execute.execute(lesson, cache)
    finally:
        if named is not None:
            os.environ[start.DATA] = named
    for stale in cache.glob(f"{lesson.stem}-*.ipynb"):
        stale.unlink()
    return made.rename(kept)


def put(cache: Path, source: Path) -> None:
    """Put every lesson with its outputs among the pages; one that is not in the cache takes minutes."""
    for lesson in sorted(execute.LESSONS.glob("[1-9]_*.py")):
        place = source / "notebooks" / f"{lesson.stem}.ipynb"
        place.parent.mkdir(parents=True, exist_ok=True)
        found = executed(lesson, cache)
        if not place.exists() or place.read_bytes() != found.read_bytes():
            shutil.copy(found, place)
        print(f"lesson {lesson.stem}", flush=True)
