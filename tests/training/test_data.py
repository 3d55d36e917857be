import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image

from dino_model.images import ImageError, open_images
from training.crops import CropConfig
from training.data import Order, batches

CROPS = CropConfig(global_size=32, local_size=16, local_crops=2)


@pytest.fixture
def folder(tmp_path):
    generator = np.random.default_rng(0)
    for i in range(7):
        Image.fromarray(generator.integers(0, 256, (40, 50, 3), np.uint8)).save(tmp_path / f"{i}.png")
    return tmp_path


def test_every_epoch_shows_each_picture_at_most_once_and_drops_the_rest():
    order = list(Order(pictures=10, batch_size=3, seed=0, first_step=0, steps=6))
    assert len(order) == 6
    for epoch in (order[:3], order[3:]):
        counts = Counter(index for batch in epoch for _, index in batch)
        assert len(counts) == 9
        assert set(counts.values()) == {1}
    assert order[:3] != order[3:]
    assert [position for batch in order for position, _ in batch] == list(range(18))


@pytest.mark.parametrize("first_step", [0, 1, 3, 5])
def test_order_from_any_step_is_the_rest_of_the_order(first_step):
    whole = list(Order(10, 3, 7, 0, 6))
    assert list(Order(10, 3, 7, first_step, 6)) == whole[first_step:]


def test_another_seed_is_another_order():
    assert list(Order(10, 3, 0, 0, 3)) != list(Order(10, 3, 1, 0, 3))


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


def test_batches_have_the_crops_in_front(folder):
    batch = next(
        iter(batches(open_images(folder), CROPS, batch_size=3, seed=0, first_step=0, steps=1, workers=0))
    )
    assert batch.crops.views.shape == (2, 3, 3, 32, 32)
    assert batch.crops.locals.shape == (2, 3, 3, 16, 16)


def test_loading_leaves_the_random_state_alone(folder):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    list(batches(open_images(folder), CROPS, batch_size=3, seed=0, first_step=0, steps=1, workers=0))
    assert torch.equal(torch.rand(3), expected)


def test_a_broken_picture_is_replaced_and_named(folder):
    (folder / "3.png").write_bytes(b"not a picture")
    batch = next(
        iter(batches(open_images(folder), CROPS, batch_size=7, seed=0, first_step=0, steps=1, workers=0))
    )
    assert batch.crops.views.shape[1] == 7
    assert len(batch.broken) == 1
    assert "3.png" in batch.broken[0]


def test_nothing_but_broken_pictures_ends_in_words(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.jpg").write_bytes(b"")
    with pytest.raises(ImageError, match="3 pictures in a row cannot be read"):
        list(batches(open_images(tmp_path), CROPS, batch_size=2, seed=0, first_step=0, steps=1, workers=0))


def test_fewer_pictures_than_a_batch_are_refused():
    with pytest.raises(ValueError, match="4 pictures are fewer than one batch of 8"):
        Order(4, 8, 0, 0, 1)
