"""Label propagation, compared with a version that compares every patch with every patch."""

import weakref
from collections import deque
from dataclasses import replace
from functools import partial
from unittest import mock

import cv2
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dino_model.inference.resize import fed_size
from segmentation import propagation, tracking
from segmentation.labels import resize_nearest
from segmentation.propagation import (
    CRW,
    DINO,
    ColorPatches,
    Preset,
    propagate_step,
)
from segmentation.tracking import object_changes, propagate_masks


def propagate_frames(frames, mask, *settings, **options):
    return propagate_masks(lambda *_: frames, {0: mask}, *settings, **options)


def plain_step(target: Tensor, contexts: Tensor, labels: Tensor, preset: Preset) -> Tensor:
    """Compare one patch after the other with all patches of all contexts: [C, h, w]."""
    height, width, _ = target.shape
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    result = torch.empty(labels.shape[1], height, width)
    for row, column in np.ndindex(height, width):
        down, right = y - row, x - column
        if preset.window == "square":
            near = (down.abs() <= preset.radius) & (right.abs() <= preset.radius)
        else:
            near = (down**2 + right**2).sqrt() < preset.radius
        inside = near.expand(len(contexts), -1, -1).clone()
        inside[0] |= preset.first_unmasked
        similarity = (contexts @ target[row, column])[inside]
        values = similarity.sort(descending=True).values
        kept = similarity >= values[min(preset.topk, len(values)) - 1]
        weights = (similarity[kept] / preset.temperature).softmax(0)
        result[:, row, column] = labels.transpose(0, 1)[:, inside][:, kept] @ weights
    return result


