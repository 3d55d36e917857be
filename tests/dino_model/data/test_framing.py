"""Framing of images for evaluation; `test_features` compares it with the official transforms."""

import numpy as np
import pytest
import torch
from torch import nn

from dino_model.data.framing import Box, Framing

GRAY = (0.5,), (0.25,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 0}, "cannot crop 0 pixels from a short side of 0"),
        ({"size": 9, "resize_to": 8}, "cannot crop 9 pixels from a short side of 8"),
        ({"scales": ()}, "expected at least one"),
        ({"scales": (1.0, 0.0)}, "all above 0"),
        ({"std": (0.2, 0.2)}, "1 means, 2 deviations"),
    ],
)
def test_impossible_framing_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Framing(**{"size": 8, "mean": GRAY[0], "std": GRAY[1]} | settings)


@pytest.mark.parametrize(
    ("box", "is_inside"),
    [
        ((0, 0, 37, 23), True),
        ((0, 0, 38, 23), False),
        ((0, 0, 37, 24), False),
        ((-1, 0, 37, 23), False),
        ((0, -1, 37, 23), False),
        ((36, 22, 37, 23), True),
        ((5, 5, 5, 9), False),
        ((5, 9, 6, 9), False),
        ((0.4, 0.6, 36.6, 22.4), True),  # rounded
    ],
)
def test_box_has_a_pixel_and_is_inside(box: Box, is_inside: bool):
    image = np.random.default_rng(0).integers(0, 256, (23, 37, 1), np.uint8)
    framing = Framing(37, *GRAY, mode="long-side")
    if is_inside:
        left, top, right, bottom = map(round, box)
        expected = torch.from_numpy(image[top:bottom, left:right]).permute(2, 0, 1)
        torch.testing.assert_close(framing.crop(image, box), expected)
    else:
        with pytest.raises(ValueError, match="is not inside the image of 37 × 23 pixels"):
            framing.crop(image, box)


def test_each_channel_is_framed_as_an_image():
    image = np.random.default_rng(0).integers(0, 256, (23, 37, 5), np.uint8)
    framing = Framing(16, (0.5,) * 5, (0.25,) * 5, 20)
    found = framing.crop(image)
    assert found.shape == (5, 16, 16)
    for number in range(5):
        torch.testing.assert_close(
            found[number : number + 1], Framing(16, *GRAY, 20).crop(image[..., [number]])
        )
    torch.testing.assert_close(framing.normalize(found[None])[0], (found / 255 - 0.5) / 0.25)
    with pytest.raises(ValueError, match="the model takes 5 channels, the image has 3"):
        framing.crop(image[..., :3])


def test_scaled_images_are_cut_to_whole_patches_of_one_or_more():
    image = torch.randn(1, 1, 17, 24)
    for cut, sizes in ((0, ((17, 24), (8, 12))), (8, ((16, 24), (8, 8))), (5, ((15, 20), (5, 10)))):
        framing = Framing(24, *GRAY, scales=(1.0, 0.5), cut=cut)
        for scale, (rows, columns), found in zip((1, 0.5), sizes, framing.rescale(image), strict=True):
            scaled = nn.functional.interpolate(image, scale_factor=scale, mode="bilinear")
            torch.testing.assert_close(found, scaled[..., :rows, :columns])
    with pytest.raises(ValueError, match=r"an image of \(17, 24\) is too small for scale 0\.5"):
        [*Framing(24, *GRAY, scales=(0.5,), cut=9).rescale(image)]
