import itertools
import os
import tarfile
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image

from dino_model.collections import open_images
from dino_model.images import ImageError
from training.crop_config import CropConfig
from training.data import MAX_READY_BYTES, batch_order, batches, batches_ahead

CROPS = CropConfig(global_size=32, local_size=16, local_crops=2)


@pytest.fixture
def folder(tmp_path):
    generator = np.random.default_rng(0)
    for i in range(7):
        Image.fromarray(generator.integers(0, 256, (40, 50, 3), np.uint8)).save(tmp_path / f"{i}.png")
    return tmp_path


def test_batch_order_shows_each_image_once_per_epoch():
    order = list(batch_order(num_images=10, batch_size=3, seed=0, first_step=0, steps=6))
    assert len(order) == 6
    for epoch in (order[:3], order[3:]):
        counts = Counter(index for batch in epoch for _, index in batch)
        assert len(counts) == 9
        assert set(counts.values()) == {1}
    first, second = ([index for batch in epoch for _, index in batch] for epoch in (order[:3], order[3:]))
    assert first != second
    assert [position for batch in order for position, _ in batch] == list(range(18))


@pytest.mark.parametrize("first_step", [0, 1, 3, 5])
def test_batch_order_from_any_step_continues_the_order(first_step):
    whole = list(batch_order(10, 3, 7, 0, 6))
    assert list(batch_order(10, 3, 7, first_step, 6)) == whole[first_step:]


@pytest.mark.parametrize("workers", [0, 2])
def test_crops_depend_on_seed_and_step_only(folder, workers):
    images = open_images(folder)

    def load(first_step, workers):
        options = {"batch_size": 3, "seed": 5, "first_step": first_step, "steps": 4, "workers": workers}
        return list(batches(images, CROPS, **options))

    whole, rest = load(0, 0), load(2, workers)
    assert len(whole) == 4
    for ours, theirs in zip(rest, whole[2:], strict=True):
        assert all(itertools.starmap(torch.equal, zip(ours.crops, theirs.crops, strict=True)))


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_of_a_changed_tar_raise(folder, tmp_path, monkeypatch, workers):
    """No other picture takes the place of those in it: nobody knows what they are now."""
    monkeypatch.setenv("DINO_CACHE", str(tmp_path / "cache"))
    for name, numbers in (("a", range(4)), ("b", range(4, 7))):
        with tarfile.open(tmp_path / f"{name}.tar", "w") as tar:
            for i in numbers:
                tar.add(folder / f"{i}.png", f"{i}.png")
    images = open_images([tmp_path / "a.tar", tmp_path / "b.tar"])
    os.utime(tmp_path / "b.tar", ns=(1, 1))
    with pytest.raises(ImageError, match=r"b\.tar was changed while it was in use"):
        list(batches(images, CROPS, batch_size=7, seed=0, first_step=0, steps=1, workers=workers))


def test_batches_have_the_labels_of_their_images(tmp_path):
    for name in ("cat/0.png", "cat/1.png", "dog/2.png", "dog/3.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (20, 20), (255, 0, 0) if "cat" in name else (0, 0, 255)).save(tmp_path / name)
    options = {"batch_size": 4, "seed": 0, "first_step": 0, "steps": 1, "workers": 0}
    (loaded,) = batches(open_images(tmp_path), CROPS, **options)
    red = loaded.crops.views[:, :, 0].float().mean(dim=(0, 2, 3))
    blue = loaded.crops.views[:, :, 2].float().mean(dim=(0, 2, 3))
    assert sorted(loaded.labels.tolist()) == [0, 0, 1, 1]
    for label, r, b in zip(loaded.labels.tolist(), red, blue, strict=True):
        assert r == b or (r > b) == (label == 0)  # grey once in five


def test_batches_ahead_is_limited_by_bytes():
    small, large = CropConfig(32, 16, 2), CropConfig(224, 96, 8)
    assert batches_ahead(small, batch_size=16, workers=2) == 8
    assert batches_ahead(large, batch_size=1024, workers=8) == 1
    between = batches_ahead(large, batch_size=64, workers=2)
    batch = 64 * 3 * (2 * 224**2 + 8 * 96**2)
    assert between * 2 * batch <= MAX_READY_BYTES < (between + 1) * 2 * batch
