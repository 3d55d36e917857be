"""Images of lesson F: the reader's folder, or the package's images in the same form; and commands."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from dino_model import photographs
from notebooks.distillation import model_features, pixel_features

SIZE = 112
"""Side of the square that networks receive, in pixels."""

LANDMARKS = ("eiffel_tower", "statue_of_liberty", "mont_st_michel", "red_pyramid")
TOOLS = ("dutar", "drums", "coffee", "rocket", "chair", "hammer", "bulb", "astronaut")


def write_example(folder: Path) -> Path:
    """Write the package's images as `images/CLASS/NAME.jpg` and `masks/CLASS/NAME.png`; return the folder."""
    for name in photographs.names():
        label = "thing" if name in LANDMARKS + TOOLS else "animal"
        masks, images = (folder / part / label for part in ("masks", "images"))
        for part in (masks, images):
            part.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photographs.image(name)).save(images / f"{name}.jpg", quality=90)
        Image.fromarray(photographs.mask(name).astype(np.uint8)).save(masks / f"{name}.png")
    return folder


def image_features(model: str, images: list[NDArray[np.uint8]]) -> NDArray[np.floating]:
    """Compute unit-length features of RGB images, resized to squares: [images, width].

    Args:
        model: Name of a model; "pixels" for 16 × 16 gray pixels.
        images: uint8 [height, width, 3] of any size.
    """
    squares = np.stack([cv2.resize(image, (SIZE, SIZE), interpolation=cv2.INTER_AREA) for image in images])
    pixels = torch.from_numpy(squares).permute(0, 3, 1, 2) / 255
    if model == "pixels":
        return pixel_features(pixels.mean(dim=1, keepdim=True)).numpy()
    return model_features(model, pixels)


def run(command: str, lines: int = 3) -> None:
    """Run a command of this project and print its last lines.

    Raises:
        ValueError: The command fails; the message has its output.
    """
    words = [sys.executable, "-m", *command.split()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    printed = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if done.returncode:
        raise ValueError(f"python -m {command} fails: {' '.join(printed[-lines:])}")
    shown = "\n".join([f"$ python -m {command}", *done.stdout.strip().splitlines()[-lines:]])
    print(re.sub(rf"{re.escape(tempfile.gettempdir())}/\w+/", "", shown))  # short paths of temporary folders
