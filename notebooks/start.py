"""What every lesson runs first: is this kernel able to run it, and where are the real pictures?

An old Python has to be able to read this file, to be told that it is old: hence annotations as texts.
"""

import importlib.util
import os
import random
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dino_model.collections import Images

NEEDED = ("numpy", "torch", "matplotlib", "IPython", "dino_model", "segmentation", "training")
OLDEST = (3, 11)
DATA = "DINO_DATA"
CLASSES, PER_CLASS = 10, 100  # of the stand-in


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
    import numpy as np
    import torch

    warnings.filterwarnings("ignore", message="IProgress not found")  # progress bars are not wanted here
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 (for libraries that draw from it)
    torch.manual_seed(0)


def pieces(folder: Path) -> "Images":
    """A stand-in for labelled pictures: a class is a photograph, its pictures are pieces of it.

    Each piece has a size, a contrast and, in each colour, a brightness of its own: else colours alone would
    tell the class. Written to `folder` as PNGs of 48 × 48 pixels.
    """
    import cv2
    import numpy as np
    from PIL import Image

    from dino_model import photographs
    from dino_model.collections import open_images

    generator = np.random.default_rng(0)
    for name in photographs.names()[:CLASSES]:
        photo = photographs.picture(name)
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(PER_CLASS):
            side = int(min(photo.shape[:2]) * generator.uniform(0.15, 0.5))
            top, left = generator.integers(0, np.array(photo.shape[:2]) - side)
            piece = cv2.resize(
                photo[top : top + side, left : left + side], (48, 48), interpolation=cv2.INTER_AREA
            )
            contrast, brightness = generator.uniform(0.6, 1.4), generator.uniform(0.6, 1.4, size=3)
            lit = (piece - piece.mean()) * contrast + piece.mean() * brightness
            turned = lit.clip(0, 255).astype(np.uint8)[:, :: -1 if number % 2 else 1]
            Image.fromarray(turned).save(folder / name / f"{number:03d}.png")
    return open_images(folder)


def data(name: str) -> "Path | None":
    """A data set of the folder that DINO_DATA names; None, said aloud, where it is not there.

    Raises:
        RuntimeError: DINO_DATA names a folder that does not exist.
    """
    folder = data_folder()
    path = folder / name if folder else None
    if path is not None and path.exists():
        return path
    print(
        f"Without {name} ({DATA} names no folder that holds it): a stand-in is used, its figures are its own."
    )
    return None


def data_folder() -> "Path | None":
    """The folder that DINO_DATA names; None where it names none.

    Raises:
        RuntimeError: there is no such folder.
    """
    folder = os.environ.get(DATA)
    if folder and not Path(folder).is_dir():
        raise RuntimeError(f"{DATA} is {folder!r}, which is no folder: correct it, or leave it unset")
    return Path(folder) if folder else None
