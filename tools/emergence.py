"""Compute the attention maps and features of lesson 6 from checkpoints of the shipped run.

python -m tools.emergence step-19370.safetensors step-28629.safetensors ...

The file is notebooks/emergence.npz. Steps 0 to 11,000 are milestones of a second run of phase 1
(docs/embedded-model.md). The history of dino_model/embedded/model.safetensors holds the checkpoints after
19,370, 28,629, 30,559, 41,326 and 49,696 steps; that of docs/embedded-run/checkpoint.pt holds the teacher
after 32,491 steps.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from numpy.typing import NDArray

from dino_model import photographs
from dino_model.data.textures import CLASSES, texture
from dino_model.inference.predictor import AttentionPredictor
from dino_model.models.load import load_model
from dino_model.runtime import files
from dino_model.runtime.outputs import run_command

GRID = 28
"""Rows and columns of patches at the default size of 224 pixels."""
PER_CLASS = 10
"""Training and test textures of each class."""


@dataclass(frozen=True)
class Emergence:
    """Write attention maps and texture features of several checkpoints of one run."""

    checkpoints: tyro.conf.Positional[tuple[Path, ...]]
    """Files named step-NUMBER with any ending."""
    output: Path = Path("notebooks/emergence.npz")
    """File to write."""

    def run(self) -> None:
        """Compute and write the arrays."""
        models = {int(re.sub(r"\D", "", path.stem)): str(path) for path in self.checkpoints}
        models = dict(sorted(models.items()))
        arrays: dict[str, Any] = {
            "steps": np.array(list(models)),
            "masks": np.stack([on_patches(photographs.mask(name)) for name in photographs.names()]),
            "maps": np.stack([mean_maps(model) for model in models.values()]),
            "train": np.stack([texture_features(model, seed=0) for model in models.values()]),
            "test": np.stack([texture_features(model, seed=1) for model in models.values()]),
        }
        with files.replace_file(self.output) as path, path.open("wb") as file:
            np.savez_compressed(file, **arrays)
        print(f"{self.output}: {len(models)} checkpoints, {self.output.stat().st_size / 1e6:.2f} MB")


def on_patches(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the values of a mask [height, width] at the centers of 28 × 28 patches."""
    rows, columns = ((2 * np.arange(GRID) + 1) * side // (2 * GRID) for side in mask.shape)
    return mask[np.ix_(rows, columns)]


def mean_maps(model: str) -> NDArray[np.float16]:
    """Compute the [CLS] attention of the last block, mean over heads, sum 1: [images, 28, 28]."""
    predictor = AttentionPredictor(model, size=8 * GRID, resize="squash", precision="fp32", device="cpu")
    maps = []
    for name in photographs.names():
        predictor.set_image(photographs.image(name))
        attention = predictor.cls_attention().mean(axis=0)
        maps.append(attention / attention.sum())
    return np.stack(maps).astype(np.float16)


@torch.no_grad()
def texture_features(weights: str, seed: int) -> NDArray[np.int8]:
    """Compute the [CLS] features of textures, each scaled to a maximum of 127: [images, width]."""
    model = load_model(weights)
    images = [
        texture(name, np.random.default_rng([seed, label, number]))
        for label, name in enumerate(CLASSES)
        for number in range(PER_CLASS)
    ]
    pixels = torch.from_numpy(np.stack(images))[:, None].expand(-1, 3, -1, -1) / 255
    mean, std = (torch.tensor(values)[:, None, None] for values in (model.mean, model.std))
    features = model.backbone((pixels - mean) / std)
    return (127 * features / features.abs().amax(dim=1, keepdim=True)).round().to(torch.int8).numpy()


if __name__ == "__main__":
    sys.exit(run_command(tyro.cli(Emergence, prog="python -m tools.emergence").run))
