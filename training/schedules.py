"""Per-step values of everything that changes over training (section 3.2, "Implementation details")."""

import numpy as np
from numpy.typing import NDArray

Schedule = NDArray[np.float64]


def cosine(start: float, end: float, steps: int, warmup_steps: int = 0) -> Schedule:
    """Linear warm-up from 0 to `start`, then a cosine towards `end`: [steps].

    The warm-up holds both of its ends: its first value is 0, its last is `start`, and the cosine begins with
    `start` again. The cosine leaves its end point out, so `end` is approached and never reached.

    Raises:
        ValueError: no steps, or a warm-up longer than training.
    """
    _check(steps, warmup_steps, "learning-rate warm-up")
    remaining = steps - warmup_steps
    progress = np.arange(remaining) / max(remaining, 1)
    decay = end + 0.5 * (start - end) * (1 + np.cos(np.pi * progress))
    return np.concatenate([np.linspace(0, start, warmup_steps), decay])


def linear_warmup(start: float, end: float, length: int, warmup: int) -> Schedule:
    """Linear from `start` to `end`, both included, over the first `warmup` entries, then constant: [length].

    Raises:
        ValueError: no entries, or a warm-up longer than training.
    """
    _check(length, warmup, "teacher-temperature warm-up")
    return np.concatenate([np.linspace(start, end, warmup), np.full(length - warmup, end, dtype=np.float64)])


def _check(length: int, warmup: int, name: str) -> None:
    if length < 1:
        raise ValueError(f"training is {length} steps long, expected at least 1")
    if not 0 <= warmup <= length:
        raise ValueError(f"the {name} takes {warmup} of {length} steps or epochs: shorten it or train longer")
