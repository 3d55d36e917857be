"""Floating-point operations of a training step, and peaks of devices."""

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from dino_model.backbones import choose_training_attention
from dino_model.device import ComputePrecision
from training.crops import Crops
from training.methods.method import Batch
from training.randomness import Randomness
from training.recipe import Recipe

PEAKS = {
    "V100": 125e12,
    "T4": 65e12,
    "A100": 312e12,
    "A10G": 70e12,
    "A10": 125e12,
    "A30": 165e12,
    "A40": 150e12,
    "L4": 121e12,
    "L40S": 362e12,
    "RTX 3090": 71e12,
    "RTX 4090": 165e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H200": 989e12,
    "B200": 2250e12,
}
"""Products and sums a second of 16-bit matrices, summed in fp32, none left out, from NVIDIA's data sheets; by
words of the name that the driver gives. V100 and T4 have fp16 only."""
PICTURES = 2
"""On which operations are counted: batch normalisation needs two."""


def peak(device_name: str, precision: ComputePrecision) -> float | None:
    """Peak of a device in operations a second, None where it is not known: other devices, or fp32."""
    words = device_name.replace("-", " ").split()
    found = [name for name in PEAKS if all(word in words for word in name.split())]
    return PEAKS[max(found, key=len)] if found and precision != "fp32" else None


def picture_flops(recipe: Recipe, classes: int = 2) -> float:
    """Floating-point operations of a training step for each picture: networks, heads and loss, both ways.

    A product and a sum are two. Counted by PyTorch on a step of `PICTURES` noise pictures, on the CPU; what
    activation checkpointing computes twice counts once.
    """
    schedules: Any = recipe.method.schedules(recipe.epochs, 1)
    with torch.random.fork_rng(devices=[]):
        method = recipe.method.build(recipe.backbone, schedules, classes)
    choose_training_attention(method, torch.device("cpu"), "bf16")  # matrices written out, which are counted
    crops, labels = recipe.crops, torch.zeros(PICTURES, dtype=torch.long)
    views = torch.zeros(crops.global_crops, PICTURES, 3, crops.global_size, crops.global_size)
    locals_ = torch.zeros(crops.local_crops, PICTURES, 3, crops.local_size, crops.local_size)
    batch = Batch(Crops(views, locals_), labels, Randomness(0, 0, 0, PICTURES, PICTURES))
    with FlopCounterMode(display=False) as counter:
        method(batch, recipe.epochs - 1).value.backward()
    return float(counter.get_total_flops() / PICTURES)
