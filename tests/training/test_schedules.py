import numpy as np

from training.schedules import cosine, linear_warmup


def test_cosine_warmup_includes_both_ends():
    schedule = cosine(1.0, 0.1, 100, warmup_steps=10)
    assert schedule[0] == 0
    assert schedule[9] == schedule[10] == 1.0
    assert 0.1 < schedule[-1] < 0.102
    assert len(schedule) == 100


def test_cosine_with_warmup_of_all_steps_is_linear():
    np.testing.assert_allclose(cosine(2.0, 0.0, 3, warmup_steps=3), [0, 1, 2])
    np.testing.assert_allclose(linear_warmup(0.04, 0.07, 4, 4), [0.04, 0.05, 0.06, 0.07])
