"""Small labeled images, made for tests."""

from pathlib import Path

import numpy as np
from PIL import Image


def write_pictures(folder: Path, classes: dict[str, int], *, shade: int = 200) -> Path:
    """Write images of rectangles: each class has its own width, each image its own shade."""
    for place, (name, count) in enumerate(classes.items()):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            image = np.zeros((24, 30, 3), np.uint8)
            image[:12, : 6 * (place + 1)] = shade + number
            Image.fromarray(image).save(folder / name / f"{number:03}.png")
    return folder
