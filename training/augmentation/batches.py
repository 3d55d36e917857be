"""Batches of crops from images, in an order that depends on the seed and the step only."""

import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dino_model.data.collection import Images, ShardError
from dino_model.data.images import ImageError
from dino_model.runtime.errors import SettingError, pluralize
from dino_model.runtime.outputs import STOP_SIGNALS
from training.augmentation.crop_config import CropConfig
from training.augmentation.crops import AugmentPlan, Crops, MultiCrop
from training.augmentation.randomness import Randomness, mix
from training.distributed import rank, world

Content = TypeVar("Content")

MAX_READY_BYTES = 2**28
"""Bytes of crops that all workers together prepare in advance."""
SHARED_MEMORY = Path("/dev/shm")
"""Linux has it; a container's is 64 MB by default."""
MAX_BROKEN_RUN = 100
"""Number of consecutive unreadable images that ends a run."""


class Sample(NamedTuple):
    """Output of a worker for one image."""

    crops: Crops
    """uint8 crops, or the resized image; see `MultiCrop`."""
    label: int
    """Class, -1: none."""
    broken: tuple[str, ...]
    """Messages of unreadable images that this one replaces."""
    params: Crops
    """Random numbers that `MultiCrop.plan` uses."""
    image_index: int
    """Number of the image in the collection."""


class LoadedBatch(NamedTuple):
    """A batch from the workers; `finish` makes crops of it on the device."""

    crops: Crops
    """uint8, finished or as `MultiCrop` returns them."""
    labels: Tensor | None
    """int64 [batch]; None for images without labels."""
    broken: tuple[str, ...]
    """Messages of unreadable images that others replaced."""
    indices: Tensor
    """Number of each image in the collection, int64 [batch]."""
    plan: AugmentPlan | None = None
    """Remaining augmentation; None: it is finished."""
    randomness: Randomness | None = None
    multi_crop: MultiCrop | None = None
    """The augmentation; workers leave it and the randomness of the step out."""

    def finish(self, device: torch.device) -> Crops:
        """Copy the crops to the device and finish their augmentation there: uint8."""
        crops = Crops(*(group.to(device, non_blocking=True) for group in self.crops))
        if self.plan is None or self.multi_crop is None:
            return crops
        return self.multi_crop.finish(crops, self.plan)


def batch_order(
    num_images: int, batch_size: int, seed: int, first_step: int, steps: int, part: slice = slice(None)
) -> Iterator[list[tuple[int, int]]]:
    """Yield batches of (position in training, image), shuffled anew each epoch, from any step on.

    The last, incomplete batch of an epoch is dropped. Step s has the same batch in every run. `part` is this
    rank's part of every batch.
    """
    per_epoch = num_images // batch_size
    for step in range(first_step, steps):
        epoch, batch = divmod(step, per_epoch)
        if batch == 0 or step == first_step:
            generator = torch.Generator().manual_seed(mix(seed, -epoch - 2))
            order = torch.randperm(num_images, generator=generator)
        positions = range(step * batch_size, (step + 1) * batch_size)
        images = order[batch * batch_size : (batch + 1) * batch_size].tolist()
        yield list(zip(positions, images, strict=True))[part]


class CropDataset(Dataset[Sample | ImageError]):
    """Crops of one image; they depend on the seed and the position in training only.

    An error is returned as a value: raised in a worker, it would reach the user as a traceback.
    """

    def __init__(self, images: Images, config: CropConfig, seed: int, *, finish: bool = True) -> None:
        """Store the settings. If `finish` is true, the workers finish the augmentation, else the device."""
        channels = len(images.channel_range) if images.channel_range else None
        self.images, self.cut, self.seed, self.finish = images, MultiCrop(config, channels), seed, finish

    def __getitem__(self, item: tuple[int, int]) -> Sample | ImageError:
        position, index = item
        try:
            image, index, broken = read_or_next(self.images, index, self._decode_image)
        except ImageError as error:
            return error
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(mix(self.seed, position))  # the devices' generators stay
            label = -1 if self.images.labels is None else self.images.labels[index]
            return Sample(self.cut(image), label, broken, self.cut.random_params(image), index)

    def collate(self, samples: list[Sample | ImageError]) -> LoadedBatch | ImageError:
        """Stack samples to a batch, finished here unless the device does it; or return the first error."""
        if errors := [sample for sample in samples if isinstance(sample, ImageError)]:
            return errors[0]
        good = [sample for sample in samples if isinstance(sample, Sample)]
        crops = _stack_crops([sample.crops for sample in good])
        plan = self.cut.plan(_stack_crops([sample.params for sample in good]))
        labels = torch.tensor([sample.label for sample in good])
        broken = tuple(message for sample in good for message in sample.broken)
        known = None if (labels < 0).any() else labels
        indices = torch.tensor([sample.image_index for sample in good])
        if self.finish:
            return LoadedBatch(self.cut.finish(crops, plan), known, broken, indices)
        return LoadedBatch(crops, known, broken, indices, plan)

    def _decode_image(self, place: int) -> Image.Image | Tensor:
        pixels = self.images.read(place, self.cut.config.decoded_side)
        if self.cut.tensors or self.images.channel_range:
            return torch.from_numpy(pixels).permute(2, 0, 1)
        return Image.fromarray(pixels)


