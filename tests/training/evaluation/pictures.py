"""Small labelled pictures, made for tests."""

from pathlib import Path

import numpy as np
from PIL import Image

from training.commands.evaluate import main


def write_pictures(folder: Path, classes: dict[str, int], *, shade: int = 200) -> Path:
    """Plain pictures: each class in a colour of its own, every picture a shade of it."""
    for place, (name, count) in enumerate(classes.items()):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            corner = np.zeros((24, 30, 3), np.uint8)
            corner[:12, : 6 * (place + 1)] = shade + number
            Image.fromarray(corner).save(folder / name / f"{number:03}.png")
    return folder


def evaluate(*words: object) -> None:
    """Run `python -m training evaluate WORDS`."""
    main([str(word) for word in words])
