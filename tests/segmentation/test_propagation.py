"""Label propagation, judged by a version that compares every patch with every patch."""

import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from dino_model.resize import fed_size
from segmentation import propagation
from segmentation.labels import object_ids, resize_nearest
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


def plain_step(
    target: Tensor,
    contexts: Tensor,
    labels: Tensor,
    radius: int,
    topk: int,
    temperature: float,
    window: str = "square",
    first_unmasked: bool = False,
    keep_ties: bool = True,
) -> Tensor:
    """One patch after the other, against all patches of all contexts: [C, h, w]."""
    height, width, _ = target.shape
    target, contexts = F.normalize(target, dim=-1), F.normalize(contexts, dim=-1)
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    result = torch.empty(labels.shape[1], height, width)
    for row in range(height):
        for column in range(width):
            down, right = y - row, x - column
            if window == "square":
                near = (down.abs() <= radius) & (right.abs() <= radius)
            else:
                near = (down**2 + right**2).sqrt() < radius
            inside = near.expand(len(contexts), -1, -1).clone()
            if first_unmasked:
                inside[0] = True
            similarity = (contexts @ target[row, column])[inside]
            values, order = similarity.sort(descending=True)
            kept = order[:topk]
            if keep_ties:
                kept = order[values >= values[min(topk, len(values)) - 1]]
            weights = (similarity[kept] / temperature).softmax(0)
            result[:, row, column] = labels.transpose(0, 1)[:, inside][:, kept] @ weights
    return result


