"""J, F and their statistics, judged by whole-frame versions written from their definitions."""

from math import ceil, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.ndimage import binary_dilation

from segmentation.metrics import contour_match, contour_radius, jaccard, statistics, trace


def reference_contour(mask: np.ndarray) -> np.ndarray:
    """Mark pixels unlike their right, lower or lower-right neighbor, pixel by pixel."""
    height, width = mask.shape
    found = np.zeros_like(mask)
    for y, x in np.ndindex(mask.shape):
        places = [(y, x + 1), (y + 1, x), (y + 1, x + 1)]
        found[y, x] = any(
            mask[place] != mask[y, x] for place in places if place[0] < height and place[1] < width
        )
    return found


@st.composite
def three_masks(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Prediction, ground truth and void of one size: noise, boxes, full or empty."""
    shape = draw(st.tuples(st.integers(1, 18), st.integers(1, 18)))

    def mask() -> np.ndarray:
        kind = draw(st.sampled_from(["noise", "box", "full", "empty"]))
        if kind == "noise":
            return draw(arrays(bool, shape))
        filled = np.zeros(shape, bool)
        if kind == "box":
            top, left = draw(st.integers(0, shape[0])), draw(st.integers(0, shape[1]))
            filled[top : top + draw(st.integers(1, 9)), left : left + draw(st.integers(1, 9))] = True
        return ~filled if kind == "full" else filled

    return mask(), mask(), mask()


@given(three_masks(), st.integers(1, 4))
def test_contour_accuracy_equals_whole_frame_reference(masks: tuple[np.ndarray, ...], radius: int):
    prediction, truth, _ = masks
    y, x = np.ogrid[-radius : radius + 1, -radius : radius + 1]
    edges = [reference_contour(mask) for mask in (prediction, truth)]
    reach = [binary_dilation(edge, x**2 + y**2 <= radius**2) for edge in edges]
    counts = [edge.sum() for edge in edges]
    hits = (edges[0] & reach[1]).sum(), (edges[1] & reach[0]).sum()
    expected = float(counts[0] == counts[1])
    if all(counts):
        precision, recalled = hits[0] / counts[0], hits[1] / counts[1]
        expected = 2 * precision * recalled / max(precision + recalled, 1e-12)
    found = contour_match(trace(prediction, radius), trace(truth, radius))
    assert found == pytest.approx(expected, abs=1e-9)


def test_contours_match_within_a_circle():
    prediction, truth = np.zeros((2, 40, 40), bool)
    prediction[20, 20] = truth[26, 26] = True  # the nearest of their contours are 5 pixels apart on each axis
    assert contour_match(trace(prediction, 7), trace(truth, 7)) == 0
    assert contour_match(trace(prediction, 8), trace(truth, 8)) > 0
    assert contour_radius(480, 854) == 8 == ceil(0.008 * sqrt(480**2 + 854**2))


@given(three_masks())
def test_jaccard_equals_pixel_counts(masks: tuple[np.ndarray, ...]):
    prediction, truth, void = masks
    counted = [(a, b) for a, b, c in zip(*(mask.ravel().tolist() for mask in masks), strict=True) if not c]
    union = sum(a or b for a, b in counted)
    expected = sum(a and b for a, b in counted) / union if union else 1.0
    assert jaccard(prediction, truth, void) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("frames", [1, 4, 5, 256, 1000])
def test_decay_is_first_quarter_minus_last_at_any_length(frames: int):
    values = np.random.default_rng(frames).random(frames)
    edges = [int(np.floor(1 + k * (frames - 1) / 4 + 0.5 + 1e-10)) - 1 for k in range(5)]
    first, last = values[edges[0] : edges[1] + 1], values[edges[3] : edges[4] + 1]
    assert statistics(values)["decay"] == pytest.approx(first.mean() - last.mean(), abs=1e-12)


def test_jaccard_of_wrong_masks_raises_value_error():
    mask = np.zeros((4, 5), bool)
    with pytest.raises(ValueError, match="type uint8"):
        jaccard(mask.astype(np.uint8), mask)
    with pytest.raises(ValueError, match="same height and width"):
        jaccard(mask, mask.T)


def test_statistics_are_mean_strict_recall_and_decay():
    found = statistics(np.array([1.0, 0.8, 0.2, 0.5, 0.0]))
    assert found == pytest.approx({"mean": 0.5, "recall": 0.4, "decay": 0.65})
