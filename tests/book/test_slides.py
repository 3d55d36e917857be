"""The lecture's deck: twenty slides of 45 minutes with notes, and pictures that are there."""

import re

import pytest

from book import slides
from book.gather import BookError

TEXT = slides.SOURCE.read_text(encoding="utf-8")


def test_the_lecture_has_twenty_slides_with_notes_that_fill_45_minutes():
    found = slides.slides(TEXT)
    assert len(found) == 20
    minutes = [re.search(r"\((\d+) minutes?\)$", slide.notes) for slide in found]
    assert all(minutes)
    assert sum(int(one[1]) for one in minutes if one) == 45


def test_a_slide_without_notes_is_refused():
    with pytest.raises(BookError, match="'Second' needs a heading and notes"):
        slides.slides("about\n---\n## First\n\ntext\n\nNotes: say it\n---\n## Second\n\ntext\n")


def test_notes_are_kept_out_of_what_is_shown():
    deck = slides.page(slides.slides("about\n---\n## First\n\n- a < b\n\nNotes: say <it>\n"))
    assert "<aside class='notes'>say &lt;it&gt;</aside>" in deck
    assert "<h2>First</h2>" in deck
    assert "about" not in deck


def test_every_picture_of_the_lecture_is_there():
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", TEXT)
    assert pictures
    for picture in pictures:
        assert (slides.SOURCE.parent / picture).is_file()


def test_without_reveal_a_sentence_says_what_installs_it(tmp_path, monkeypatch):
    monkeypatch.setattr(slides, "REVEAL", tmp_path / "gone")
    with pytest.raises(BookError, match="`npm ci` installs it"):
        slides.write(tmp_path / "deck")
