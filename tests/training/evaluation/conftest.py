"""Labeled images and the command, for the tests of evaluations."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import train
from tests.training.runs import write_rectangles

Evaluate = Callable[..., dict[str, Any]]


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    """Folder of three classes, one of fewer than five images, and Caltech-101's background."""
    return write_rectangles(tmp_path / "shapes", {"BACKGROUND_Google": 6, "a": 10, "b": 4, "c": 7})


@pytest.fixture
def evaluate(tmp_path: Path) -> Evaluate:
    """Function that runs `python -m training evaluate WORDS` on the CPU and returns its JSON."""

    def run(*words: object) -> dict[str, Any]:
        file = tmp_path / "results.json"
        train(["evaluate", *map(str, words), "--device", "cpu", "--json", str(file)])
        content: dict[str, Any] = json.loads(file.read_text())
        return content

    return run
