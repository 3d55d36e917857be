"""Label propagation, judged by a version that compares every patch with every patch."""

import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dino_model.resize import fed_size
from segmentation import propagation
from segmentation.labels import resize_nearest
from segmentation.propagation import (
    CRW,
    DINO,
    ColorPatches,
    Preset,
    Propagator,
    grid_labels,
    hard_labels,
    propagate_frames,
    propagate_step,
    vanished_objects,
)


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


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    contexts=st.integers(1, 4),
    grid=st.tuples(st.integers(1, 10), st.integers(1, 15)),  # up to two tiles in both directions
    radius=st.integers(1, 9),
    topk=st.integers(1, 12),
    window=st.sampled_from(["square", "disk"]),
    first_unmasked=st.booleans(),
    one_hot=st.booleans(),  # cosines of exactly 0 and 1, so that nearly all neighbors tie
)
def test_step_equals_all_patches_with_all_patches(
    seed, contexts, grid, radius, topk, window, first_unmasked, one_hot
):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(contexts + 1, *grid, 6, generator=generator)
    if one_hot:
        features = F.one_hot(features.argmax(-1), 6).float()
    features = F.normalize(features, dim=-1)
    labels = torch.rand(contexts, 3, *grid, generator=generator)
    preset = replace(DINO, radius=radius, topk=topk, window=window, first_unmasked=first_unmasked)
    step = features[0], features[1:], labels
    torch.testing.assert_close(propagate_step(*step, preset), plain_step(*step, preset), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dimension", [1, 7, 384])
def test_step_of_equal_frames_keeps_all_ties(dimension: int):
    frame = torch.randn(13, 17, dimension, generator=torch.Generator().manual_seed(dimension))
    frame = F.normalize(frame, dim=-1)
    labels = torch.arange(6.0)[:, None, None, None].expand(6, 1, 13, 17)
    # Every neighbor occurs six times, once per frame: the mean label is exactly that of all frames.
    found = propagate_step(frame, frame.expand(6, -1, -1, -1), labels, replace(DINO, radius=4))
    torch.testing.assert_close(found, torch.full((1, 13, 17), 2.5))


def test_step_of_black_frame_averages_window(monkeypatch: pytest.MonkeyPatch):
    labels, black, preset = torch.rand(3, 2, 7, 6), torch.zeros(7, 6, 4), replace(DINO, radius=2)
    whole = propagate_step(black, black.expand(3, -1, -1, -1), labels, preset)
    torch.testing.assert_close(whole[:, 3, 3], labels[:, :, 1:6, 1:6].mean((0, 2, 3)))
    monkeypatch.setattr(propagation, "_NEIGHBORS_AT_A_TIME", 11)
    pieces = propagate_step(black, black.expand(3, -1, -1, -1), labels, preset)
    torch.testing.assert_close(pieces, whole)


@pytest.mark.parametrize("preset", [DINO, CRW], ids=lambda preset: preset.name)
def test_propagator_uses_first_and_latest_frames(preset: Preset):
    generator = torch.Generator().manual_seed(3)
    frames = list(F.normalize(torch.randn(24, 3, 4, 5, generator=generator), dim=-1))
    labels = torch.rand(2, 3, 4, generator=generator)
    propagator = Propagator(frames[0], labels, preset)
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
def test_static_video_keeps_labels(preset: Preset, size: tuple[int, int]):
    rng = np.random.default_rng(0)
    frame = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
    mask = np.zeros(size, np.uint8)
    mask[10:50, 40:80] = 1
    mask[60:90, 8:40] = 2
    found = list(propagate_frames([frame] * 12, mask, ColorPatches(size=96), preset))
    assert len(found) == 12
    np.testing.assert_array_equal(found[0], mask)
    # What patches of 8 pixels leave of the mask; a square input is fed as 96 × 64 pixels.
    fed = fed_size(*size, 96, "davis", 8)
    through_the_grid = resize_nearest(hard_labels(grid_labels(mask, (1, 2), fed, 8, preset), 8, preset), size)
    assert (through_the_grid == mask).mean() > 0.85
    for labels in found[1:]:
        assert labels.shape == size
        assert (labels == through_the_grid).mean() > 0.99


def test_object_smaller_than_patch_keeps_other_labels():
    frame = np.random.default_rng(2).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    mask = np.zeros((64, 64), np.uint8)
    mask[8:32, 8:32], mask[1, 1], mask[40:60, 30:60], mask[:, 62:] = 1, 2, 5, 255
    assert vanished_objects(mask, (64, 64), 8) == (2,)
    found = list(propagate_frames([frame] * 3, mask, ColorPatches(size=64)))
    assert set(np.unique(found[0])) == {0, 1, 2, 5}  # void is background
    assert set(np.unique(found[-1])) == {0, 1, 5}
    assert found[-1][20, 20] == 1
    assert found[-1][50, 50] == 5


def test_grid_labels_of_padded_input_keep_position():
    mask = np.zeros((100, 140), np.uint8)
    mask[60:, 100:] = 1
    grid = grid_labels(mask, (1,), (100, 140), 14)  # 8 × 10 patches: 12 pixels of padding at the bottom
    assert grid.shape == (2, 8, 10)
    large = hard_labels(grid, 14)[:100, :140]
    assert (large == mask).mean() > 0.95
    assert not grid[1, 7, 9]  # the centre of the last patch lies in the padding


def test_hard_labels_are_largest_scaled_channel():
    soft = torch.rand(4, 5, 7, generator=torch.Generator().manual_seed(0))
    soft[2] = 0  # an object that is nowhere
    soft[3] = 0.4  # a constant channel has no range to stretch
    large = F.interpolate(soft[None], scale_factor=8, mode="bilinear", align_corners=False)[0]
    for channel in (0, 1):
        large[channel] -= large[channel].min()
        large[channel] /= large[channel].max()
    np.testing.assert_array_equal(hard_labels(soft, 8), large.argmax(0).numpy())


class CountedFrames:
    """Random frames that know how many of them are alive."""

    def __init__(self) -> None:
        self.alive, self.most = 0, 0

    def __iter__(self) -> Iterator[np.ndarray]:
        for number in range(60):
            frame = np.random.default_rng(number).integers(0, 256, (64, 64, 3), dtype=np.uint8).view()
            self.alive += 1
            self.most = max(self.most, self.alive)
            weakref.finalize(frame, self._gone)
            yield frame
            del frame

    def _gone(self) -> None:
        self.alive -= 1


def test_overlap_changes_no_label_and_holds_few_frames():
    mask = np.zeros((64, 64), np.uint8)
    mask[8:40, 8:40] = 1
    frames, source = CountedFrames(), ColorPatches(size=64)
    plain = list(propagate_frames(CountedFrames(), mask, source, batch=4))
    found = list(propagate_frames(frames, mask, source, batch=4, overlap=True))
    np.testing.assert_array_equal(found, plain)
    assert frames.most <= 3 * 4 + 3  # a batch that waits, one in work, and what is in hand


def test_wrong_input_raises_value_error():
    with pytest.raises(ValueError, match="infinite or undefined"):
        Propagator(torch.full((4, 5, 6), torch.nan), torch.rand(3, 4, 5))
    frames = [np.zeros((64, 64, 3), np.uint8), np.zeros((32, 64, 3), np.uint8)]
    mask = np.ones((64, 64), np.uint8)
    with pytest.raises(ValueError, match="frame 1 is 32x64"):
        list(propagate_frames(frames, mask, ColorPatches(size=64)))
    with pytest.raises(ValueError, match="no object"):
        list(propagate_frames(frames, mask * 0, ColorPatches(size=64)))
