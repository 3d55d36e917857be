import numpy as np
import pytest

from training.schedules import cosine, linear_warmup


def test_warmup_holds_both_ends_and_the_peak_is_repeated():
    schedule = cosine(1.0, 0.1, 100, warmup_steps=10)
    assert schedule[0] == 0
    assert schedule[9] == schedule[10] == 1.0
    assert 0.1 < schedule[-1] < 0.102
    assert len(schedule) == 100


def test_momentum_rises_to_nearly_one():
    schedule = cosine(0.996, 1.0, 1000)
    assert schedule[0] == 0.996
    assert np.all(np.diff(schedule) > 0)
    assert schedule[-1] < 1


def test_warmup_as_long_as_training_is_possible():
    np.testing.assert_allclose(cosine(2.0, 0.0, 3, warmup_steps=3), [0, 1, 2])
    np.testing.assert_allclose(linear_warmup(0.04, 0.07, 4, 4), [0.04, 0.05, 0.06, 0.07])


@pytest.mark.parametrize("schedule", [lambda: cosine(1, 0, 5, 6), lambda: linear_warmup(0, 1, 5, 6)])
def test_warmup_longer_than_training_is_refused_in_words(schedule):
    with pytest.raises(ValueError, match=r"warm-up takes 6 of 5 .* shorten it or train longer"):
        schedule()


def test_no_steps_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        cosine(1, 0, 0)
