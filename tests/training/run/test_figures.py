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
    draw_log(lines, ["a " * 100], "Title", Path("page.png"))
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
    assert [len(text) for text in figure.get_suptitle().splitlines()] == [5, 119, 79]  # at most 120


def test_curve_of_many_steps_is_a_running_mean(drawn):
    axes = Figure().add_subplot()
    steps, values = np.arange(305), np.random.default_rng(0).random(305)
    figures.curve(axes, [*zip(steps, values, strict=True)], "loss", 5)
    (line,) = axes.lines
    means = [values[last - 4 : last + 1].mean() for last in range(4, 305)]  # of a sixtieth of the steps
    np.testing.assert_allclose(line.get_xydata(), np.stack([steps[4:], means], axis=1))
    assert (line.get_color(), line.get_linestyle()) == (figures.COLORS[1], figures.LINES[1])


def test_legend_of_several_curves_is_between_them_and_their_title(drawn):
    lines = [{"step": step, "loss": 1.0, "kl": 0.2, "ln_k": 5.5, "teacher_entropy": 2.0} for step in range(9)]
    draw_log(lines, [], "Title", Path("page.png"))
    figure = drawn[0]
    figure.draw_without_rendering()
    legends = [axes.get_legend() for axes in figure.axes]
    assert [legend and len(legend.get_texts()) for legend in legends] == [None, 3, None]
    area, legend = figure.axes[1].get_window_extent(), legends[1].get_window_extent()
    assert area.y1 <= legend.y0
    assert area.y1 + 10 < legend.y1 <= figure.axes[1].title.get_window_extent().y0 + 1
    assert (legend.x0 + legend.x1) / 2 == pytest.approx((area.x0 + area.x1) / 2, abs=1)


@pytest.mark.parametrize(
    ("classes", "named", "counted", "side"),
    [(3, 3, 4, 4.5), (20, 20, 4, 9.3), (21, 21, 0, 9.64), (40, 40, 0, 14), (41, 0, 0, 14)],
)
def test_confusion_is_drawn_in_percent_of_the_true_class(tmp_path, drawn, classes, named, counted, side):
    matrix = torch.zeros(classes, classes, dtype=torch.int64)
    matrix[0, 2], matrix[0, 0] = 3, 2
    matrix[2, 1], matrix[2, 2] = 17, 11  # no image of the second class
    _write_confusion(tmp_path / "c.csv", matrix, [f"class {number}" for number in range(classes)])
    axes = drawn[0].axes[0]
    shares = np.zeros((classes, classes))
    shares[0, 2], shares[0, 0], shares[2, 1], shares[2, 2] = 60, 40, 1700 / 28, 1100 / 28
    np.testing.assert_allclose(axes.images[0].get_array(), shares, rtol=1e-6)
    assert axes.images[0].get_clim() == (0, 100)
    assert drawn[0].get_size_inches().tolist() == pytest.approx([side + 1.5, side])
    assert sum(label.get_text().startswith("class") for label in axes.get_yticklabels()) == named
    texts = {(*text.get_position(), text.get_text(), text.get_color()) for text in axes.texts}
    expected = {(2, 0, "3", "black"), (0, 0, "2", "black"), (1, 2, "17", "white"), (2, 2, "11", "black")}
    assert texts == (expected if counted else set())  # white above 60 %
    assert (tmp_path / "c.csv").read_text().splitlines()[1].startswith("class 0,2,0,3")


def test_study_is_drawn_with_intervals_points_and_baselines(drawn):
    values = {"momentum": [0.5, 56.0, 3.0], "student copy": [96.0, 99.5, 99.0]}  # the intervals are cut off
    outcome = Outcome(LAWS["teacher"], values, {"pixels": 30.0, "untrained": 40.0}, seconds={})
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
    lines = [(line.get_label(), line.get_ydata()[0], line.get_linestyle()) for line in axes.lines[-2:]]
    assert lines == [("pixels 30.0", 30, "-"), ("untrained 40.0", 40, "--")]
    assert drawn[0].get_size_inches().tolist() == [8, 4]
    assert axes.get_xlim() == (-0.5, 1.5)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["momentum", "student copy"]
