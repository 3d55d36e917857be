import os
import tarfile
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from dino_model.data.collection import open_images
from dino_model.data.images import ImageError
from dino_model.runtime.errors import SettingError
from training.augmentation.batches import (
    CropDataset,
    batch_order,
    batches_ahead,
    load_batches,
    read_or_next,
)
from training.augmentation.crop_config import CropConfig

CROPS = CropConfig(global_size=32, local_size=16, local_crops=2)
CPU = torch.device("cpu")


def load(images, crops=CROPS, **options):
    defaults = {"batch_size": 3, "seed": 5, "first_step": 0, "steps": 1, "workers": 0, "pin_memory": False}
    return list(load_batches(images, crops, **defaults | options))


@pytest.mark.parametrize("first_step", [0, 1, 3, 5])
def test_batch_order_from_any_step_shows_each_image_once_per_epoch(first_step):
    order = list(batch_order(num_images=10, batch_size=3, seed=7, first_step=0, steps=6))
    first, second = ([index for batch in epoch for _, index in batch] for epoch in (order[:3], order[3:]))
    assert len(set(first)) == len(set(second)) == 9
    assert first != second
    assert [position for batch in order for position, _ in batch] == list(range(18))
    assert list(batch_order(10, 3, 7, first_step, 6)) == order[first_step:]


def test_crops_depend_on_seed_and_step_only(images):
    collection = open_images(images)
    whole, rest = load(collection, steps=4), load(collection, first_step=2, steps=4, workers=2)
    assert len(whole) == 4
    for ours, expected in zip(rest, whole[2:], strict=True):
        assert all(map(torch.equal, ours.crops, expected.crops))


def test_batches_of_a_tar_changed_while_in_use_raise(images, tmp_path, monkeypatch):
    monkeypatch.setenv("DINO_CACHE", str(tmp_path / "cache"))
    for name in ("class0", "class1"):
        with tarfile.open(tmp_path / f"{name}.tar", "w") as tar:
            tar.add(images / name, name)
    files = [tmp_path / "class0.tar", tmp_path / "class1.tar"]
    collection = open_images(files)
    os.utime(files[1], ns=(1, 1))
    with pytest.raises(ImageError, match=r"class1\.tar was changed while it was in use"):
        load(collection, batch_size=10, workers=1)


def test_batches_have_the_labels_of_their_images(tmp_path):
    for i, color in enumerate(("black", "black", "white", "white")):
        (tmp_path / color).mkdir(exist_ok=True)
        Image.new("RGB", (20, 20), color).save(tmp_path / color / f"{i}.png")
    (loaded,) = load(open_images(tmp_path), batch_size=4)
    white = loaded.crops.views[0].float().mean(dim=(1, 2, 3)) > 100  # this view is never solarized
    assert loaded.labels.tolist() == white.tolist()
    assert white.sum() == 2


def test_batches_of_the_ranks_are_parts_of_the_whole_batch(images, monkeypatch):
    (whole,) = load(open_images(images), batch_size=6)
    monkeypatch.setattr("training.augmentation.batches.world", lambda: 3)
    parts = []
    for number in range(3):
        monkeypatch.setattr("training.augmentation.batches.rank", lambda number=number: number)
        parts += load(open_images(images), batch_size=6)
    assert torch.equal(torch.cat([part.indices for part in parts]), whole.indices)
    assert [(part.randomness.first, part.randomness.num_images) for part in parts] == [(0, 2), (2, 2), (4, 2)]


def test_batches_ahead_are_limited_by_bytes():
    small, large = CropConfig(32, 16, 2), CropConfig(224, 96, 8)
    assert batches_ahead(small, batch_size=16, workers=2) == 8
    assert batches_ahead(large, batch_size=1024, workers=8) == 1
    batch = 64 * 3 * (2 * 224**2 + 8 * 96**2)
    between = batches_ahead(large, batch_size=64, workers=2)
    assert between * 2 * batch <= 2**28 < (between + 1) * 2 * batch
    assert batches_ahead(large, batch_size=16, workers=2, channels=12) == between


def test_batches_ahead_in_too_little_shared_memory_raises(monkeypatch):
    large = CropConfig(224, 96, 8)
    need = 8 * 2 * 2 * 3 * (2 * 224**2 + 8 * 96**2)  # of 8 batches of 2 workers
    for free in (need, 64e6):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert batches_ahead(large, batch_size=2, workers=2) == 8
    with pytest.raises(SettingError, match=r"64 MB free, and 2 workers need .*--shm-size"):
        batches_ahead(large, batch_size=64, workers=2)


@pytest.mark.parametrize("margin", [0.0, 0.25])
def test_device_crops_are_equal_wherever_they_are_finished(tmp_path, margin):
    generator = np.random.default_rng(0)
    for i in range(6):
        pixels = generator.integers(0, 256, (12, 16 + i, 3), np.uint8).repeat(4, 0).repeat(4, 1)
        Image.fromarray(pixels).save(tmp_path / (f"{i}.jpg" if i else "0.png"), quality=95)
    crops = CropConfig(32, 16, 2, margin=margin, augment="device", canvas_size=48)
    by_worker, by_device = (
        load(open_images(tmp_path), crops, batch_size=6, finish=finish)[0] for finish in (True, False)
    )
    assert all(map(torch.equal, by_device.finish(CPU), by_worker.crops))


@pytest.mark.parametrize("augment", ["batch", "device"])  # with Pillow, random boxes depend on the size
def test_large_photograph_is_decoded_smaller_and_gives_the_same_crops(tmp_path, monkeypatch, augment):
    pixels = np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)
    photograph = Image.fromarray(pixels).resize((2400, 1800), Image.Resampling.BICUBIC)
    photograph.save(tmp_path / "photograph.jpg", quality=95)
    images, config = open_images(tmp_path), CropConfig(global_size=64, local_size=32, augment=augment)
    dataset = CropDataset(images, replace(config, canvas_size=96), seed=0)
    assert dataset.cut.config.decoded_side <= 1800 // 8  # the decoder makes it eight times smaller
    found = dataset.collate([dataset[0, 0]])
    monkeypatch.setattr(CropConfig, "decoded_side", 0)
    exact = dataset.collate([dataset[0, 0]])
    for crops, expected in zip(found.crops, exact.crops, strict=True):
        assert (crops.float() - expected.float()).abs().mean() < 6


def test_run_of_100_unreadable_images_is_an_error():
    def read(number: int) -> int:
        if number < 110:
            raise ImageError(f"{number} is broken")
        return number

    numbers = range(150)
    assert read_or_next(numbers, 11, read)[:2] == (110, 110)
    with pytest.raises(ImageError, match="100 images in a row cannot be read; the first: 10 is broken"):
        read_or_next(numbers, 10, read)
