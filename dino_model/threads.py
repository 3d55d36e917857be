"""Waiting of OpenMP's threads, for machines on which other processes run too."""

import os

PASSIVE_OMP = {"OMP_WAIT_POLICY": "passive"}
"""Environment in which OpenMP's threads sleep while they wait. By default they spin, which makes an image
eight times slower next to other work."""


def set_passive_omp(**more: str) -> None:
    """Set `PASSIVE_OMP` and `more` in the environment, except variables that are set already.

    Call it before PyTorch and NumPy are imported: they read the environment once.
    """
    for name, value in (PASSIVE_OMP | more).items():
        os.environ.setdefault(name, value)
