"""How the threads of one process wait, for machines on which other work runs beside it."""

import os

PATIENT = {"OMP_WAIT_POLICY": "passive"}
"""Environment in which OpenMP's threads sleep while they wait for each other.

Spinning, as they do by themselves, they keep from the processor whom they wait for: beside another visitor's
objects a photograph of the page took eight times as long, beside a training a lesson over ten times.
"""


def be_patient(**more: str) -> None:
    """Let this process be `PATIENT`, with `more` settings of its kind; what the environment says stays.

    To be called before PyTorch and NumPy are loaded, which look once.
    """
    for name, value in (PATIENT | more).items():
        os.environ.setdefault(name, value)
