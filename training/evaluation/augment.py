"""Random crops and flips for training a classifier (section 4.1, "Evaluation")."""

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from training.crops import random_box
from training.device_crops import TRIES


def random_view(image: np.ndarray, size: int, seed: int, *, min_scale: float = 0.08) -> Tensor:
    """Resize a random box (bilinear) and flip it every second time, with torchvision's default parameters.

    Args:
        image: uint8 [height, width, 3].
        size: Side of the result in pixels.
        seed: Seed of box and flip.
        min_scale: Smallest share of the image area that is covered.

    Returns:
        uint8 [3, size, size].
    """
    numbers = np.random.default_rng(seed).random(2 * TRIES + 3).tolist()
    height, width = image.shape[:2]
    box = random_box(width, height, (min_scale, 1.0), numbers)
    view = Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR, box=box)
    if numbers[-1] < 0.5:
        view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(view)).permute(2, 0, 1)
