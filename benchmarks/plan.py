"""Images/s, hours and cost of pretraining on ImageNet, computed from operations that PyTorch counts.

python -m benchmarks.plan [--gpu A100] [--gpus 8] [--utilization 0.3] [--price 2.0] [--json FILE]
"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.flops import PEAKS, picture_flops
from dino_model.backbones import BackboneConfig
from dino_model.files import write_json
from training.crop_config import CropConfig
from training.methods.dino_config import DINOConfig
from training.recipe import Recipe

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
    """GPU whose peak is used, one of `benchmarks.flops.PEAKS`."""
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
            flops = picture_flops(Recipe(backbone, DINOConfig(), CropConfig()))
            rate = self.gpus * PEAKS[self.gpu] * self.utilization / flops
            hours = [epochs * IMAGENET / rate / 3600 for epochs in EPOCHS]
            runs = " | ".join(f"{n:,.0f} h, {n * self.gpus * self.price:,.0f}" for n in hours)
            print(f"| {model} | {flops / 1e9:.0f} | {rate:,.0f} | {runs} |", flush=True)
            rows.append({"model": model, "flops": flops, "images_per_second": rate, "hours": hours})
        if self.json:
            settings = {"gpu": self.gpu, "gpus": self.gpus, "utilization": self.utilization}
            write_json(self.json, {"name": "plan", **settings, "epochs": EPOCHS, "rows": rows})


if __name__ == "__main__":
    tyro.cli(Plan).run()
