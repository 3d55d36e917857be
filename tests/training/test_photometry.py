"""Each operation against Pillow's or torchvision's, one crop at a time."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from torchvision.transforms.v2 import functional

from training import photometry
from training.crop_config import ViewSpec
from training.photometry import NUMBERS, apply_photometry


@pytest.fixture
def crops():
    """Five smooth pictures, so that interpolation and rounding do not matter: uint8 [5, 3, 32, 40]."""
    torch.manual_seed(0)
    coarse = torch.rand(5, 3, 4, 5) * 255
    return torch.nn.functional.interpolate(coarse, size=(32, 40), mode="bilinear").byte()


@pytest.mark.parametrize(
    ("name", "strengths"),
    [
        ("brightness", (0.6, 0.9, 1.0, 1.2, 1.4)),
        ("contrast", (0.6, 0.9, 1.0, 1.2, 1.4)),
        ("saturation", (0.8, 0.9, 1.0, 1.1, 1.2)),
        ("hue", (-0.1, -0.05, 0.0, 0.05, 0.1)),
    ],
)
def test_jitter_equals_torchvision(crops, name, strengths):
    found = getattr(photometry, name)(crops.float(), torch.tensor(strengths).view(-1, 1, 1, 1))
    for crop, strength, ours in zip(crops, strengths, found, strict=True):
        expected = getattr(functional, f"adjust_{name}")(crop, strength)
        assert (ours.round() - expected).abs().max() <= 2  # it rounds in between


def test_gray_and_solarize_equal_torchvision(crops):
    greyed = photometry.luma(crops.float()).expand(-1, 3, -1, -1)
    assert (greyed.round() - functional.rgb_to_grayscale(crops, 3)).abs().max() <= 1  # it cuts off
    solarized = functional.solarize(crops, 128)
    assert (solarized != crops).any()
    assert torch.equal(photometry.solarize(crops.float()), solarized.float())


def test_jitter_uses_the_order_of_each_crop(crops):
    strengths = torch.tensor([[1.4, 0.6, 1.2, 0.1]]).expand(5, 4)
    orders = torch.stack([torch.randperm(4) for _ in range(5)])
    found = photometry.jitter(crops.float(), strengths, orders)
    names = ("brightness", "contrast", "saturation", "hue")
    for crop, order, ours in zip(crops.float(), orders.tolist(), found, strict=True):
        expected = crop[None]
        for number in order:
            expected = getattr(photometry, names[number])(expected, strengths[0, number].view(1, 1, 1, 1))
        torch.testing.assert_close(ours, expected[0])


def test_gaussian_blur_equals_pillow_away_from_edges(crops):
    radii = torch.tensor([0.5, 1.0, 1.5, 2.0, 0.1])
    found = photometry.gaussian_blur(crops.float(), radii)
    for crop, radius, ours in zip(crops, radii.tolist(), found, strict=True):
        image = Image.fromarray(crop.permute(1, 2, 0).numpy()).filter(ImageFilter.GaussianBlur(radius))
        expected = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        assert (ours.round() - expected)[:, 6:-6, 6:-6].abs().max() <= 4  # Pillow's is three boxes


def test_photometry_operations_have_their_probabilities():
    """A red square with a bright and a dark half: what was done to it can be read off its pixels."""
    torch.manual_seed(0)
    n = 10_000
    red = torch.zeros(n, 3, 8, 8)
    red[:, 0], red[:, 1], red[:, :, :, 4:] = 200, 30, 0
    done = apply_photometry(
        ViewSpec(blur=0.3, radius=(1.0, 1.0), solarize=0.25), red.byte(), torch.rand(n, NUMBERS)
    ).float()
    assert (done[:, 0] == done[:, 1]).all(-1).all(-1).float().mean() == pytest.approx(0.2, abs=0.02)
    assert (done[:, 0, 0, 0] != done[:, 0, 0, 3]).float().mean() == pytest.approx(0.3, abs=0.02)
    assert (done[:, 2, 0, 7] > 200).float().mean() == pytest.approx(0.0, abs=0.001)  # black is not inverted
    alone = ViewSpec(blur=0.0, radius=(0.0, 0.0), solarize=0.25)
    chances = torch.rand(n, NUMBERS)
    chances[:, :2] = 0.9  # neither jittered nor greyed
    inverted = (apply_photometry(alone, red.byte(), chances)[:, 0, 0, 0] == 55).float().mean()
    assert inverted == pytest.approx(0.25, abs=0.02)
    jittered = (
        apply_photometry(alone, red.byte(), torch.rand(n, NUMBERS).index_fill(1, torch.tensor([1, 3]), 0.9))
        != red
    ).flatten(1)
    assert jittered.any(1).float().mean() == pytest.approx(0.8, abs=0.02)


def test_photometry_of_a_crop_is_independent_of_its_batch(crops):
    chances = torch.rand(5, NUMBERS)
    chances[:, :4] = torch.tensor([0.1, 0.5, 0.1, 0.9])
    change = ViewSpec(blur=0.5, radius=(0.5, 2.0), solarize=0.2)
    together = apply_photometry(change, crops, chances)
    alone = torch.cat(
        [
            apply_photometry(change, crop[None], chance[None])
            for crop, chance in zip(crops, chances, strict=True)
        ]
    )
    assert (together.int() - alone.int()).abs().max() <= 1
    assert (together != crops).any()
