"""Example clips of the page and of the lesson about video."""

import numpy as np
import pytest

from segmentation.example_clips import FPS, draw_frames, draw_masks

CLIPS = {
    "sheep": ([52.69, 54.07, 58.23], [9480, 10055, 12813]),
    "macaw": ([54.58, 54.64, 54.54], [2131, 2627, 4739]),
    "shepherd": ([57.26, 56.89, 56.47], [4263, 5121, 8331]),
}
"""Of frames 0, 7 and 29: means of the pixels, and sums of the labels, both weighted at random."""


@pytest.mark.parametrize("name", CLIPS)
def test_clip_shows_its_actors_at_their_places(name: str):
    frames, masks = draw_frames(name), draw_masks(name)
    assert (len(frames), len(masks), FPS) == (30, 30, 12)
    weights = np.random.default_rng(9).random((2, 240, 416))
    means, sums = CLIPS[name]
    assert [(frames[at].mean(axis=-1) * weights[0]).mean() for at in (0, 7, 29)] == pytest.approx(
        means, abs=0.01
    )
    assert [(masks[at] * weights[1]).sum() for at in (0, 7, 29)] == pytest.approx(sums, abs=3)
