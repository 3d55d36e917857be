"""Pictures of noise in a folder for each class."""

from pathlib import Path

import numpy as np
from PIL import Image


def noise(folder: Path, many: int, classes: int, height: int, width: int) -> Path:
    """The folder, with `many` pictures of height × width, dealt to its classes in turn."""
    generator = np.random.default_rng(0)
    for i in range(many):
        target = folder / f"class{i % classes}" / f"{i}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (height, width, 3), np.uint8)).save(target)
    return folder
