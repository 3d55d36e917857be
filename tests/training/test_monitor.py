import math
import re

import pytest

from training.monitor import collapse_warning

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
