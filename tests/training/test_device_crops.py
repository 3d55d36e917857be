"""Crops that are cut on the device, against torchvision's and Pillow's."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

from dino_model.collections import open_images
from training.crop_config import CropConfig
from training.crops import BOX_NUMBERS, random_box, random_boxes, resized_crops
from training.data import batches

CPU = torch.device("cpu")


@pytest.fixture
def canvas():
    rows, columns = torch.meshgrid(torch.arange(120.0), torch.arange(120.0), indexing="ij")
    waves = torch.stack([rows * 2, 127 + 120 * torch.sin(columns / 3), (rows * columns) % 251])
    return waves.clamp(0, 255).round()[None]


@pytest.mark.parametrize(
    ("box", "size"),
    [((0, 0, 120, 120), 32), ((10, 20, 90, 60), 48), ((5, 7, 30, 25), 96), ((40, 3, 57, 113), 57)],
)
def test_resized_crops_at_whole_pixels_equal_torchvision(canvas, box, size):
    left, top, width, height = box
    expected = functional.resize(
        canvas[..., top : top + height, left : left + width],
        [size, size],
        InterpolationMode.BICUBIC,
        antialias=True,
    )
    found = resized_crops(canvas, torch.tensor([box]) / 120, size)
    assert found.dtype == torch.uint8
    assert (found.float() - expected.clamp(0, 255)).abs().max() <= 0.51


@pytest.mark.parametrize(("height", "width"), [(375, 500), (500, 200), (100, 1000)])
def test_random_boxes_equal_those_of_workers_up_to_pixels(height, width):
    numbers = torch.rand(200, BOX_NUMBERS, generator=torch.Generator().manual_seed(0))
    found = random_boxes(numbers, torch.full((200,), height / width), (0.05, 1.0))
    assert (found >= 0).all()
    assert (found[:, :2] + found[:, 2:] <= 1 + 1e-6).all()
    pixels = found * torch.tensor([width, height, width, height])
    others = 0
    for box, row in zip(pixels, numbers, strict=True):
        left, top, right, bottom = random_box(width, height, (0.05, 1.0), row.tolist())
        expected = torch.tensor([left, top, right - left, bottom - top], dtype=torch.float)
        others += bool((box - expected).abs().max() > 2)
    assert others <= 4  # of 200: boxes that fit only before or after rounding


@pytest.fixture
def folder(tmp_path):
    generator = np.random.default_rng(0)
    for i in range(6):
        pixels = generator.integers(0, 256, (12, 16 + i, 3), np.uint8).repeat(4, 0).repeat(4, 1)
        Image.fromarray(pixels).save(tmp_path / (f"{i}.jpg" if i else "0.png"), quality=95)
    return tmp_path


CONFIG = CropConfig(global_size=32, local_size=16, local_crops=2, augment="device", canvas_size=48)


def loaded(folder, config=CONFIG, **options):
    settings = {"batch_size": 6, "seed": 1, "first_step": 0, "steps": 1, "workers": 0}
    return next(batches(open_images(folder), config, **settings | options))


def test_device_crops_finished_by_the_worker_or_the_device_are_equal(folder):
    by_worker, by_device = (loaded(folder, finish=finish).finish(CPU) for finish in (True, False))
    assert all(map(torch.equal, by_worker, by_device))


def test_decode_on_the_device_gives_the_crops_of_the_workers(folder):
    """The PNG among the JPEGs is decoded by the worker either way."""
    config = CropConfig(32, 16, 2, augment="device", canvas_size=48, decode="device", margin=0.25)
    batch = loaded(folder, config, finish=False)
    assert batch.files is not None
    assert sorted(batch.files[1])[0] == 0
    expected = loaded(folder, CropConfig(32, 16, 2, augment="device", canvas_size=48, margin=0.25))
    assert all(map(torch.equal, batch.finish(CPU), expected.finish(CPU)))


@pytest.mark.parametrize(
    ("augmentation", "device", "expected"),
    [("dino", "cuda", "device"), ("dino", "cpu", "workers"), ("deit", "cuda", "batch")],
)
def test_augment_auto_depends_on_the_device(augmentation, device, expected):
    assert CropConfig(augmentation=augmentation).for_device(device).augment == expected
