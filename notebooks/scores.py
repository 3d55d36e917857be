"""Means and standard errors of the scores in the lessons."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def mean_error(values: ArrayLike) -> tuple[Any, Any]:
    """Return the mean of values over their first axis, and its standard error."""
    values = np.asarray(values, float)
    return values.mean(axis=0), values.std(axis=0) / np.sqrt(len(values))


def plus_minus(values: ArrayLike) -> str:
    """Return the mean of values [n] and its standard error as text, such as 0.41 ± 0.03."""
    return "{:.2f} ± {:.2f}".format(*mean_error(values))


def accuracy_error(accuracy: Any, num_images: int) -> Any:
    """Return the standard error of accuracies in percent over a number of test images."""
    return np.sqrt(accuracy * (100 - accuracy) / num_images)
