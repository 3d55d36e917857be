"""Loading and augmentation for DINO (2 × 224 + 10 × 96 of 500 × 375 JPEGs): images per second of every stage.

python -m benchmarks.data [--device cuda] [--json FILE]
"""

import io
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from PIL import Image
from torchvision.io import ImageReadMode, decode_image

from benchmarks.measure import Benchmark, Computation, median_seconds
from dino_model import photographs
from dino_model.data.collection import Images, open_images
from dino_model.data.images import read
from training.augmentation.batches import CropDataset, LoadedBatch
from training.augmentation.crop_config import CropConfig
from training.augmentation.crops import Crops, MultiCrop
from training.recipes.recipe import Recipe

SIZE, IMAGES = (500, 375), 12
FOLDER = Path(tempfile.gettempdir()) / "dino-benchmark-images"
LOCAL_CROPS = 10
DECODED = 200
"""Decoded images of each kind."""
GOAL = 3000
"""Images per second that an H100 is to be fed with, by the 16 cores of its machine."""


@dataclass(frozen=True, kw_only=True)
class Data(Benchmark):
    """Augmentation on the device against the official one, and every stage; workers have one core."""

    device: str = "cpu"
    """Device of the batched stages: cpu (one thread) or cuda."""

    def peers(self) -> dict[str, tuple[Computation, Computation]]:
        """The work of a worker if the device augments, and the official augmentation, image by image."""
        return {"official augmentation": (worker(augment="device"), worker(augment="workers", finish=True))}

    def compare(self) -> tuple[str, ...]:
        """Measure every stage."""
        drawn = images(IMAGES)
        stages: dict[str, Computation] = {
            "worker, read the file": lambda: [drawn.read_bytes(index) for index in range(IMAGES)],
            "worker, read and decode": lambda: [drawn.read(index) for index in range(IMAGES)],
            "worker, augment device": worker(augment="device"),
            "worker, augment batch": worker(augment="batch"),
            "worker, augment workers": worker(augment="workers", finish=True),
            f"{self.device}, flips and photometry": finish(self.device, augment="batch"),
            f"{self.device}, crops, flips and photometry": finish(self.device, augment="device"),
        }
        seconds = median_seconds(*stages.values(), repeats=self.repeats)
        rates = [(stage, IMAGES / time) for stage, time in zip(stages, seconds, strict=True)]
        return (
            *(
                f"{stage:48s} {rate:8,.0f} images/s, {GOAL / rate:.1f} cores or devices for {GOAL:,}"
                for stage, rate in rates
            ),
            decoding([drawn.read_bytes(index) for index in range(IMAGES)]),
            decoding([large_jpeg()]),
            decoding([large_jpeg()], at_least=CropConfig().canvas_size),
        )


def decoding(files: list[bytes], at_least: int = 0) -> str:
    """Compare `read` with Pillow and torchvision on the same bytes: medians of an image."""

    def pillow(file: bytes) -> NDArray[np.uint8]:
        with Image.open(io.BytesIO(file)) as image:
            return np.array(image)

    def torchvision(file: bytes) -> torch.Tensor:
        return decode_image(torch.frombuffer(bytearray(file), dtype=torch.uint8), ImageReadMode.RGB)

    def in_turn(decode: Callable[[bytes], object]) -> Computation:
        turns = cycle(files)
        return lambda: decode(next(turns))

    ways: tuple[Callable[[bytes], object], ...] = partial(read, at_least=at_least), pillow, torchvision
    own, plain, peer = (1000 * time for time in median_seconds(*map(in_turn, ways), repeats=DECODED))
    height, width, _ = read(files[0]).shape
    return (
        f"decoding {width} × {height}, at least {at_least or height}: read {own:.2f} ms, Pillow's array "
        f"{plain:.2f} ms, torchvision {peer:.2f} ms; read takes {own / peer:.2f} times torchvision's time"
    )


def large_jpeg() -> bytes:
    """Encode an image of the package as a JPEG of 12 megapixels."""
    file = io.BytesIO()
    Image.fromarray(photographs.image(photographs.names()[0])).resize((4000, 3000)).save(
        file, "JPEG", quality=90
    )
    return file.getvalue()


def worker(*, finish: bool = False, **options: Any) -> Computation:
    """Build what a worker does for a batch of `IMAGES` images."""
    torch.set_num_threads(1)
    config = CropConfig(local_crops=LOCAL_CROPS, **options)
    dataset = CropDataset(images(IMAGES), config, seed=0, finish=finish)
    return lambda: dataset.collate([dataset[index, index] for index in range(IMAGES)])


def finish(device: str, **options: Any) -> Computation:
    """Build what a device does for a batch of `IMAGES` images."""
    batch = worker(**options)()
    assert isinstance(batch, LoadedBatch)
    batch = batch._replace(multi_crop=MultiCrop(CropConfig(local_crops=LOCAL_CROPS, **options)))

    def compute() -> object:
        crops = batch.finish(torch.device(device))
        if device != "cpu":
            torch.cuda.synchronize()
        return crops

    return compute


def random_crops(recipe: Recipe, device: str | torch.device = "cpu") -> Crops:
    """Draw crops as the loop passes them to the method: normalized, fp32."""
    generator, crops = torch.Generator().manual_seed(0), recipe.crops
    sizes = (crops.global_crops, crops.global_size), (crops.local_crops, crops.local_size)
    shapes = ((number, recipe.batch_size, 3, side, side) for number, side in sizes)
    return Crops(*(torch.randn(shape, generator=generator).to(device) for shape in shapes))


def images(count: int) -> Images:
    """Write the package's images as JPEGs of a common size; return as many images, which repeat."""
    FOLDER.mkdir(exist_ok=True)
    for name in photographs.names()[:IMAGES]:
        Image.fromarray(photographs.image(name)).resize(SIZE).save(FOLDER / f"{name}.jpg", quality=90)
    drawn = open_images(FOLDER)
    return drawn.subset(number % len(drawn) for number in range(count))


if __name__ == "__main__":
    tyro.cli(Data).run()
