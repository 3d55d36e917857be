"""Texts, settings and numbers of the tab Learn."""

import re

import numpy as np
import pytest

from app.lessons import fill, lessons, numbers, settings, training_numbers
from app.runs import Runs
from app.view import attention


@pytest.fixture(scope="module")
def encoding(encode):
    return encode("kitten", size=96)


def test_every_lesson_has_a_question_an_answer_and_a_link_to_its_section():
    assert len(lessons()) == 8
    for lesson in lessons():
        assert re.search(r"\*\*Question\.\*\* .*\?$", lesson.body)
        assert lesson.answer
        for number, anchor in re.findall(r"\[section ([\d.]+)\]\(\S+#(\S+)\)", lesson.paper):
            assert anchor == "sub" * number.count(".") + f"section.{number}"


def test_numbers_fill_every_placeholder(encoding):
    filled = numbers(encoding, encoding) | training_numbers(Runs(None).read("embedded"))
    for lesson in lessons():
        assert "…" not in fill(lesson.body + lesson.answer, filled)
        assert "{" not in fill(lesson.body + lesson.answer, filled)


def test_widest_and_narrowest_head_are_chosen_by_entropy(encoding):
    maps = attention(encoding)
    shares = maps.reshape(len(maps), -1)
    shares = shares / shares.sum(axis=1, keepdims=True)
    entropies = -(shares * np.log(shares)).sum(axis=1)
    found = numbers(encoding)
    assert found["widest"].startswith(f"head {entropies.argmax()} with {entropies.max():.2f}")
    assert found["narrowest"].startswith(f"head {entropies.argmin()} with {entropies.min():.2f}")
    assert settings(lessons()[3], encoding)["head"] == str(entropies.argmin())
