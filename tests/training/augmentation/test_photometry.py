"""Each operation against Pillow's or torchvision's, one crop at a time."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from torchvision.transforms.v2 import functional

from training.augmentation import photometry
from training.augmentation.crop_config import ViewSpec
from training.augmentation.photometry import NUMBERS, change_colors, plan_colors


@pytest.fixture
def crops():
    """Twenty smooth images, so that interpolation and rounding do not matter: uint8 [20, 3, 32, 32]."""
    coarse = torch.rand(20, 3, 4, 4, generator=torch.Generator().manual_seed(0)) * 255
    return torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bilinear").byte()


def changed(view, crops, numbers, dtype=None):
    return change_colors(crops, *plan_colors([view], [numbers]), dtype)


@pytest.mark.parametrize(("dtype", "largest"), [(torch.float32, 0.0), (torch.float16, 1e-3)])
def test_jitter_equals_torchvision_in_the_order_of_each_crop(crops, dtype, largest):
    view = ViewSpec(flip=0.0, jitter=1.0, gray=0.0, blur=0.0, strengths=(0.4, 0.4, 0.2, 0.1))
    numbers = torch.rand(20, NUMBERS + 1, generator=torch.Generator().manual_seed(0))
    low, high = torch.tensor([0.6, 0.6, 0.8, -0.1]), torch.tensor([1.4, 1.4, 1.2, 0.1])
    factors, orders = low + (high - low) * numbers[:, 4:8], numbers[:, 8:12].argsort().tolist()
    expected = crops.double() / 255
    for crop, own, order in zip(expected, factors.tolist(), orders, strict=True):
        for number in order:
            change = getattr(functional, f"adjust_{('brightness', 'contrast', 'saturation', 'hue')[number]}")
            crop.copy_(change(crop, own[number]))
    distance = (changed(view, crops, numbers, dtype) - expected * 255).abs()
    assert (distance > 1).float().mean() <= largest  # 0.5 by rounding; its weights of colors have four digits
    assert distance.max() <= 2


def test_gray_and_solarize_equal_torchvision(crops):
    gray = photometry.weighted_mean(crops.float()).expand(-1, 3, -1, -1)
    expected = functional.rgb_to_grayscale(crops.float(), 3)
    assert (gray - expected).abs().max() <= 0.03  # its weight of red is 0.2989, not 0.299
    solarized = functional.solarize(crops, 128)
    assert (solarized != crops).any()
    assert torch.equal(photometry.solarize(crops.float()), solarized.float())


def test_gaussian_blur_equals_pillow_away_from_edges(crops):
    radii = torch.tensor([0.5, 1.0, 1.5, 2.0, 0.1])
    found = photometry.gaussian_blur(crops[:5].float(), photometry.blur_exponents(radii))
    for crop, radius, ours in zip(crops[:5], radii.tolist(), found, strict=True):
        image = Image.fromarray(crop.permute(1, 2, 0).numpy()).filter(ImageFilter.GaussianBlur(radius))
        expected = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        assert (ours.round() - expected)[:, 6:-6, 6:-6].abs().max() <= 4  # Pillow's is three boxes


def test_photometry_operations_have_their_probabilities():
    """Each operation leaves its own mark on a red square with a bright and a dark half."""
    torch.manual_seed(0)
    n = 10_000
    red = torch.zeros(n, 3, 8, 8)
    red[:, 0], red[:, 1], red[:, :, :, 4:] = 200, 30, 0
    view = ViewSpec(flip=0.0, blur=0.3, radius=(1.0, 1.0), solarize=0.25)
    done = changed(view, red.byte(), torch.rand(n, NUMBERS + 1))
    chances = torch.rand(n, NUMBERS + 1)
    chances[:, :3] = 0.9  # neither jittered nor gray nor blurred
    plain = changed(view, red.byte(), chances)
    chances[:, 0], chances[:, 3] = torch.rand(n), 0.9  # not solarized
    jittered = changed(view, red.byte(), chances)
    for share, expected in (
        ((done[:, 0] == done[:, 1]).flatten(1).all(1), 0.2),  # gray
        (done[:, 0, 0, 0] != done[:, 0, 0, 3], 0.3),  # blurred
        (done[:, 2, 0, 7] > 200, 0.0),  # black is not inverted
        (plain[:, 0, 0, 0] == 55, 0.25),  # solarized
        ((jittered != red).flatten(1).any(1), 0.8),
    ):
        assert share.float().mean() == pytest.approx(expected, abs=0.02)


def test_radius_of_the_blur_does_not_depend_on_the_number_that_decides_on_it(crops):
    view, numbers = ViewSpec(jitter=0.0, gray=0.0, blur=0.5, radius=(0.5, 2.0)), torch.rand(1, NUMBERS + 1)
    variants = numbers.repeat(3, 1)
    variants[:, 2] = torch.tensor([0.1, 0.4, 0.4])  # each below the probability
    variants[:, 12] = torch.tensor([0.3, 0.3, 0.9])
    same, again, wider = changed(view, crops[:1].expand(3, -1, -1, -1), variants)
    assert torch.equal(same, again)
    assert not torch.equal(same, wider)
    exponents = photometry.blur_exponents(torch.tensor([0.5 + 1.5 * 0.3]))
    expected = photometry.gaussian_blur(crops[:1].float(), exponents)
    flipped = expected.flip(-1) if numbers[0, NUMBERS] < view.flip else expected
    assert (same - flipped[0]).abs().max() <= 0.5 + 1e-3


def test_gray_of_other_channels_is_their_mean():
    view = ViewSpec(flip=0.0, jitter=0.0, gray=1.0, blur=0.0)
    crops = torch.randint(0, 256, (3, 5, 4, 4), dtype=torch.uint8)
    found = change_colors(crops, *plan_colors([view], [torch.rand(3, NUMBERS + 1 + 2 * 5)], 5))
    assert (found - crops.float().mean(1, keepdim=True)).abs().max() <= 0.51


def test_other_channels_change_brightness_then_contrast_by_their_own_numbers(crops):
    view, channels = ViewSpec(flip=0.0, jitter=1.0, gray=0.0, blur=0.0), 3
    numbers = torch.rand(5, NUMBERS + 1 + 2 * channels)
    found = change_colors(crops[:5], *plan_colors([view], [numbers], channels))
    brightness, contrast = (0.6 + 0.8 * numbers[:, NUMBERS + 1 :]).view(5, 2, channels, 1, 1).unbind(1)
    brighter = (crops[:5] * brightness).clamp(0, 255)
    mean = brighter.mean((2, 3), keepdim=True)
    expected = (mean + contrast * (brighter - mean)).clamp(0, 255)
    assert (found - expected).abs().max() <= 0.51
