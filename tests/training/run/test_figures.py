"""Figures of logs, confusion matrices and studies: what their axes hold."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from training.commands.doctor import draw_log
from training.evaluation.outcomes import _write_confusion
from training.run import figures
from training.studies.laws import LAWS
from training.studies.report import Outcome, draw_outcome, interval


@pytest.fixture
def drawn(monkeypatch) -> list[Figure]:
    """Keep figures that are drawn instead of writing them."""
    kept: list[Figure] = []
    monkeypatch.setattr(figures, "save", lambda figure, path: kept.append(figure))
    return kept


def test_log_is_drawn_against_steps_from_one_with_three_panels_in_a_row(drawn):
    waits = [0.5, None, 0.75]
    lines = [
        {"step": step, "loss": 3.0 - step, "spread": 0.5, "lr": 0.1, "images_per_second": 9.0, "kl": 0.2}
        | ({} if wait is None else {"data_wait": wait})
        for step, wait in enumerate(waits)
    ]
    draw_log(lines, ["word " * 40], "Title", Path("page.png"))
    (figure,) = drawn
    curves = {line.get_label(): line.get_xydata().tolist() for axes in figure.axes for line in axes.lines}
    panels = sum(axes.axison for axes in figure.axes)
    assert panels > 3
    assert len(figure.axes) == 3 * math.ceil(panels / 3)
    assert figure.get_size_inches().tolist() == pytest.approx([11, 2.6 * math.ceil(panels / 3)])
    assert [[1, 3], [2, 2], [3, 1]] in curves.values()
    (wait,) = [
        axes
        for axes in figure.axes
        if [[1, 0.5], [3, 0.75]] in [one.get_xydata().tolist() for one in axes.lines]
    ]
    assert wait.get_ylim() == (0, 1)
    assert max(map(len, figure.get_suptitle().splitlines())) <= 120


def test_curve_of_many_steps_is_a_running_mean(drawn):
    axes = Figure().add_subplot()
    steps, values = np.arange(305), np.random.default_rng(0).random(305)
    figures.curve(axes, [*zip(steps, values, strict=True)], "loss", 5)
    (line,) = axes.lines
    means = [values[last - 4 : last + 1].mean() for last in range(4, 305)]  # of a sixtieth of the steps
    np.testing.assert_allclose(line.get_xydata(), np.stack([steps[4:], means], axis=1))
    assert (line.get_color(), line.get_linestyle()) == (figures.COLORS[1], figures.LINES[1])


@pytest.mark.parametrize(
    ("classes", "named", "counted", "side"), [(3, 3, 3, 4.5), (30, 30, 0, 12.7), (45, 0, 0, 14)]
)
def test_confusion_is_drawn_in_percent_of_the_true_class(tmp_path, drawn, classes, named, counted, side):
    matrix = torch.zeros(classes, classes, dtype=torch.int64)
    matrix[0, 2], matrix[0, 0], matrix[2, 1] = 3, 1, 2  # no image of the second class
    _write_confusion(tmp_path / "c.csv", matrix, [f"class {number}" for number in range(classes)])
    axes = drawn[0].axes[0]
    shares = np.zeros((classes, classes))
    shares[0, 2], shares[0, 0], shares[2, 1] = 75, 25, 100
    np.testing.assert_allclose(axes.images[0].get_array(), shares)
    assert axes.images[0].get_clim() == (0, 100)
    assert drawn[0].get_size_inches().tolist() == pytest.approx([side + 1.5, side])
    assert sum(label.get_text().startswith("class") for label in axes.get_yticklabels()) == named
    texts = {(*text.get_position(), text.get_text(), text.get_color()) for text in axes.texts}
    expected = {(2, 0, "3", "white"), (0, 0, "1", "black"), (1, 2, "2", "white")}
    assert texts == (expected if counted else set())
    assert (tmp_path / "c.csv").read_text().splitlines()[1].startswith("class 0,1,0,3")


def test_study_is_drawn_with_intervals_points_and_baselines(drawn):
    values = {"momentum": [50.0, 56.0, 53.0], "student copy": [96.0, 99.5, 99.0]}
    outcome = Outcome(LAWS["teacher"], values, {"pixels": 30.0}, seconds={})
    draw_outcome(outcome, Path("study.png"))
    (axes,) = drawn[0].axes
    for place, (name, points) in enumerate(outcome.values.items()):
        mean, low, high = interval(points, 0, LAWS["teacher"].largest)
        bar = axes.containers[place]
        assert bar.lines[0].get_xydata().tolist() == [[place, pytest.approx(mean)]], name
        ends = bar.lines[2][0].get_segments()[0][:, 1].tolist()
        assert ends == pytest.approx([low, high])
    dots = [line.get_xydata().tolist() for line in axes.lines if line.get_marker() == "."]
    assert dots[1] == [[pytest.approx(1.08), value] for value in values["student copy"]]
    assert [line.get_ydata()[0] for line in axes.lines if line.get_label().startswith("pixels")] == [30]
    assert axes.get_xlim() == (-0.5, 1.5)
    assert axes.get_ylim()[1] <= 100
    assert [text.get_text() for text in axes.get_xticklabels()] == ["momentum", "student copy"]