def random_step(
    seed: int, contexts: int, grid: tuple[int, int], one_hot: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Features of a target and its contexts, and soft labels of three channels.

    One-hot features have cosines of exactly 0 and 1, so that nearly everything ties with something.
    """
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(contexts + 1, *grid, 6, generator=generator)
    if one_hot:
        features = F.one_hot(features.argmax(-1), 6).float()
    labels = torch.rand(contexts, 3, *grid, generator=generator)
    return features[0], features[1:], labels


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    contexts=st.integers(1, 5),
    grid=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    tile=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    radius=st.integers(1, 9),
    topk=st.integers(1, 12),
    window=st.sampled_from(["square", "disk"]),
    first_unmasked=st.booleans(),
    one_hot=st.booleans(),
)
def test_a_step_is_that_of_all_patches_with_all_patches(
    seed: int,
    contexts: int,
    grid: tuple[int, int],
    tile: tuple[int, int],
    radius: int,
    topk: int,
    window: propagation.Window,
    first_unmasked: bool,
    one_hot: bool,
):
    step = random_step(seed, contexts, grid, one_hot)
    found = propagate_step(
        *step,
        radius=radius,
        topk=topk,
        temperature=0.1,
        window=window,
        first_unmasked=first_unmasked,
        tile=tile,
    )
    expected = plain_step(*step, radius, topk, 0.1, window, first_unmasked)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_of_equal_frames_all_are_kept_where_a_plain_top_k_would_choose():
    target, contexts, labels = random_step(1, 1, (8, 9), one_hot=False)
    contexts, labels = contexts.expand(8, -1, -1, -1), torch.rand(8, 3, 8, 9)
    found = propagate_step(target, contexts, labels, radius=3, topk=5)
    torch.testing.assert_close(found, plain_step(target, contexts, labels, 3, 5, 0.1), rtol=0, atol=1e-5)
    chosen = plain_step(target, contexts, labels, 3, 5, 0.1, keep_ties=False)
    assert ((found - chosen).abs().amax(0) > 1e-3).float().mean() > 0.9


@pytest.mark.parametrize("dimension", [1, 3, 7, 24, 33, 384])
def test_equal_frames_tie_exactly_whatever_the_number_of_channels(dimension: int):
    frame = torch.randn(13, 17, dimension, generator=torch.Generator().manual_seed(dimension))
    labels = torch.arange(6.0)[:, None, None, None].expand(6, 1, 13, 17)
    # Every neighbour comes six times, once per frame: the mean label is exactly that of all frames.
    found = propagate_step(frame, frame.expand(6, -1, -1, -1), labels, radius=4, topk=5, tile=(5, 4))
    torch.testing.assert_close(found, torch.full((1, 13, 17), 2.5))


def test_a_black_frame_takes_the_mean_of_its_window(monkeypatch: pytest.MonkeyPatch):
    labels = torch.rand(3, 2, 7, 6)
    black = torch.zeros(7, 6, 4)
    whole = propagate_step(black, black.expand(3, -1, -1, -1), labels, radius=2, topk=5)
    torch.testing.assert_close(whole[:, 3, 3], labels[:, :, 1:6, 1:6].mean((0, 2, 3)))
    monkeypatch.setattr(propagation, "_NEIGHBORS_AT_A_TIME", 11)
    pieces = propagate_step(black, black.expand(3, -1, -1, -1), labels, radius=2, topk=5)
    torch.testing.assert_close(pieces, whole)


def plain_video(frames: Sequence[Tensor], labels: Tensor, preset: Preset) -> list[Tensor]:
    """Every frame from the first one and a queue of the latest."""
    queue: deque[tuple[Tensor, Tensor]] = deque(maxlen=preset.previous)
    if preset.repeat_first:
        queue.extend([(frames[0], labels)] * preset.previous)
    found = []
    for frame in frames[1:]:
        known = [(frames[0], labels), *queue]
        contexts, given_labels = (torch.stack(part) for part in zip(*known, strict=True))
        soft = plain_step(
            frame,
            contexts,
            given_labels,
            preset.radius,
            preset.topk,
            preset.temperature,
            preset.window,
            preset.first_unmasked,
        )
        queue.append((frame, soft))
        found.append(soft)
    return found


@pytest.mark.parametrize("preset", [DINO, CRW], ids=lambda preset: preset.name)
def test_a_video_looks_at_its_first_frame_and_the_latest_ones(preset: Preset):
    generator = torch.Generator().manual_seed(3)
    frames = list(torch.randn(12 if preset is DINO else 24, 3, 4, 5, generator=generator))
    labels = torch.rand(2, 3, 4, generator=generator)
    propagator = Propagator(frames[0], labels, preset)
    for frame, expected in zip(frames[1:], plain_video(frames, labels, preset), strict=True):
        torch.testing.assert_close(propagator.step(frame), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("preset", [DINO, CRW], ids=lambda preset: preset.name)
@pytest.mark.parametrize("size", [(96, 96), (96, 170), (170, 96)], ids=["square", "landscape", "portrait"])
def test_a_static_video_keeps_its_labels(preset: Preset, size: tuple[int, int]):
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


def test_a_moving_object_is_followed():
    rng = np.random.default_rng(1)
    background = rng.integers(0, 256, (96, 160, 3), dtype=np.uint8)
    thing = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
    frames, masks = [], []
    for step in range(6):
        frame, mask = background.copy(), np.zeros((96, 160), np.uint8)
        place = slice(32, 64), slice(16 + 16 * step, 48 + 16 * step)
        frame[place], mask[place] = thing, 7
        frames.append(frame)
        masks.append(mask)
    # At short side 96 nothing is resized in height; in width 160 becomes 128.
    wide = [
        np.asarray(Image.fromarray(frame).resize((192, 96), Image.Resampling.NEAREST)) for frame in frames
    ]
    large = [resize_nearest(mask, (96, 192)) for mask in masks]
    found = list(propagate_frames(wide, large[0], ColorPatches(size=96)))
    assert set(np.unique(found[-1])) == {0, 7}
    assert ((found[-1] == 7) & (large[-1] == 7)).sum() / ((found[-1] == 7) | (large[-1] == 7)).sum() > 0.5


def test_an_object_too_small_for_the_grid_leaves_the_others_their_labels():
    frame = np.random.default_rng(2).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    mask = np.zeros((64, 64), np.uint8)
    mask[8:32, 8:32], mask[1, 1], mask[40:60, 30:60] = 1, 2, 5
    assert vanished_objects(mask, (64, 64), 8) == (2,)
    found = list(propagate_frames([frame] * 3, mask, ColorPatches(size=64)))
    assert set(np.unique(found[-1])) == {0, 1, 5}
    assert found[-1][20, 20] == 1
    assert found[-1][50, 50] == 5


def test_void_in_the_first_mask_is_background_and_no_object():
    frame = np.random.default_rng(2).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    mask = np.full((64, 64), 255, np.uint8)
    mask[8:40, 8:40] = 1
    assert object_ids(mask) == (1,)
    found = list(propagate_frames([frame] * 2, mask, ColorPatches(size=64)))
    assert set(np.unique(found[0])) == {0, 1}
    assert set(np.unique(found[1])) == {0, 1}
    assert len(grid_labels(mask, (1,), (64, 64), 8)) == 2


def test_the_grid_of_the_first_mask_is_its_nearest_pixels():
    mask = np.random.default_rng(4).integers(0, 4, (61, 83), dtype=np.uint8)
    found = grid_labels(mask, (1, 2, 3), (64, 64), 8)
    expected = np.asarray(Image.fromarray(mask).resize((8, 8), Image.Resampling.NEAREST))
    np.testing.assert_array_equal(found.argmax(0).numpy(), expected)
    assert torch.equal(found.sum(0), torch.ones(8, 8))


def test_labels_stand_where_they_stood_when_the_picture_is_padded_to_whole_patches():
    mask = np.zeros((100, 140), np.uint8)
    mask[60:, 100:] = 1
    grid = grid_labels(mask, (1,), (100, 140), 14)  # 8 × 10 patches: 12 pixels of padding at the bottom
    assert grid.shape == (2, 8, 10)
    large = hard_labels(grid, 14)[:100, :140]
    assert (large == mask).mean() > 0.95
    assert not grid[1, 7, 9]  # the centre of the last patch lies in the padding


def test_hard_labels_are_the_largest_channel_after_stretching():
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

    def __init__(self, count: int) -> None:
        self.count, self.alive, self.most, self.read = count, 0, 0, 0

    def __iter__(self) -> Iterator[np.ndarray]:
        for number in range(self.count):
            frame = np.random.default_rng(number).integers(0, 256, (64, 64, 3), dtype=np.uint8)
            kept = frame.view()
            self.alive += 1
            self.read += 1
            self.most = max(self.most, self.alive)
            weakref.finalize(kept, self._gone)
            del frame
            yield kept
            del kept

    def _gone(self) -> None:
        self.alive -= 1


def test_a_long_video_is_read_as_it_is_labelled():
    mask = np.zeros((64, 64), np.uint8)
    mask[8:40, 8:40] = 1
    frames = CountedFrames(300)
    labelled = propagate_frames(frames, mask, ColorPatches(size=64), batch=4)
    assert frames.read == 0
    next(labelled)
    assert frames.read == 4
    assert sum(1 for _ in labelled) == 299
    assert frames.most <= 9  # two batches and the one in hand


def test_reading_ahead_changes_no_label_and_holds_few_frames():
    mask = np.zeros((64, 64), np.uint8)
    mask[8:40, 8:40] = 1
    frames, source = CountedFrames(60), ColorPatches(size=64)
    plain = list(propagate_frames(CountedFrames(60), mask, source, batch=4))
    found = list(propagate_frames(frames, mask, source, batch=4, overlap=True))
    np.testing.assert_array_equal(found, plain)
    assert frames.most <= 3 * 4 + 3  # a batch that waits, one in work, and what is in hand


def test_leaving_a_video_early_stops_its_threads():
    mask = np.ones((64, 64), np.uint8)
    before = threading.active_count()
    labelled = propagate_frames(CountedFrames(300), mask, ColorPatches(size=64), overlap=True)
    next(labelled)
    labelled.close()
    assert threading.active_count() == before


def test_what_does_not_fit_is_refused_in_words():
    target, contexts, labels = random_step(0, 2, (4, 5), one_hot=False)
    with pytest.raises(ValueError, match="one grid"):
        propagate_step(target, contexts[:, :3], labels)
    with pytest.raises(ValueError, match="2 contexts on a grid of 4x5"):
        propagate_step(target, contexts, labels[:1])
    with pytest.raises(ValueError, match="topk 0"):
        propagate_step(target, contexts, labels, topk=0)
    with pytest.raises(ValueError, match="'round'"):
        propagate_step(target, contexts, labels, window="round")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="infinite or undefined"):
        Propagator(target * torch.nan, labels[0])
    frames = [np.zeros((64, 64, 3), np.uint8), np.zeros((32, 64, 3), np.uint8)]
    mask = np.ones((64, 64), np.uint8)
    with pytest.raises(ValueError, match="frame 1 is 32x64"):
        list(propagate_frames(frames, mask, ColorPatches(size=64)))
    with pytest.raises(ValueError, match="no object"):
        list(propagate_frames(frames, mask * 0, ColorPatches(size=64)))
