"""Pictures as a classifier learns from them: a random box, perhaps mirrored (section 4.1, "Evaluation")."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dino_model.ahead import load_ahead
from dino_model.images import Images
from training.crops import TRIES, random_box
from training.randomness import mix


def random_view(picture: np.ndarray, size: int, seed: int, *, least: float = 0.08) -> Tensor:
    """A random box resized (bilinear) and mirrored every second time, as torchvision's defaults have it.

    Args:
        picture: uint8 [height, width, 3].
        size: side of the result in pixels.
        seed: the same gives the same.
        least: share of the picture that is covered at least.

    Returns:
        uint8 [3, size, size].
    """
    chances = np.random.default_rng(seed).random(2 * TRIES + 3).tolist()
    height, width = picture.shape[:2]
    box = random_box(width, height, (least, 1.0), chances)
    view = Image.fromarray(picture).resize((size, size), Image.Resampling.BILINEAR, box=box)
    if chances[-1] < 0.5:
        view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(view)).permute(2, 0, 1)


def random_views(
    images: Images, order: Tensor, size: int, batch_size: int, seed: int, epoch: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of random views, read by threads ahead of the one in use.

    What a picture looks like depends on the seed, the epoch and its number only.

    Args:
        images: the pictures.
        order: numbers of pictures, in the order of the epoch.
        size, batch_size: of views, and of them at once.
        seed, epoch: of the randomness.

    Yields:
        Numbers of pictures [batch], and uint8 [batch, 3, size, size].
    """

    def load(index: int) -> Tensor:
        return random_view(images.read(index), size, mix(mix(seed, epoch), index))

    numbers = order.tolist()
    views = load_ahead(load, numbers, depth=batch_size)
    for start in range(0, len(numbers), batch_size):
        chosen = numbers[start : start + batch_size]
        yield torch.tensor(chosen), torch.stack(list(islice(views, len(chosen))))
