"""The kept mass agrees with the official code's to the last patch."""

import numpy as np
import torch

from segmentation.masks import keep_mass


def test_masks_equal_the_official_ones(oracle):
    reference = oracle("mass_threshold")
    attention = torch.from_numpy(reference["attention"])
    masks = {key: value for key, value in reference.items() if key.startswith("mask_")}
    assert masks
    for key, expected in masks.items():
        kept = keep_mass(attention, int(key.removeprefix("mask_")) / 100)
        np.testing.assert_array_equal(kept.numpy().reshape(expected.shape), expected, err_msg=key)
