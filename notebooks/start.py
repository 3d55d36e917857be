"""What every lesson runs first: is this kernel able to run it, and where are the real pictures?"""

import importlib.util
import os
import random
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dino_model.images import Images

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


def study_pictures(folder: Path) -> "Images":
    """The pictures that the lessons train on: a study's, or pieces of photographs, written to `folder`."""
    from PIL import Image

    from dino_model import photographs
    from dino_model.images import open_images
    from training.studies import base

    caltech = data("caltech101_112px.tar")
    if caltech:
        return base.choose(open_images(caltech))
    generator = np.random.default_rng(0)
    for name in photographs.names()[: base.CLASSES]:
        photo = photographs.picture(name)
        (folder / name).mkdir(parents=True, exist_ok=True)
        side = min(photo.shape[:2]) // 3
        corners = generator.integers(0, np.array(photo.shape[:2]) - side, size=(base.PER_CLASS, 2))
        for number, (top, left) in enumerate(corners):
            piece = Image.fromarray(photo[top : top + side, left : left + side]).resize((48, 48))
            piece.save(folder / name / f"{number:03d}.png")
    return open_images(folder)


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
