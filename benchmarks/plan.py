"""What runs on ImageNet need, on paper: memory, images/s, hours and cost, from operations counted by PyTorch.

python -m benchmarks.plan [--gpu A100] [--gpus 8] [--utilisation 0.3] [--price 2.0] [--json FILE]
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro

from dino_model import files
from dino_model.backbones import BackboneConfig
from dino_model.device import autocast
from training.crop_config import CropConfig
from training.crops import Crops
from training.methods.dino_config import DINOConfig
from training.methods.method import Batch
from training.randomness import Randomness
from training.recipe import Recipe
from training.utilisation import PEAKS, PICTURES, picture_flops

IMAGENET = 1_281_167
"""Pictures of ImageNet-1k's training set."""
EPOCHS = (100, 300, 800)
RECIPES = {
    "ViT-S/16": BackboneConfig("vit_small", 16, drop_path=0.1),
    "ViT-S/8": BackboneConfig("vit_small", 8, drop_path=0.1),
    "ViT-B/16": BackboneConfig("vit_base", 16, drop_path=0.1),
    "ResNet-50": BackboneConfig("resnet50"),
}
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Plan:
    """DINO with 2 × 224 + 8 × 96 and K = 65,536 in bf16: nothing here was timed on a GPU."""

    gpu: str = "A100"
    """Whose peak is taken, of those that `training.utilisation.PEAKS` knows."""
    gpus: int = 8
    """How many work together."""
    utilisation: float = 0.3
    """Share of the peak that is assumed to be reached."""
    price: float = 2.0
    """Assumed, of a GPU for an hour, in whatever money."""
    models: tuple[str, ...] = tuple(RECIPES)
    """Which of these."""
    batch: int = 64
    """Pictures on a GPU at once, for the memory."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Count, compute, print a table in Markdown."""
        print(
            f"Computed, not timed: {self.gpus} {self.gpu}, {self.utilisation:.0%} of their peak of "
            f"{PEAKS[self.gpu] / 1e12:.0f} TFLOP/s assumed, {self.price:g} for a GPU and an hour assumed\n\n"
            "| model | GFLOP a picture | images/s | memory, "
            f"{self.batch} a GPU | " + " | ".join(f"{epochs} epochs" for epochs in EPOCHS) + " |\n"
            "|---|---|---|---|" + "---|" * len(EPOCHS)
        )
        rows = []
        for model in self.models:
            row = self.row(model)
            rows.append(row)
            runs = " | ".join(f"{run['hours']:,.0f} h, {run['cost']:,.0f}" for run in row["runs"])
            print(
                f"| {model} | {row['flops'] / 1e9:.0f} | {row['images_per_second']:,.0f} | "
                f"{row['memory'] / 2**30:.0f} GiB | {runs} |",
                flush=True,
            )
        if self.json:
            settings = {
                "gpu": self.gpu,
                "gpus": self.gpus,
                "utilisation": self.utilisation,
                "price": self.price,
            }
            files.write_json(self.json, {"name": "plan", **settings, "batch": self.batch, "rows": rows})

    def row(self, model: str) -> dict[str, Any]:
        """What a model needs; memory in bytes for one GPU."""
        recipe = recipe_of(model)
        flops = picture_flops(recipe)
        pace = self.gpus * PEAKS[self.gpu] * self.utilisation / flops
        fixed, picture = memory(recipe)
        runs = []
        for epochs in EPOCHS:
            hours = epochs * IMAGENET / pace / 3600
            runs.append({"epochs": epochs, "hours": hours, "cost": hours * self.gpus * self.price})
        total = fixed + self.batch * picture
        return {"model": model, "flops": flops, "images_per_second": pace, "memory": total, "runs": runs}


def recipe_of(model: str) -> Recipe:
    """The paper's setting."""
    return Recipe(RECIPES[model], DINOConfig(), CropConfig())


def memory(recipe: Recipe) -> tuple[float, float]:
    """Bytes of weights, gradients and moments, and bytes that each picture of a batch adds.

    A picture's are those that PyTorch keeps for the backward pass in bf16 on a CPU; what kernels borrow for a
    moment is not counted.
    """
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        alive.append(tensor)  # an address that is free again would be counted once for two
        return tensor

    alive: list[torch.Tensor] = []
    schedules: Any = recipe.method.schedules(recipe.epochs, 1)
    method = recipe.method.build(recipe.backbone, schedules, 0)
    crops = recipe.crops
    views = torch.zeros(crops.global_crops, PICTURES, 3, crops.global_size, crops.global_size)
    local = torch.zeros(crops.local_crops, PICTURES, 3, crops.local_size, crops.local_size)
    batch = Batch(Crops(views, local), None, Randomness(0, 0, 0, PICTURES, PICTURES))
    with autocast("bf16", CPU), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        method(batch, 0)
    weights = {p.untyped_storage().data_ptr() for p in method.parameters()}
    # Copies of the weights in bf16, and the head's gradients, are as large whatever the batch is.
    shapes = {p.numel() for p in method.parameters() if p.ndim > 1}
    sizes = {size * count for count in shapes for size in (2, 4)}
    picture = sum(n for place, n in kept.items() if place not in weights and n not in sizes) / PICTURES
    trained = sum(p.numel() for p in method.parameters() if p.requires_grad)
    total = sum(p.numel() for p in method.parameters())
    return 4.0 * total + 4 * 3 * trained + 2 * total, picture


if __name__ == "__main__":
    tyro.cli(Plan).run()
