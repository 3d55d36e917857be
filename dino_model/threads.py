"""Waiting of OpenMP's threads, for machines on which other processes run too."""

import os

PASSIVE_OMP = {"OMP_WAIT_POLICY": "passive"}
"""Environment in which OpenMP's threads sleep while they wait for each other.

By default they spin, and keep the processor from the process they wait for: next to other work, an image took
eight times as long, a lesson over ten times.
"""


def set_passive_omp(**more: str) -> None:
    """Set `PASSIVE_OMP` and `more` variables in the environment, except those that are set already.

    Call it before PyTorch and NumPy are imported: they read the environment once.
    """
    for name, value in (PASSIVE_OMP | more).items():
        os.environ.setdefault(name, value)
