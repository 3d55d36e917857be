"""Two processes of one thread each (gloo) against one process of one thread: pictures a second.

python -m benchmarks.scaling [--json FILE]
"""

import os
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from dino_model import files
from dino_model.backbones import BackboneConfig, choose_training_attention
from dino_model.device import autocast
from dino_model.head import HeadConfig
from training.crop_config import CropConfig
from training.crops import Crops
from training.distributed import DataParallelLoss, joined, rank, world
from training.methods.dino_config import DINOConfig
from training.methods.method import Batch, Method
from training.optim import create_optimizer
from training.plan import Plan
from training.randomness import Randomness
from training.recipe import OptimizerConfig, Recipe
from training.train import train_step

CPU = torch.device("cpu")
RECIPE = Recipe(
    backbone=BackboneConfig("vit_tiny", patch_size=16),
    crops=CropConfig(local_crops=2),
    method=DINOConfig(HeadConfig(prototypes=4096), freeze_last_layer_epochs=0),
    optimizer=OptimizerConfig(warmup_epochs=0),
    epochs=1,
    batch_size=8,
)


@dataclass(frozen=True)
class Scaling:
    """Whole steps, with the same global batch: losses, gradients over both processes, updates."""

    steps: int = 6
    """Timed, after two others."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Measure one process, then two; print."""
        torch.set_num_threads(1)
        alone, together = (pictures_per_second(world, self.steps) for world in (1, 2))
        trained = sum(p.numel() for p in build()[0].parameters() if p.requires_grad)
        print(
            f"scaling: 2 processes {together:.2f} pictures/s, one {alone:.2f}: {together / alone:.2f} times"
        )
        print(
            f"  ViT-Ti/16, 2 × 224 + 2 × 96, global batch {RECIPE.batch_size}, fp32, one thread each; "
            f"{4 * trained / 1e6:.0f} MB of gradients a step; load average {os.getloadavg()[0]:.1f}"
        )
        if self.json:
            found = {"name": "scaling", "ratio": together / alone, "ours": together, "reference": alone}
            files.write_json(self.json, found | {"unit": "pictures/s", "gradient_bytes": 4 * trained})


def pictures_per_second(processes: int, steps: int) -> float:
    """Of so many processes together."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "seconds"
        pids = []
        for number in range(processes):
            own = {"RANK": number, "WORLD_SIZE": processes, "MASTER_PORT": port, "MASTER_ADDR": "127.0.0.1"}
            os.environ.update({name: str(value) for name, value in own.items()})
            pid = os.fork()
            if not pid:
                os._exit(be_a_rank(file, steps))
            pids.append(pid)
        if any(os.waitpid(pid, 0)[1] for pid in pids):
            sys.exit("a process failed")
        return steps * RECIPE.batch_size / float(file.read_text())


def build() -> tuple[Method, Plan]:
    """The method, and the values of its steps."""
    plan = Plan.of(RECIPE, 1000 * RECIPE.batch_size)
    torch.manual_seed(0)
    return RECIPE.method.build(RECIPE.backbone, plan.method, 0), plan


def be_a_rank(file: Path, steps: int) -> int:
    """Train on noise; the first writes the seconds."""
    with joined(CPU):
        method, plan = build()
        choose_training_attention(method, CPU, "fp32")
        optimizer, parallel = (
            create_optimizer("adamw", method.parameter_groups(), CPU),
            DataParallelLoss(method),
        )
        own = RECIPE.batch_size // world()
        crops = Crops(torch.randn(2, own, 3, 224, 224), torch.randn(2, own, 3, 96, 96))
        for step in range(steps + 2):
            if step == 2:
                begun = time.perf_counter()
            batch = Batch(crops, None, Randomness(0, step, rank() * own, own, RECIPE.batch_size))
            train_step(method, optimizer, batch, step, plan, autocast("fp32", CPU), parallel=parallel)
        if rank() == 0:
            file.write_text(str(time.perf_counter() - begun))
    return 0


if __name__ == "__main__":
    tyro.cli(Scaling).run()
