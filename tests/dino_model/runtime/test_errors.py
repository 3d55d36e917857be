"""Words of messages: numbers with their noun, and the first of many names."""

import sys
from types import SimpleNamespace

import pytest

from dino_model.data.classes import describe_classes
from dino_model.runtime.errors import count_names, list_names, pluralize
from dino_model.runtime.outputs import first_reasons
from dino_model.runtime.progress import progress


def test_messages_have_numbers_and_the_first_names():
    assert [pluralize(number, "image") for number in (0, 1, 1200)] == ["0 images", "1 image", "1,200 images"]
    assert [list_names("abcd"[:count]) for count in (0, 3, 4)] == ["", "a, b, c", "a, b, c, …"]
    assert count_names("file", "left out", "abcd") == ("4 files left out: a, b, c, …",)
    assert [first_reasons("abcdefg"[:count]) for count in (5, 7)] == [
        "a; b; c; d; e",
        "a; b; c; d; e; and 2 more",
    ]
    assert [describe_classes("abcdef"[:count]) for count in (0, 1, 5, 6)] == [
        "no classes", "1 class (a)", "5 classes (a, b, c, d, e)", "6 classes (a, b, c, d, e, …)",
    ]  # fmt: skip


@pytest.mark.parametrize(("is_terminal", "pause"), [(True, 0.2), (False, 30)])
def test_progress_is_rewritten_on_a_terminal_and_printed_every_30_seconds_elsewhere(
    monkeypatch, is_terminal, pause
):
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: is_terminal, write=len, flush=list))
    assert progress((), "work").mininterval == pause
