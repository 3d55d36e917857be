"""One rank of a group that trains every method on the same pictures; `test_ranks.py` starts it.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT tell which one. Usage: ranks.py PICTURES FOLDER
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dino_model.backbones import BackboneConfig
from dino_model.head import HeadConfig
from dino_model.images import open_images
from training.checkpoint import Run
from training.crops import CropConfig
from training.distributed import joined, rank
from training.methods.byol import BYOLConfig
from training.methods.dino import DINOConfig
from training.methods.moco import MoCoConfig
from training.methods.supervised import SupervisedConfig
from training.methods.swav import SwAVConfig
from training.recipes import OptimizerConfig, Recipe
from training.session import Session

VIT = BackboneConfig("vit_tiny", 8, 16, width=12, depth=2, heads=2, drop_path=0.2)
HEAD = HeadConfig(16, hidden=8, layers=2, bottleneck=4)
NORMED = HeadConfig(8, hidden=8, layers=2, bottleneck=None, batch_norm=True, activation="relu")
RECIPE = Recipe(
    VIT,
    DINOConfig(HEAD, freeze_last_layer_epochs=0),
    CropConfig(global_size=16, local_size=8, local_crops=2),
    OptimizerConfig("sgd", lr=1.0, warmup_epochs=0),
    epochs=2,
    batch_size=16,
)
FREE = {"freeze_last_layer_epochs": 0}
METHODS = {
    "dino": RECIPE.method,
    "dino with a norm": DINOConfig(replace(HEAD, batch_norm=True), **FREE),
    "dino in parts": DINOConfig(HEAD, **FREE),
    "sinkhorn-knopp": DINOConfig(HEAD, teacher_output="sinkhorn-knopp", **FREE),
    "infonce": DINOConfig(HEAD, teacher_output="none", loss="infonce", **FREE),
    "infonce with a queue": DINOConfig(HEAD, teacher_output="none", loss="infonce", queue=64, **FREE),
    "spreading": DINOConfig(HEAD, spreading=0.3, **FREE),
    "byol": BYOLConfig(NORMED, predictor=8),
    "moco-v2": MoCoConfig(NORMED, queue=32),
    "swav": SwAVConfig(replace(HEAD, batch_norm=True), queue=32, queue_start_epoch=0, **FREE),
    "supervised": SupervisedConfig(),
}
"""All methods, and what of DINO looks at the whole batch."""


def train(pictures: str, folder: Path) -> dict[str, Any]:
    """Losses of every method, and a sum over its weights at the end."""
    found: dict[str, Any] = {}
    for name, method in METHODS.items():
        parts = 2 if name == "dino in parts" else 1
        session = Session(replace(RECIPE, method=method), open_images(pictures), accumulate=parts)
        losses: list[float] = []
        session.train(
            Run(folder / name), observe=lambda _, logs, __, kept=losses: kept.append(logs["loss"]) or {}
        )
        weights = sum(parameter.double().abs().sum().item() for parameter in session.method.parameters())
        found[name] = {"losses": losses, "weights": weights}
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    with joined(torch.device("cpu")):
        result = train(sys.argv[1], Path(sys.argv[2]))
        (Path(sys.argv[2]) / f"{rank()}.json").write_text(json.dumps(result))
