"""What is written into the embedded model's card, and when nothing is."""

from pathlib import Path

import pytest
from PIL import Image

from benchmarks import ship
from training.commands.thin_log import Record, read_log

FIGURES = {
    "knn": {"results": [{"metrics": {"top1": 61.04, "per_class_top1": 45.06}}]},
    "voc": {"jaccard": 30.55, "lift": 2.449},
    "davis": {"dataset": {"J&F_mean": 0.8123, "J_mean": 0.8555, "F_mean": 0.7691}},
}


def test_the_card_tells_the_figures_of_both_models_and_keeps_the_rest():
    before = ship.CARD.read_text(encoding="utf-8")
    other = {**FIGURES, "voc": {"jaccard": 9.0, "lift": 0.99}}
    after = ship.with_figures(before, FIGURES, other)
    rows = [line for line in after.splitlines() if line.startswith("|")]
    for start, cells in {
        "| k-NN on": " 61.0 % (45.1) | 61.0 % (45.1) | pixels 47.5 % (28.7) |",
        "| best-head": " 30.6 % | 9.0 % | centred box 20.3 |",
        "| lift of": " 2.45 | 0.99 | 1 |",
        "| J&F on": " 81.2 (85.5, 76.9) | 81.2 (85.5, 76.9) | colour patches 56.6, first mask copied 40.0 |",
    }.items():
        (row,) = [row for row in rows if row.startswith(start)]
        assert row.endswith(cells), row
    changed = [new for new, old in zip(after.splitlines(), before.splitlines(), strict=True) if new != old]
    assert len(changed) == 4


def test_the_shipped_card_tells_the_phases_of_the_shipped_log():
    card = ship.CARD.read_text(encoding="utf-8")
    assert ship.with_phases(card, read_log(ship.LOG)) == card
    two = [{"phase": 1, "step": 99}, {"phase": 2, "step": 1999}]
    assert "2 phases, 2,100 steps" in ship.with_phases(card, two)


def test_probes_of_a_later_phase_follow_those_of_the_earlier(tmp_path: Path):
    log: list[Record] = [
        {"phase": phase, "step": step, "knn_teacher": phase + step / 1000, "lift_teacher": 1.0}
        | {"knn_student": 2.0, "lift_student": 1.0}
        for phase in (1, 2)
        for step in (999, 1999)
    ]
    assert ship.probes([*log, {"phase": 2, "step": 2099}], "knn_teacher") == [
        (1000, 1.999),
        (2000, 2.999),
        (3000, 2.999),
        (4000, 3.999),
    ]
    ship.draw_probes(log, tmp_path / "curves.png")
    assert Image.open(tmp_path / "curves.png").width == 1100


def test_curves_of_a_run_that_was_not_probed_are_empty(tmp_path: Path):
    ship.draw_probes([{"phase": 1, "step": 99, "loss": 1.0}], tmp_path / "curves.png")
    assert Image.open(tmp_path / "curves.png").width == 1100


def test_a_card_without_the_rows_is_refused():
    with pytest.raises(ValueError, match="0 rows that begin with 'k-NN on'"):
        ship.with_figures("# A card", FIGURES, FIGURES)
    with pytest.raises(ValueError, match="expected once"):
        ship.with_phases("# A card", read_log(ship.LOG))


def test_nothing_begins_while_something_is_missing(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(ship, "make", lambda *_: pytest.fail("it began"))
    with pytest.raises(SystemExit, match="nothing was changed"):
        ship.Ship((tmp_path,), data=tmp_path, voc=tmp_path, davis=tmp_path / "missing").run()


def test_a_command_that_fails_stops_it():
    with pytest.raises(SystemExit, match="python -m no_such_module --at all failed"):
        ship.make("no_such_module", "--at", "all")
