"""Crops for DINO (2 × 224 + 8 × 96 of 500 × 375 JPEGs) on one core: for the device, against all by Pillow.

python -m benchmarks.data [--json FILE]
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
import tyro
from PIL import Image

from benchmarks.measure import Computation, measure, report
from dino_model import photographs
from dino_model.images import open_images
from training.crop_config import CropConfig
from training.data import CropDataset

SIZE, PICTURES = (500, 375), 12
FOLDER = Path(tempfile.gettempdir()) / "dino-benchmark-pictures"


@dataclass(frozen=True)
class Data:
    """What a worker does for a batch: decode, cut, resize; with Pillow also flip, colour, blur, solarise."""

    repeats: int = 3
    """Timed turns of each side."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Draw the pictures, measure, print."""
        torch.set_num_threads(1)
        draw()
        result = measure("data", build_ours, build_reference, repeats=self.repeats, remarks=())
        rates = tuple(f"{PICTURES / seconds:.0f}" for seconds in (result.ours, result.reference))
        remarks = (
            f"{PICTURES} photographs as JPEGs of {SIZE[0]} × {SIZE[1]}, one thread; "
            f"ours {rates[0]} pictures/s, Pillow's {rates[1]}; flips, colour and blur are left to the device",
        )
        report(replace(result, remarks=remarks), self.json)


def draw() -> None:
    """The package's photographs as JPEGs of an ordinary size."""
    FOLDER.mkdir(exist_ok=True)
    for name in photographs.names()[:PICTURES]:
        Image.fromarray(photographs.picture(name)).resize(SIZE).save(FOLDER / f"{name}.jpg", quality=90)


def build_ours() -> Computation:
    """Two uint8 tensors and a few numbers for each batch."""
    return build("device", finish=False)


def build_reference() -> Computation:
    """Everything crop by crop by Pillow."""
    return build("workers", finish=True)


def build(augment: Literal["workers", "device"], *, finish: bool) -> Computation:
    """One batch after the other."""
    torch.set_num_threads(1)
    dataset = CropDataset(open_images(FOLDER), CropConfig(augment=augment), seed=0, finish=finish)
    return lambda: dataset.collate([dataset[i, i] for i in range(PICTURES)])


if __name__ == "__main__":
    tyro.cli(Data).run()
