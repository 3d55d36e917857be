"""From pictures to batches of crops, in an order that depends on nothing but the seed and the step."""

import signal
from collections.abc import Iterator
from typing import NamedTuple

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Sampler

from dino_model.images import ImageError, Images
from training.crops import CropConfig, Crops, MultiCrop

MAX_BROKEN_RUN = 100
"""Unreadable pictures in a row after which the data set, not a picture, is broken."""


class Batch(NamedTuple):
    """Crops of a batch and the messages of pictures that could not be read (others took their place)."""

    crops: Crops
    broken: tuple[str, ...]


class Order(Sampler[list[tuple[int, int]]]):
    """Batches of (position in training, picture), shuffled anew each epoch, from any step on.

    The last, incomplete batch of an epoch is dropped. Step s is the same batch however training got there.
    """

    def __init__(self, pictures: int, batch_size: int, seed: int, first_step: int, steps: int) -> None:
        if pictures < batch_size:
            raise ValueError(
                f"{pictures} pictures are fewer than one batch of {batch_size}: lower --batch-size"
            )
        self.pictures, self.batch_size, self.seed = pictures, batch_size, seed
        self.first_step, self.steps = first_step, steps

    def __len__(self) -> int:
        return self.steps - self.first_step

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        per_epoch = self.pictures // self.batch_size
        for step in range(self.first_step, self.steps):
            epoch, batch = divmod(step, per_epoch)
            if batch == 0 or step == self.first_step:
                order = torch.randperm(self.pictures, generator=_generator(self.seed, epoch)).tolist()
            start = batch * self.batch_size
            positions = range(step * self.batch_size, (step + 1) * self.batch_size)
            yield list(zip(positions, order[start : start + self.batch_size], strict=True))


class CropDataset(Dataset[Batch | ImageError]):
    """Crops of one picture; the crops depend on the seed and the position in training only.

    An error is handed on as a value: raised in a worker, it would reach the user as a traceback.
    """

    def __init__(self, images: Images, config: CropConfig, seed: int) -> None:
        self.images, self.cut, self.seed = images, MultiCrop(config), seed

    def __getitem__(self, item: tuple[int, int]) -> Batch | ImageError:
        position, index = item
        try:
            picture, broken = self._read(index)
        except ImageError as error:
            return error
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(_mix(self.seed, position))  # the devices' generators stay
            return Batch(self.cut(picture), broken)

    def _read(self, index: int) -> tuple[Image.Image, tuple[str, ...]]:
        """The picture, or the next readable one, with what was wrong with those skipped."""
        broken: list[str] = []
        for i in range(index, index + min(MAX_BROKEN_RUN, len(self.images))):
            try:
                return Image.fromarray(self.images.read(i % len(self.images))), tuple(broken)
            except ImageError as error:
                broken.append(str(error))
        raise ImageError(f"{len(broken)} pictures in a row cannot be read; the first: {broken[0]}")


def batches(
    images: Images,
    config: CropConfig,
    *,
    batch_size: int,
    seed: int,
    first_step: int,
    steps: int,
    workers: int,
) -> Iterator[Batch]:
    """Batches of training steps `first_step` to `steps`, made by `workers` processes (0: by this one).

    Raises:
        ImageError: `MAX_BROKEN_RUN` pictures in a row, or all there are, cannot be read.
        ValueError: fewer pictures than a batch.
    """
    loader = DataLoader(
        CropDataset(images, config, seed),
        batch_sampler=Order(len(images), batch_size, seed, first_step, steps),
        num_workers=workers,
        collate_fn=_collate,
        generator=torch.Generator(),  # its own: the global one belongs to stochastic depth
        pin_memory=torch.cuda.is_available(),
        worker_init_fn=_leave_signals_to_the_main_process,
        prefetch_factor=4 if workers else None,
    )
    for batch in loader:
        if isinstance(batch, ImageError):
            raise batch
        yield batch


def _collate(samples: list[Batch | ImageError]) -> Batch | ImageError:
    """Samples, whose crops have no batch axis, as a batch; or the first error among them."""
    cut: list[Batch] = []
    for sample in samples:
        if isinstance(sample, ImageError):
            return sample
        cut.append(sample)
    crops = Crops(
        torch.stack([sample.crops.views for sample in cut], dim=1),
        torch.stack([sample.crops.locals for sample in cut], dim=1),
    )
    return Batch(crops, tuple(message for sample in cut for message in sample.broken))


def _leave_signals_to_the_main_process(_worker: int) -> None:
    """Ctrl-C reaches every process of the terminal; only the main one may decide when to stop."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _mix(seed: int, position: int) -> int:
    """One seed from two numbers; consecutive positions give unrelated streams (SplitMix64's finaliser)."""
    z = (seed * 0x9E3779B97F4A7C15 + position + 1) * 0x9E3779B97F4A7C15 & (2**64 - 1)
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & (2**64 - 1)
    return (z ^ (z >> 31)) >> 1


def _generator(seed: int, epoch: int) -> torch.Generator:
    return torch.Generator().manual_seed(_mix(seed, -epoch - 2))