def read_or_next(
    images: Images, number: int, read: Callable[[int], Content]
) -> tuple[Content, int, tuple[str, ...]]:
    """Read an image by its number, or the next readable one.

    Returns:
        What `read` returns, the number of that image, and messages about those before it.

    Raises:
        ImageError: `MAX_BROKEN_RUN` images in a row, all there are, or a whole tar, cannot be read.
    """
    broken: list[str] = []
    for i in range(number, number + min(MAX_BROKEN_RUN, len(images))):
        place = i % len(images)
        try:
            return read(place), place, tuple(broken)
        except ShardError:
            raise  # no other image replaces a whole tar
        except ImageError as error:
            broken.append(str(error))
    raise ImageError(f"{len(broken)} images in a row cannot be read; the first: {broken[0]}")


def load_batches(
    images: Images,
    config: CropConfig,
    *,
    batch_size: int,
    seed: int,
    first_step: int,
    steps: int,
    workers: int,
    pin_memory: bool,
    finish: bool = True,
) -> Iterator[LoadedBatch]:
    """This rank's part of the batches of steps `first_step` to `steps`, made by `workers` processes.

    Without workers this process makes them. `pin_memory` lets a CUDA device copy them while it computes.
    Without `finish` the device finishes the augmentation.

    Raises:
        ImageError: As `read_or_next`.
    """
    dataset = CropDataset(images, config, seed, finish=finish)
    own = batch_size // world()
    first = rank() * own
    part = slice(first, first + own)
    loader = DataLoader(
        dataset,
        batch_sampler=batch_order(len(images), batch_size, seed, first_step, steps, part),
        num_workers=workers,
        collate_fn=dataset.collate,
        generator=torch.Generator(),  # the global one is the caller's
        pin_memory=pin_memory,
        worker_init_fn=_ignore_signals,
        prefetch_factor=batches_ahead(config, own, workers, dataset.cut.channels) if workers else None,
    )
    for step, batch in enumerate(loader, first_step):
        if isinstance(batch, ImageError):
            raise batch
        randomness = Randomness(seed, step, first, own)
        yield batch._replace(randomness=randomness, multi_crop=dataset.cut)


def batches_ahead(config: CropConfig, batch_size: int, workers: int, channels: int | None = None) -> int:
    """Number of batches, 1 to 8, that each worker prepares, within `MAX_READY_BYTES` for all of them.

    Raises:
        SettingError: The batches do not fit the shared memory, in which workers on Linux hand them over.
    """
    sides = [view.size for view in config.views] + [config.local_size] * config.local_crops
    if config.augment == "device":
        sides = [config.canvas_size]
    of_all = workers * batch_size * sum((channels or 3) * side * side for side in sides)
    ahead = max(1, min(8, MAX_READY_BYTES // of_all))
    free = shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.exists() else None
    if free is not None and free < ahead * of_all:
        raise SettingError(
            f"{SHARED_MEMORY} has {free / 1e6:,.0f} MB free, and {pluralize(workers, 'worker')} need"
            f" {ahead * of_all / 1e6:,.0f} MB: start the container with --shm-size, or pass fewer --workers"
        )
    return ahead


def _stack_crops(of_images: Sequence[Crops]) -> Crops:
    """Stack the crops of images to those of a batch, along the second axis."""
    return Crops(*(torch.stack(group, dim=1) for group in zip(*of_images, strict=True)))


def _ignore_signals(_worker: int) -> None:
    """Ctrl-C reaches every process of the terminal; only the main one decides when to stop."""
    for number in (signal.SIGINT, *STOP_SIGNALS):
        signal.signal(number, signal.SIG_IGN)
