"""What propagation reaches without a network: colours of patches as features, and the first mask copied."""

from collections.abc import Iterator, Sequence
from itertools import repeat

import cv2
import numpy as np
import torch
from torch import Tensor

from dino_model.resize import Resize, fed_size
from segmentation.frames import Picture
from segmentation.labels import Labels, without_void


def copied(mask: Labels, frames: int) -> Iterator[Labels]:
    """The first mask for every one of so many frames, void as background: uint8 [height, width] each."""
    return repeat(without_void(mask), frames)


class ColourPatches:
    """Colours of a patch as its feature: what propagation reaches without a network."""

    def __init__(self, patch_size: int = 8, size: int = 480) -> None:
        self.patch_size, self.size = patch_size, size
        self.resize: Resize = "davis"

    def features(self, images: Sequence[Picture]) -> Tensor:
        """Pixels of each patch minus the frame's mean patch: float32 [frames, rows, columns, 3 *
        patch_size**2]."""
        height, width = images[0].shape[:2]
        height, width = fed_size(height, width, self.size, self.resize, self.patch_size)
        resized = np.stack(
            [cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR) for image in images]
        )
        beyond = -height % self.patch_size, -width % self.patch_size
        padded = np.pad(resized, ((0, 0), (0, beyond[0]), (0, beyond[1]), (0, 0)), mode="edge")
        pixels = torch.from_numpy(padded).float() / 255
        patches = pixels.unflatten(2, (-1, self.patch_size)).unflatten(1, (-1, self.patch_size))
        vectors = patches.transpose(2, 3).flatten(3)  # [frames, rows, columns, D]
        return vectors - vectors.mean((1, 2), keepdim=True)
