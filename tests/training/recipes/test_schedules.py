import numpy as np

from training.recipes.schedules import cosine, linear_warmup


def test_schedules_with_warmup_of_all_steps_are_linear():
    np.testing.assert_allclose(cosine(2.0, 0.0, 3, warmup_steps=3), [0, 1, 2])
    np.testing.assert_allclose(linear_warmup(0.04, 0.07, 4, 4), [0.04, 0.05, 0.06, 0.07])