presets = st.builds(
    partial(replace, DINO),
    radius=st.integers(1, 9),
    topk=st.integers(1, 12),
    window=st.sampled_from(["square", "disk"]),
    first_unmasked=st.booleans(),
)
grids = st.tuples(st.integers(1, 10), st.integers(1, 15))  # up to two tiles in both directions


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), grids, presets, st.booleans(), st.booleans())
def test_step_equals_all_patches_with_all_patches(seed, contexts, grid, preset, one_hot, dense):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(contexts + 1, *grid, 6, generator=generator)
    if one_hot:  # cosines of exactly 0 and 1, so that nearly all neighbors tie
        features = F.one_hot(features.argmax(-1), 6).float()
    features = F.normalize(features, dim=-1)
    step = features[0], features[1:], torch.rand(contexts, 3, *grid, generator=generator)
    with mock.patch.object(propagation, "DENSE_DEVICES", ("cpu",) if dense else ()):
        found = propagate_step(*step, preset)
    torch.testing.assert_close(found, plain_step(*step, preset), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dimension", [1, 7, 384])
def test_step_of_equal_frames_keeps_all_ties(dimension):
    frame = torch.randn(13, 17, dimension, generator=torch.Generator().manual_seed(dimension))
    frame = F.normalize(frame, dim=-1)
    labels = torch.arange(6.0)[:, None, None, None].expand(6, 1, 13, 17)
    # Every neighbor occurs in each of the six frames: the mean label is exactly that of all frames.
    found = propagate_step(frame, frame.expand(6, -1, -1, -1), labels, replace(DINO, radius=4))
    torch.testing.assert_close(found, torch.full((1, 13, 17), 2.5))


def test_step_of_black_frame_averages_window(monkeypatch):
    labels, black, preset = torch.rand(3, 2, 7, 6), torch.zeros(7, 6, 4), replace(DINO, radius=2)
    for neighbors_at_a_time in (1 << 18, 11):
        monkeypatch.setattr(propagation, "_NEIGHBORS_AT_A_TIME", neighbors_at_a_time)
        found = propagate_step(black, black.expand(3, -1, -1, -1), labels, preset)
        torch.testing.assert_close(found[:, 3, 3], labels[:, :, 1:6, 1:6].mean((0, 2, 3)))


def test_presets_have_the_values_of_the_evaluations_that_they_repeat():
    assert Preset("dino", 7, 12, "square", 5, 0.1, False, False, "nearest", min_max=True) == DINO
    assert Preset("crw", 20, 12, "disk", 10, 0.05, True, True, "bilinear", min_max=False) == CRW


@pytest.mark.parametrize("preset", [DINO, CRW], ids=lambda preset: preset.name)
def test_propagator_uses_first_and_latest_frames(preset):
    generator = torch.Generator().manual_seed(3)
    frames = list(F.normalize(torch.randn(24, 3, 4, 5, generator=generator), dim=-1))
    labels = torch.rand(2, 3, 4, generator=generator)
    propagator = propagation.Propagator(frames[0], labels, preset)
    latest: deque[tuple[Tensor, Tensor]] = deque(maxlen=preset.previous)
    if preset.repeat_first:
        latest.extend([(frames[0], labels)] * preset.previous)
    for frame in frames[1:]:
        contexts, known = (torch.stack(part) for part in zip((frames[0], labels), *latest, strict=True))
        expected = plain_step(frame, contexts, known, preset)
        torch.testing.assert_close(propagator.step(frame), expected, rtol=0, atol=1e-5)
        latest.append((frame, expected))


@pytest.mark.parametrize("preset", [DINO, CRW], ids=lambda preset: preset.name)
@pytest.mark.parametrize("size", [(96, 96), (170, 96)], ids=["square", "portrait"])
def test_static_video_keeps_labels(preset, size):
    frame = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    mask = np.zeros(size, np.uint8)
    mask[10:50, 40:80], mask[60:90, 8:40], mask[1, 1], mask[:, 94:] = 1, 5, 2, 255
    fed = fed_size(*size, 96, "davis", 8)  # a square input is fed as 96 × 64 pixels
    assert propagation.vanished_objects(mask, ColorPatches(size=96)) == (2,)
    first, *others = propagate_frames([frame] * 12, mask, ColorPatches(size=96), preset)
    np.testing.assert_array_equal(first, np.where(mask == 255, 0, mask))
    winners = propagation.hard_labels(propagation.grid_labels(mask, (1, 2, 5), fed, 8, preset), 8, preset)
    through_the_grid = resize_nearest(np.array([0, 1, 2, 5], np.uint8)[winners], size)
    assert (through_the_grid == first).mean() > 0.85
    assert len(others) == 11
    for labels in others:
        assert (labels == through_the_grid).mean() > 0.99
        assert set(np.unique(labels)) <= {0, 1, 5}


def test_grid_labels_of_padded_input_keep_position():
    mask = np.zeros((100, 140), np.uint8)
    mask[60:, 100:] = 1
    grid = propagation.grid_labels(mask, (1,), (100, 140), 14)  # 12 pixels of padding
    assert grid.shape == (2, 8, 10)
    assert (propagation.hard_labels(grid, 14)[:100, :140] == mask).mean() > 0.95
    assert not grid[1, 7, 9]  # the center of the last patch is in the padding
    rows = np.repeat(np.arange(10, dtype=np.uint8)[:, None] < 4, 8, axis=1).astype(np.uint8)
    grid = propagation.grid_labels(
        rows, (1,), (9, 8), 8, CRW
    )  # 10 of 18 rows, of which the grid takes 4 and 13
    assert not grid[1].any()


def test_hard_labels_are_largest_scaled_channel():
    soft = torch.rand(4, 5, 7, generator=torch.Generator().manual_seed(0))
    soft[2] = 0  # an object that is nowhere
    soft[3] = 0.4  # a constant channel has no range to scale
    large = F.interpolate(soft[None], scale_factor=8, mode="bilinear", align_corners=False)[0]
    for channel in (0, 1):
        large[channel] -= large[channel].min()
        large[channel] /= large[channel].max()
    np.testing.assert_array_equal(propagation.hard_labels(soft, 8), large.argmax(0).numpy())
    assert not propagation.hard_labels(soft[:1].expand(2, -1, -1), 8).any()  # of equal ones the first


def test_overlap_changes_no_label_and_holds_few_frames():
    images = np.random.default_rng(0).integers(0, 256, (60, 64, 64, 3), dtype=np.uint8)
    mask, held = np.pad(np.ones((32, 32), np.uint8), 16), []

    def frames():
        for image in images:
            frame = image.copy()
            held.append(weakref.ref(frame))
            yield frame
            del frame

    found = propagate_frames(frames(), mask, ColorPatches(size=64), batch=4, overlap=True)
    for labels, expected in zip(found, propagate_frames(images, mask, ColorPatches(size=64)), strict=True):
        np.testing.assert_array_equal(labels, expected)
        assert sum(frame() is not None for frame in held) <= 3 * 4 + 3  # waiting, in work, and in hand


def test_wrong_input_raises_value_error():
    with pytest.raises(ValueError, match="infinite or undefined"):
        propagation.Propagator(torch.full((4, 5, 6), torch.nan), torch.rand(3, 4, 5))
    frames, mask = [np.zeros((rows, 64, 3), np.uint8) for rows in (64, 32)], np.ones((64, 64), np.uint8)
    with pytest.raises(ValueError, match="frame 1 is 64x32"):
        list(propagate_frames(frames, mask, ColorPatches(size=64)))
    with pytest.raises(ValueError, match="no object"):
        list(propagate_frames(frames, mask * 0, ColorPatches(size=64)))


def moving_boxes(count: int, noise: int = 1) -> tuple[list[np.ndarray], np.ndarray]:
    """Draw frames of two textured boxes that move over a background, and their labels 1 and 4."""
    rng = np.random.default_rng(0)
    sizes = (64, 128), (24, 24), (16, 32)
    background, one, other = (rng.integers(0, 256, (*size, 3), np.uint8) for size in sizes)
    labels, frames = np.zeros((count, 64, 128), np.uint8), []
    for number in range(count):
        frame = background.copy()
        for label, box, top, left in ((1, one, 8, 8 + 8 * number), (4, other, 40, 80 - 8 * number)):
            place = slice(top, top + box.shape[0]), slice(left, left + box.shape[1])
            frame[place], labels[number][place] = box, label
        noisy = frame + rng.integers(0, noise, frame.shape)
        frames.append(noisy.clip(0, 255).astype(np.uint8))
    return frames, labels


def label_all(frames: list[np.ndarray], masks: dict[int, np.ndarray], **options) -> np.ndarray:
    def read(start: int, stop: int | None) -> list[np.ndarray]:
        return frames[start:stop]

    return np.stack(list(propagate_masks(read, masks, ColorPatches(64), **options)))


def test_mask_of_last_frame_is_propagated_backward_as_forward_in_the_reversed_video():
    frames, labels = moving_boxes(9)
    backward = label_all(frames, {8: labels[8]})
    forward = np.stack(list(propagate_frames(frames[::-1], labels[8], ColorPatches(64))))
    np.testing.assert_array_equal(backward, forward[::-1])


def test_mask_decides_all_objects_of_its_frame_or_only_the_given_ones():
    frames, labels = moving_boxes(9)
    first, later = (np.where(labels[k] == label, label, 0).astype(np.uint8) for k, label in ((0, 1), (4, 4)))
    masks = {0: first, 4: later, 7: 0 * later}
    found = label_all(frames, masks)
    assert [sorted({*np.unique(each)} - {0}) for each in found] == [[1]] * 4 + [[4]] * 3 + [[]] * 2
    both = label_all(frames, {0: first, 4: later}, objects={0: (1,), 4: (4,)})
    for label, pixels in ((1, 576), (4, 512)):  # 4 is found before its mask, and 1 continues through that
        assert ((both == label) & (labels == label)).sum((1, 2))[1:].min() > 0.8 * pixels
    np.testing.assert_array_equal(both[4] == 4, later == 4)
    assert [text for _, text in object_changes(masks)] == [
        "object 1 ends, object 4 begins",
        "object 4 ends",
    ]


def test_correction_wins_from_its_frame():
    frames, labels = moving_boxes(9)
    wrong = np.zeros_like(labels[0])
    wrong[40:60, 40:60] = 1
    corrected = label_all(frames, {0: wrong, 6: labels[6]})
    np.testing.assert_array_equal(corrected[6:], label_all(frames[6:], {0: labels[6]}))


def test_nearer_of_two_masks_that_disagree_has_the_larger_weight():
    frames, labels = moving_boxes(1)
    masks = [np.where(labels[0] == label, 1, 0).astype(np.uint8) for label in (1, 4)]
    found = label_all(frames * 6, {0: masks[0], 5: masks[1]})
    shares = np.stack([(found * mask).sum((1, 2)) / mask.sum() for mask in masks])
    assert (shares[0] > shares[1]).tolist() == [True] * 3 + [False] * 3
    assert not shares[1, :2].any()
    assert not shares[0, 4:].any()


def test_more_masks_raise_the_agreement_and_frames_are_read_backward_in_pieces(monkeypatch):
    frames, labels = moving_boxes(10, noise=600)
    agreement = [
        (label_all(frames, {number: labels[number] for number in numbers}) == labels).mean()
        for numbers in ((0,), (0, 5), (0, 5, 9))
    ]
    assert agreement[0] + 0.01 < agreement[1] < agreement[2]
    whole = label_all(frames, {9: labels[9]})
    monkeypatch.setattr(tracking, "_FRAMES_AT_ONCE", 3)
    np.testing.assert_array_equal(label_all(frames, {9: labels[9]}), whole)
    with pytest.raises(ValueError, match="a mask belongs to frame 12, but the last frame is 9"):
        label_all(frames, {12: labels[9]})
    with pytest.raises(ValueError, match="the mask of frame 3 is 64x64 pixels, the first mask 128x64"):
        label_all(frames, {0: labels[0], 3: labels[0][:, :64]})


def test_colors_of_a_patch_are_padded_by_the_edge_and_without_the_mean_patch():
    frames = np.random.default_rng(0).integers(0, 256, (2, 60, 150, 3), np.uint8)
    source = ColorPatches(64, patch_size=7)
    height, width = propagation.input_size(frames[0].shape, source)
    rows, columns = -(-height // 7), -(-width // 7)
    assert (height % 7, width % 7, rows, columns) == (1, 2, 10, 19)
    expected = np.empty((2, rows, columns, 7, 7, 3))
    for number, frame in enumerate(frames):
        resized = cv2.resize(frame, (width, height))
        for row, column, y, x in np.ndindex(expected.shape[1:-1]):
            pixel = min(7 * row + y, height - 1), min(7 * column + x, width - 1)
            expected[number, row, column, y, x] = resized[pixel]
    expected = expected.reshape(2, rows, columns, -1) / 255
    expected -= expected.mean(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(source.features(list(frames)), expected, atol=1e-5)
