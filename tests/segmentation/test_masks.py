"""Attention to masks: the kept mass, enlarging, heads, components, run lengths."""

import json
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from segmentation import masks

attention_maps = st_numpy.arrays(
    np.float64,
    st_numpy.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=12),
    elements=st.integers(1, 8).map(lambda eighths: eighths / 8),  # few values, so that ties abound
)
boolean_masks = st_numpy.arrays(np.bool_, st_numpy.array_shapes(min_dims=2, max_dims=2, max_side=9))


def keep_mass_one_by_one(attention: np.ndarray, mass: float) -> np.ndarray:
    """Take the greatest patch, the later one of equals, until the share is reached."""
    order = sorted(range(len(attention)), key=lambda patch: (attention[patch], patch), reverse=True)
    kept, held = np.zeros(len(attention), dtype=bool), 0.0
    for patch in order:
        kept[patch] = True
        held += attention[patch]
        if held >= mass * attention.sum() - 1e-9:
            break
    return kept


@given(attention_maps, st.sampled_from([0.2, 0.5, 0.6, 0.8, 0.95, 1.0]))
def test_keep_mass_is_smallest_set_with_later_ties(attention, mass):
    kept = masks.keep_mass(torch.from_numpy(attention), mass).numpy()
    pairs = zip(*(values.reshape(-1, attention.shape[-1]) for values in (attention, kept)), strict=True)
    for one, found in pairs:
        expected = keep_mass_one_by_one(one, mass)
        if not np.array_equal(found, expected):  # where the share is met to the last bit, rounding decides
            shares = np.cumsum(np.sort(one)) / one.sum()
            assert np.abs(shares - (1 - mass)).min() < 1e-12


def test_keep_mass_compares_double_precision_in_double_precision():
    attention = torch.tensor([1.0, 1 - 1e-12], dtype=torch.float64)  # equal in fp32: the later stays
    assert masks.keep_mass(attention, 0.5).tolist() == [True, False]


def test_keep_mass_of_wrong_input_raises_value_error():
    for mass in (0.0, 1.01, float("nan")):
        with pytest.raises(ValueError, match="expected a share above 0 and up to 1"):
            masks.keep_mass(torch.ones(2), mass)
    for wrong in (-0.5, np.nan):
        with pytest.raises(ValueError, match="negative or non-finite"):
            masks.keep_mass(torch.tensor([1.0, wrong]), 0.6)
    with pytest.raises(ValueError, match="sums to zero"):
        masks.keep_mass(torch.zeros(2), 0.6)


def test_enlarge_takes_patch_under_pixel_center():
    # five pixels over two patches: the center of the third lies on the border and belongs to the second
    assert masks.enlarge(np.array([[1, 2]]), (1, 5)).tolist() == [[1, 1, 2, 2, 2]]


def test_best_head_excludes_void():
    truth, void = np.zeros((2, 4, 4), dtype=bool)
    truth[:2], void[2] = True, True
    wide = (truth | void)[None]
    assert masks.best_head(wide, truth)[1] == pytest.approx(2 / 3)
    assert masks.best_head(np.stack([~truth, truth]), truth) == (1, 1.0)
    assert masks.best_head(wide, truth, void)[1] == 1.0


def test_components_are_numbered_by_area_then_reading_order():
    mask = np.array([[1, 0, 0, 1, 1], [0, 1, 0, 1, 1]], dtype=bool)
    assert masks.components(mask).tolist() == [[2, 0, 0, 1, 1], [0, 3, 0, 1, 1]]
    assert masks.components(mask, 8).tolist() == [[2, 0, 0, 1, 1], [0, 2, 0, 1, 1]]
    assert [masks.component_at(mask, 1, column).sum() for column in (1, 2)] == [1, 0]


def test_central_head_has_nearest_mask():
    heads = np.zeros((4, 9, 9), dtype=bool)
    heads[0, :2, :2] = heads[1, 3:6, 3:6] = True
    assert [masks.central_head(each) for each in (heads, heads[::-1])] == [1, 2]
    for seed in range(20):
        heads = np.random.default_rng(seed).random((5, 6, 15)) < 0.1
        shares = [(np.argwhere(head) + 0.5) / (6, 15) - 0.5 for head in heads]
        distances = [(share**2).sum(axis=1).mean() if len(share) else np.inf for share in shares]
        assert masks.central_head(heads) == np.argmin(distances)


def test_bounding_box_ends_outside_mask():
    mask = np.pad(np.ones((2, 4), dtype=bool), ((1, 2), (2, 1)))
    assert masks.bounding_box(mask) == (2, 1, 6, 3)
    with pytest.raises(ValueError, match="empty"):
        masks.bounding_box(mask[:1])


@given(boolean_masks)
def test_run_lengths_round_trip_through_json(mask):
    encoded = json.loads(json.dumps(masks.rle(mask)))
    assert encoded["size"] == list(mask.shape)
    np.testing.assert_array_equal(masks.decode(encoded), mask)


@settings(deadline=None)
@given(st.text(alphabet="".join(map(chr, range(40, 120))), max_size=30))
def test_decode_of_any_text_raises_or_fits_size(counts):
    with suppress(ValueError):
        assert masks.decode({"size": [6, 7], "counts": counts}).shape == (6, 7)
        assert sum(masks.runs_of(counts)) == 42
    with pytest.raises(ValueError, match="are not COCO's run lengths of 1000000 × 1000000 pixels"):
        masks.decode({"size": [10**6, 10**6], "counts": counts})  # allocates nothing
