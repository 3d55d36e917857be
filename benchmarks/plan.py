"""Images/s of a GPU, computed from a training step that is counted on the fake CUDA device.

python -m benchmarks.plan [--models ViT-S/16] [--json FILE]

The device computes products and other operations one after the other, while the host calls the next ones.
A step therefore takes the longer of both. Nothing of this is measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import tyro

from benchmarks import fake_cuda
from dino_model.models.configs import BackboneConfig
from dino_model.runtime.files import write_json
from dino_model.runtime.precision import ComputePrecision
from training.augmentation.crop_config import CropConfig
from training.methods.dino_ablations_config import AblationsConfig
from training.methods.dino_config import DINOConfig
from training.recipes.recipe import Recipe

if TYPE_CHECKING:
    from benchmarks.fake_cuda.steps import StepCost

PEAKS = {"V100": 125e12, "A100": 312e12, "H100": 989e12, "H200": 989e12, "RTX 4070": 58e12}
"""Operations a second on dense 16-bit matrices with fp32 sums, from NVIDIA's data sheets; V100: fp16."""
BANDWIDTHS = {"V100": 0.9e12, "A100": 2.0e12, "H100": 3.35e12, "H200": 4.8e12, "RTX 4070": 0.504e12}
"""Bytes a second of the memory, from NVIDIA's data sheets: V100 SXM2, A100 80 GB SXM, H100 SXM,
H200 SXM, and a consumer card with 12 GiB."""
IMAGES = 64
"""Images of a step on each GPU."""
MODELS = {
    "ViT-Ti/16": BackboneConfig("vit_tiny", 16, drop_path=0.1),
    "ViT-S/16": BackboneConfig("vit_small", 16, drop_path=0.1),
    "ViT-S/8": BackboneConfig("vit_small", 8, drop_path=0.1),
    "ViT-B/16": BackboneConfig("vit_base", 16, drop_path=0.1),
    "ViT-B/8": BackboneConfig("vit_base", 8, drop_path=0.1),
    "ResNet-50": BackboneConfig("resnet50"),
}


class StepTime(NamedTuple):
    """Seconds of a step."""

    products: float
    traffic: float
    host: float

    @property
    def total(self) -> float:
        """The device's work, or the host's if that takes longer."""
        return max(self.products + self.traffic, self.host)


@dataclass(frozen=True)
class Plan:
    """DINO with 2 × 224 + 8 × 96, K = 65,536. Computed, not measured."""

    peak_share: float = 0.55
    """Assumed share of the peak in products."""
    bandwidth_share: float = 0.85
    """Assumed share of the memory's bandwidth in other operations."""
    host_time: float = 8.0
    """Assumed time of the host in µs for a dispatcher operation."""
    models: tuple[str, ...] = tuple(MODELS)
    """Networks, of `benchmarks.plan.MODELS`."""
    batch: int = IMAGES
    """Images of a step on each GPU."""
    precision: ComputePrecision = "bf16"
    """Precision of the step. fp32: the step is counted, and no time is computed."""
    checkpoint_activations: bool = False
    """Compute blocks again in the backward pass."""
    patch_loss: bool = False
    """Add iBOT's loss of masked patches."""
    json: Path | None = None
    """Write the results to this file."""

    def run(self) -> None:
        """Count and compute, and print tables in Markdown."""
        if reason := fake_cuda.missing():
            print(f"plan: skipped, {reason}")
            return
        from benchmarks.fake_cuda.steps import count_step  # imports PyTorch

        method = AblationsConfig(patch_loss="ibot") if self.patch_loss else DINOConfig()
        costs = dict[str, "StepCost"]()
        print("| network | operations, counted | GiB | outside of products | peak GiB |")
        print("|---" * 5 + "|")
        with fake_cuda.process() as process:
            for model in self.models:
                recipe = Recipe(MODELS[model], method, CropConfig(), epochs=100, batch_size=self.batch)
                options = {"checkpoint_activations": self.checkpoint_activations}
                costs[model] = cost = process.submit(count_step, recipe, self.precision, **options).result()
                sizes = (cost.all_traffic, cost.traffic, cost.memory)
                parts = " | ".join(f"{size / 2**30:.1f}" for size in sizes)
                print(f"| {model} | {cost.operations:,} | {parts} |", flush=True)
        rows = self.print_times(costs) if self.precision != "fp32" else []
        if self.json:
            write_json(self.json, {"name": "plan", "images": self.batch, "rows": rows})

    def print_times(self, costs: Mapping[str, "StepCost"]) -> list[dict[str, Any]]:
        """Compute and print the times of a step on every GPU; return the rows."""
        rows = []
        print("\nComputed, not measured. Parts of a step in ms.\n")
        print("| network | GPU | products | other traffic | host | images/s |", "|---" * 6 + "|", sep="\n")
        for model, cost in costs.items():
            for gpu in BANDWIDTHS:
                time = self.step_time(cost, gpu)
                rate = self.batch / time.total
                parts = " | ".join(f"{1000 * part:.1f}" for part in time)
                print(f"| {model} | {gpu} | {parts} | {rate:,.0f} |")
                rows.append({"model": model, "gpu": gpu, "images_per_second": rate, **cost._asdict()})
        return rows

    def step_time(self, cost: "StepCost", gpu: str) -> StepTime:
        """Seconds of the parts of a step on a GPU."""
        return StepTime(
            cost.flops / (self.peak_share * PEAKS[gpu]),
            cost.traffic / (self.bandwidth_share * BANDWIDTHS[gpu]),
            cost.operations * self.host_time / 1e6,
        )


if __name__ == "__main__":
    tyro.cli(Plan).run()
