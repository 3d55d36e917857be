"""Schedules: one value per step or epoch (section 3.2, "Implementation details")."""

import numpy as np
from numpy.typing import NDArray

Schedule = NDArray[np.float64]


def cosine(start: float, end: float, steps: int, warmup_steps: int = 0) -> Schedule:
    """Linear warm-up from 0 to `start`, then a cosine towards `end`: [steps].

    The warm-up includes both of its ends. The cosine begins with `start` again and leaves `end` out, as in
    the official code.
    """
    remaining = steps - warmup_steps
    progress = np.arange(remaining) / max(remaining, 1)
    decay = end + 0.5 * (start - end) * (1 + np.cos(np.pi * progress))
    return np.concatenate([np.linspace(0, start, warmup_steps), decay])


def hold_and_decay(start: float, end: float, steps: int, warmup_steps: int, hold: float) -> Schedule:
    """Linear warm-up from 0 to `start`, constant, then linear towards `end`, which is left out: [steps].

    Args:
        start, end: Peak and end.
        steps, warmup_steps: Of the training and of the warm-up, which includes both of its ends.
        hold: Share of the steps, warm-up included, before the decay begins.
    """
    remaining = steps - warmup_steps
    first = max(round(hold * steps) - warmup_steps, 0)
    progress = (np.arange(remaining) - first).clip(0) / max(remaining - first, 1)
    return np.concatenate([np.linspace(0, start, warmup_steps), start + (end - start) * progress])


def linear_warmup(start: float, end: float, length: int, warmup: int) -> Schedule:
    """Linear from `start` to `end`, both included, over `warmup` entries, then constant: [length]."""
    return np.concatenate([np.linspace(start, end, warmup), np.full(length - warmup, end, dtype=np.float64)])
