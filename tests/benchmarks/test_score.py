from pathlib import Path

import numpy as np
import pytest

from benchmarks import score


def test_both_evaluators_agree_on_masks_that_are_neither_right_nor_lost(tmp_path: Path):
    score.draw(tmp_path, sequences=2, frames=4)
    plain = score.plain(tmp_path)
    assert score.compare(score.ours(tmp_path), plain) <= score.AGREEMENT
    values = np.stack(list(plain.values()))  # [objects, J and F, frames]
    assert values.shape == (4, 2, 2)
    assert 0.2 < values.min() < 0.9
    assert values[:, 0].max() < 1


def test_scores_that_differ_end_the_benchmark():
    figures = {"a_1": np.ones((2, 3))}
    with pytest.raises(SystemExit, match=r"differ by 5\.0e-01"):
        score.compare(figures, {"a_1": np.full((2, 3), 0.5)})
    with pytest.raises(SystemExit, match="expected"):
        score.compare(figures, {})
