"""Images/s, hours and cost of pretraining on ImageNet, computed from operations that PyTorch counts.

python -m benchmarks.plan [--gpu A100] [--gpus 8] [--utilization 0.3] [--price 2.0] [--json FILE]
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import tyro
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.data import random_crops
from dino_model.models.backbones import BackboneConfig, choose_training_attention
from dino_model.runtime.device import ComputePrecision
from dino_model.runtime.files import write_json
from training.crop_config import CropConfig
from training.methods.dino_config import DINOConfig
from training.methods.method import Batch
from training.methods.setup import Setup
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
"""Operations a second on dense 16-bit matrices with fp32 sums, from NVIDIA's data sheets, by words of the
name that the driver reports. V100 and T4 have fp16 only."""
IMAGES = 2
"""Images on which operations are counted: batch normalization needs two."""
IMAGENET = 1_281_167
"""Images of ImageNet-1k's training set."""
EPOCHS = (100, 300, 800)
MODELS = {
    "ViT-S/16": BackboneConfig("vit_small", 16, drop_path=0.1),
    "ViT-S/8": BackboneConfig("vit_small", 8, drop_path=0.1),
    "ViT-B/16": BackboneConfig("vit_base", 16, drop_path=0.1),
    "ResNet-50": BackboneConfig("resnet50"),
}


@dataclass(frozen=True)
class Plan:
    """DINO with 2 × 224 + 8 × 96 and K = 65,536 in bf16. Computed, not timed."""

    gpu: str = "A100"
    """GPU whose peak is used, one of `benchmarks.plan.PEAKS`."""
    gpus: int = 8
    """Number of GPUs."""
    utilization: float = 0.3
    """Assumed share of the peak."""
    price: float = 2.0
    """Assumed price of a GPU and hour."""
    json: Path | None = None
    """Write the results to this file."""

    def run(self) -> None:
        """Count, compute, print a table in Markdown."""
        print(f"Computed, not timed: {self.gpus} {self.gpu} at {self.utilization:.0%} of their peak\n")
        print("| model | GFLOP per image | images/s |", " | ".join(f"{n} epochs" for n in EPOCHS), "|")
        print("|---" * (3 + len(EPOCHS)) + "|")
        rows = []
        for model, backbone in MODELS.items():
            flops = image_flops(Recipe(backbone, DINOConfig(), CropConfig()))
            rate = self.gpus * PEAKS[self.gpu] * self.utilization / flops
            hours = [epochs * IMAGENET / rate / 3600 for epochs in EPOCHS]
            runs = " | ".join(f"{n:,.0f} h, {n * self.gpus * self.price:,.0f}" for n in hours)
            print(f"| {model} | {flops / 1e9:.0f} | {rate:,.0f} | {runs} |", flush=True)
            rows.append({"model": model, "flops": flops, "images_per_second": rate, "hours": hours})
        if self.json:
            settings = {"gpu": self.gpu, "gpus": self.gpus, "utilization": self.utilization}
            write_json(self.json, {"name": "plan", **settings, "epochs": EPOCHS, "rows": rows})


def peak(device_name: str, precision: ComputePrecision) -> float | None:
    """Peak of a device in operations a second, None where it is not known: other devices, or fp32."""
    words = device_name.replace("-", " ").split()
    matches = [name for name in PEAKS if all(word in words for word in name.split())]
    return PEAKS[max(matches, key=len)] if matches and precision != "fp32" else None


def image_flops(recipe: Recipe) -> float:
    """Count floating-point operations of a DINO step for each image: networks, heads and loss, both ways.

    A product and a sum are two. PyTorch counts them on a step of `IMAGES` images on the CPU.
    """
    schedules: Any = recipe.method.schedules(recipe.epochs, 1)
    method = recipe.method.build(Setup(recipe.backbone, schedules))
    choose_training_attention(method, torch.device("cpu"), "bf16")  # matrices written out, which are counted
    crops = random_crops(replace(recipe, batch_size=IMAGES))
    batch = Batch(crops, None, Randomness(0, 0, 0, IMAGES, IMAGES))
    with FlopCounterMode(display=False) as counter:
        method(batch, recipe.epochs - 1).value.backward()
    return float(counter.get_total_flops() / IMAGES)


if __name__ == "__main__":
    tyro.cli(Plan).run()
