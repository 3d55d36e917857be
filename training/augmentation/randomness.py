"""Random numbers as a function of seed, step and position in the global batch.

They depend neither on the rank, nor on the split of a batch, nor on earlier draws. A resumed, split or
distributed training therefore draws the numbers of the plain one.
"""

import math
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Randomness:
    """Random numbers of consecutive images of one step's global batch."""

    seed: int
    step: int
    first: int
    """Position of the first image in the global batch."""
    num_images: int
    """Number of images."""
    stride: int = 1
    """Distance of the images in the global batch."""

    def uniform(self, purpose: str, *shape: int) -> Tensor:
        """Numbers in [0, 1) on the CPU, fp32 [*shape, images]; each purpose has its own.

        The generator PCG64 skips the images of other ranks (M. O'Neill 2014).
        """
        seed, each = mix(mix(self.seed, self.step), crc32(purpose.encode())), math.prod(shape)
        generator = np.random.PCG64(seed).advance(self.first * each)
        draws = generator.random_raw(((self.num_images - 1) * self.stride + 1) * each).reshape(-1, *shape)
        numbers = (draws[:: self.stride] >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)
        return torch.from_numpy(np.moveaxis(numbers, 0, -1).copy())

    def part(self, first: int, num_images: int) -> "Randomness":
        """Randomness of `num_images` of these images, from position `first` among them."""
        return replace(self, first=self.first + first * self.stride, num_images=num_images)


def copy_to_device(numbers: Tensor, device: torch.device) -> Tensor:
    """Copy numbers of the host to a device; the host does not wait, because their memory is pinned.

    Numbers that are on the device already, those of `training.step_graph`, are returned.
    """
    if numbers.device.type == device.type:
        return numbers
    return (numbers.pin_memory() if device.type == "cuda" else numbers).to(device, non_blocking=True)


def mix(seed: int, position: int) -> int:
    """Derive a seed from two numbers; consecutive positions give unrelated streams (SplitMix64)."""
    z = (seed * 0x9E3779B97F4A7C15 + position + 1) * 0x9E3779B97F4A7C15 & (2**64 - 1)
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & (2**64 - 1)
    return (z ^ (z >> 31)) >> 1
