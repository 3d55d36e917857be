import math
import re

import pytest

from training import monitor
from training.monitor import Progress, collapse_warning

UNIFORM = math.log(1024)


@pytest.mark.parametrize(
    ("entropy", "kl", "words"),
    [
        (0.01, 0.001, "one prototype.*lower --center-momentum"),
        (UNIFORM, 0.001, "uniform.*lower --teacher-temperature"),
        (3.0, 0.001, "hardly depends on the picture"),
    ],
)
def test_collapse_is_named_with_its_knob(entropy, kl, words):
    warning = collapse_warning(entropy, kl, 1024)
    assert warning is not None
    assert re.search(words, warning)


@pytest.mark.parametrize(("entropy", "kl"), [(3.0, 0.5), (UNIFORM, 0.3), (0.2, 0.4)])
def test_a_run_that_learns_is_left_in_peace(entropy, kl):
    assert collapse_warning(entropy, kl, 1024) is None


def test_time_left_is_told_beyond_a_day(monkeypatch, capsys):
    clock = iter([0.0, 100.0])
    monkeypatch.setattr(monitor.time, "monotonic", lambda: next(clock))
    Progress(first_step=0, steps=3001, batch_size=8).show(0, {"loss": 2.5})
    assert capsys.readouterr().err == "1/3001  loss 2.5  0 images/s  3 days, 11:20:00 left\n"
