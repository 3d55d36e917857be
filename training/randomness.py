"""Random numbers that depend on the seed, the step and the place in the global batch, and on nothing else.

Not on the rank, not on how a batch is split, not on what was drawn before: a resumed, a split and a
distributed training draw what the plain one draws.
"""

from dataclasses import dataclass
from zlib import crc32

import torch
from torch import Tensor


@dataclass(frozen=True)
class Randomness:
    """Random numbers of some neighbouring pictures of one step's global batch."""

    seed: int
    step: int
    first: int
    """Place of the first of these pictures in the global batch."""
    pictures: int
    """How many they are."""
    batch_size: int
    """Pictures in the global batch."""

    def uniform(self, purpose: str, *shape: int) -> Tensor:
        """Numbers in [0, 1) on the CPU, fp32 [*shape, pictures]; another purpose gets others."""
        seed = mix(mix(self.seed, self.step), crc32(purpose.encode()))
        numbers = torch.rand(*shape, self.batch_size, generator=torch.Generator().manual_seed(seed))
        return numbers[..., self.first : self.first + self.pictures]

    def part(self, first: int, pictures: int) -> "Randomness":
        """Of `pictures` of these, from place `first` among them."""
        return Randomness(self.seed, self.step, self.first + first, pictures, self.batch_size)


def mix(seed: int, position: int) -> int:
    """One seed from two numbers; consecutive positions give unrelated streams (SplitMix64's finaliser)."""
    z = (seed * 0x9E3779B97F4A7C15 + position + 1) * 0x9E3779B97F4A7C15 & (2**64 - 1)
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & (2**64 - 1)
    return (z ^ (z >> 31)) >> 1
