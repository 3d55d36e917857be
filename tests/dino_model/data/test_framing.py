"""Framing of images for evaluation; `test_features` compares it with the official transforms."""

import numpy as np
import pytest
import torch

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
        ((0, 0.4, 37, 22.6), True),  # rounded
        ((36, 22, 37, 23), True),
        ((0, 0, 38, 23), False),
        ((0, 0, 37, 24), False),
        ((-1, -1, 37, 23), False),
        ((5, 5, 5, 9), False),
        ((5, 9, 6, 9), False),
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
