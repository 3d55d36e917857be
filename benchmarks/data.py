"""Loading and augmentation for DINO (2 × 224 + 10 × 96 of 500 × 375 JPEGs): images per second of every stage.

python -m benchmarks.data [--device cuda] [--json FILE]
"""

import tempfile
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import tyro
from PIL import Image

from benchmarks.measure import Computation, measure, median_seconds, report
from dino_model import photographs
from dino_model.collections import open_images
from dino_model.files import write_json
from training.crop_config import CropConfig
from training.crops import Crops
from training.data import CropDataset, decode

Augment = Literal["workers", "batch", "device"]
SIZE, IMAGES = (500, 375), 12
FOLDER = Path(tempfile.gettempdir()) / "dino-benchmark-images"
CROPS = CropConfig(local_crops=10)
GOAL, CORES = 3000, 16
"""Images per second that an H100 is to be fed with, and cores of its machine."""


@dataclass(frozen=True)
class Data:
    """Measure every stage on one core, and the stages of the device on `--device`."""

    repeats: int = 3
    """Timed turns of each side."""
    device: str = "cpu"
    """Device of the batched stages: cpu (one thread) or cuda."""
    json: Path | None = None
    """Write the results to this file."""

    def run(self) -> None:
        """Write the JPEGs, measure, print."""
        torch.set_num_threads(1)
        draw()
        ours, official = partial(build, "device"), partial(build, "workers", finish=True)
        result = measure("data", ours, official, repeats=self.repeats, remarks=())
        report(result)
        stages = worker_stages() | device_stages(torch.device(self.device))
        rates: dict[str, float] = {}
        for name, stage in stages.items():
            seconds, _ = median_seconds(stage, stage, self.repeats)
            rates[name] = IMAGES / seconds
            print(f"  {name:48s} {rates[name]:8,.0f} images/s")
        for augment in ("device, nvJPEG", "device", "batch", "workers"):
            rate = rates[f"worker, augment {augment}"]
            print(
                f"  augment {augment}: {rate * CORES:,.0f} images/s on {CORES} cores if they scale, "
                f"{GOAL / rate:.0f} cores for {GOAL:,} images/s"
            )
        if self.json:
            content = asdict(result) | {"ratio": result.ratio, "images_per_second": rates}
            write_json(self.json, content | {"device": self.device})


def worker_stages() -> dict[str, Computation]:
    """Name what a worker does for `IMAGES` images."""
    images = open_images(FOLDER)
    files = [(images.read_bytes(i), images.names[i]) for i in range(IMAGES)]
    return {
        "worker, read the file": lambda: [images.read_bytes(i) for i in range(IMAGES)],
        "worker, decode": lambda: [decode(*file) for file in files],
        "worker, augment device, nvJPEG": build("device", decode="device"),
        "worker, augment device": build("device"),
        "worker, augment batch": build("batch"),
        "worker, augment workers": build("workers", finish=True),
    }


def device_stages(device: torch.device) -> dict[str, Computation]:
    """Name what the device does for a batch of `IMAGES` images."""

    def finish(augment: Augment) -> Computation:
        dataset = dataset_of(augment)
        collated = dataset.collate([dataset[i, i] for i in range(IMAGES)])
        assert isinstance(collated, tuple)
        params = collated.params
        assert params is not None
        on_device = Crops(*(group.to(device) for group in collated.crops))

        def compute() -> object:
            finished = dataset.cut.finish(on_device, params)
            if device.type == "cuda":
                torch.cuda.synchronize()
            return finished

        return compute

    return {
        f"{device.type}, flips and photometry": finish("batch"),
        f"{device.type}, crops, flips and photometry": finish("device"),
    }


def draw() -> None:
    """Write the package's photographs as JPEGs of an ordinary size."""
    FOLDER.mkdir(exist_ok=True)
    for name in photographs.names()[:IMAGES]:
        Image.fromarray(photographs.picture(name)).resize(SIZE).save(FOLDER / f"{name}.jpg", quality=90)


def build(augment: Augment, **options: Any) -> Computation:
    """Build the computation of one batch in a worker."""
    torch.set_num_threads(1)
    dataset = dataset_of(augment, **options)
    return lambda: dataset.collate([dataset[i, i] for i in range(IMAGES)])


def dataset_of(
    augment: Augment, *, finish: bool = False, decode: Literal["workers", "device"] = "workers"
) -> CropDataset:
    """Return the data set that the workers read."""
    config = CropConfig(local_crops=CROPS.local_crops, augment=augment, decode=decode)
    return CropDataset(open_images(FOLDER), config, seed=0, finish=finish)


if __name__ == "__main__":
    tyro.cli(Data).run()
