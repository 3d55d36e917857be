"""J, F and their statistics, compared with versions written from their definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from benchmarks.score import contour_accuracy as plain_contour_accuracy
from segmentation.metrics import (
    class_jaccard,
    confusion,
    contour_accuracy,
    contour_radius,
    jaccard,
    statistics,
)

small, wide = (st.tuples(st.integers(1, 18), st.integers(*columns)) for columns in ((1, 18), (200, 400)))
three_masks = (small | wide).flatmap(lambda shape: st.tuples(*[arrays(bool, shape, fill=st.booleans())] * 3))


@settings(deadline=None)
@given(three_masks)
def test_contour_accuracy_equals_whole_frame_reference(masks):
    expected = plain_contour_accuracy(*masks[:2])
    assert contour_accuracy(*masks[:2]) == pytest.approx(expected, abs=1e-9)
    assert contour_radius(480, 854) == 8


@pytest.mark.parametrize("direction", [(0, 1), (0, -1), (1, 0), (-1, 0)])
def test_contours_match_up_to_0_008_of_the_diagonal_rounded_up_in_every_direction(direction):
    box = np.zeros((100, 500), bool)  # its tolerance is 4.08 pixels
    box[40:60, 200:230] = True
    near, far = (np.roll(box, np.multiply(direction, pixels), (0, 1)) for pixels in (5, 6))
    assert contour_accuracy(box, near) == contour_accuracy(near, box) == 1
    assert contour_accuracy(box, far) < 1


@settings(deadline=None)
@given(three_masks)
def test_jaccard_equals_pixel_counts(masks):
    prediction, truth, void = masks
    counted = [(a, b) for a, b, c in zip(*(mask.ravel().tolist() for mask in masks), strict=True) if not c]
    union = sum(a or b for a, b in counted)
    expected = sum(a and b for a, b in counted) / union if union else 1.0
    assert jaccard(prediction, truth, void) == pytest.approx(expected, abs=1e-12)


def test_jaccard_of_classes_counts_the_pixels_of_all_images_without_void():
    rng = np.random.default_rng(0)
    guess, truth = rng.choice([0, 3, 9], (2, 5, 6, 7)).astype(np.uint8)
    truth[truth == 9] = rng.choice([3, 255], (truth == 9).sum())
    found = class_jaccard(sum(confusion(*pair) for pair in zip(guess, truth, strict=True)))
    known = truth != 255
    expected = {}
    for label in (0, 3, 9):  # of which the truth has no 9
        union = known & ((guess == label) | (truth == label))
        expected[label] = (union & (guess == truth)).sum() / union.sum()
    assert found == pytest.approx(expected)


def test_jaccard_of_wrong_masks_raises_value_error():
    mask = np.zeros((4, 5), bool)
    with pytest.raises(ValueError, match="type uint8"):
        jaccard(mask.astype(np.uint8), mask)
    with pytest.raises(ValueError, match="same height and width"):
        jaccard(mask, mask.T)


@pytest.mark.parametrize("frames", [1, 4, 5, 256, 1000])
def test_statistics_are_mean_strict_recall_and_decay_at_any_length(frames):
    values = np.random.default_rng(frames).random(frames)
    values[0] = 0.5
    edges = [int(np.floor(1 + k * (frames - 1) / 4 + 0.5 + 1e-10)) - 1 for k in range(5)]
    first, last = values[edges[0] : edges[1] + 1], values[edges[3] : edges[4] + 1]
    recall = sum(value > 0.5 for value in values) / frames
    expected = {"mean": values.mean(), "recall": recall, "decay": first.mean() - last.mean()}
    assert statistics(values) == pytest.approx(expected, abs=1e-12)
