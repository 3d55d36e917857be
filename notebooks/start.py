"""What every lesson runs first: is this kernel able to run it, and where are the real pictures?"""

import importlib.util
import os
import random
import sys
import warnings
from pathlib import Path

import numpy as np

NEEDED = ("torch", "matplotlib", "dino_model", "segmentation", "training")
OLDEST = (3, 11)
DATA = "DINO_DATA"


def ready() -> None:
    """Make a lesson repeatable, or say in one sentence why it cannot run here.

    Raises:
        RuntimeError: the kernel is too old, or lacks the project's packages.
    """
    if sys.version_info < OLDEST:
        raise RuntimeError(
            f"this kernel runs Python {sys.version.split()[0]}, the lessons need "
            f"{'.'.join(map(str, OLDEST))} or newer: choose another kernel, or start Jupyter with `make lab`"
        )
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(
            f"this kernel has no {', '.join(missing)}: start Jupyter with `make lab`, "
            "which installs what is needed"
        )
    import torch

    warnings.filterwarnings("ignore", message="IProgress not found")  # progress bars are not wanted here
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 (for libraries that draw from it)
    torch.manual_seed(0)


def data(name: str) -> Path | None:
    """A data set of the folder that DINO_DATA names; None, said aloud, where it is not there.

    Raises:
        RuntimeError: DINO_DATA names a folder that does not exist.
    """
    folder = os.environ.get(DATA)
    if folder and not Path(folder).is_dir():
        raise RuntimeError(f"{DATA} is {folder!r}, which is no folder: correct it, or leave it unset")
    path = Path(folder) / name if folder else None
    if path is not None and path.exists():
        return path
    print(
        f"Without {name} ({DATA} names no folder that holds it): a stand-in is used, its figures are its own."
    )
    return None
