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
    """Five smooth images, so that interpolation and rounding do not matter: uint8 [5, 3, 32, 40]."""
    torch.manual_seed(0)
    coarse = torch.rand(5, 3, 4, 5) * 255
    return torch.nn.functional.interpolate(coarse, size=(32, 40), mode="bilinear").byte()


def changed(view, crops, numbers):
    return change_colors(crops, *plan_colors([view], [numbers]))


def test_jitter_equals_torchvision_in_the_order_of_each_crop(crops):
    names = ("brightness", "contrast", "saturation", "hue")
    strengths = torch.tensor([0.6, 0.6, 0.8, -0.1]) + torch.rand(5, 4) * torch.tensor([0.8, 0.8, 0.4, 0.2])
    orders = torch.stack([torch.randperm(4) for _ in range(5)])
    order = (orders == 3).int().argmax(1).argsort()  # by the number of changes before the hue
    crops, strengths, orders = crops[order], strengths[order], orders[order]
    places = (orders == 3).int().argmax(1)
    found, bounds = crops.float(), (0, *((places <= number).sum().item() for number in range(3)))
    photometry.jitter(found, photometry.blend_factors(orders, strengths), 6 * strengths[:, 3], bounds)
    for crop, own, order, ours in zip(crops.float() / 255, strengths, orders.tolist(), found, strict=True):
        expected = crop
        for number in order:
            expected = getattr(functional, f"adjust_{names[number]}")(expected, own[number].item())
        assert (ours - expected * 255).abs().max() <= 0.5  # its weights of the colors have four digits


def test_gray_and_solarize_equal_torchvision(crops):
    gray = photometry.luma(crops.float()).expand(-1, 3, -1, -1)
    assert (gray.round() - functional.rgb_to_grayscale(crops, 3)).abs().max() <= 1  # it cuts off
    solarized = functional.solarize(crops, 128)
    assert (solarized != crops).any()
    assert torch.equal(photometry.solarize(crops.float()), solarized.float())


def test_gaussian_blur_equals_pillow_away_from_edges(crops):
    radii = torch.tensor([0.5, 1.0, 1.5, 2.0, 0.1])
    found = photometry.gaussian_blur(crops.float(), radii)
    for crop, radius, ours in zip(crops, radii.tolist(), found, strict=True):
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
    expected = photometry.gaussian_blur(crops[:1].float(), torch.tensor([0.5 + 1.5 * 0.3]))
    flipped = expected.flip(-1) if numbers[0, NUMBERS] < view.flip else expected
    assert (same - flipped[0]).abs().max() <= 0.5 + 1e-3


def test_photometry_of_a_crop_is_independent_of_its_batch(crops):
    chances = torch.rand(5, NUMBERS + 1)
    chances[:, :4] = torch.tensor([0.1, 0.5, 0.1, 0.9])
    view = ViewSpec(blur=0.5, radius=(0.5, 2.0), solarize=0.2)
    together = changed(view, crops, chances)
    alone = [changed(view, crops[i : i + 1], chances[i : i + 1]) for i in range(5)]
    assert (together.int() - torch.cat(alone).int()).abs().max() <= 1
    assert (together != crops).any()
