"""Attention maps and features of lesson 6."""

from pathlib import Path

import numpy as np

from dino_model.models.catalogue import EMBEDDED
from notebooks.execute import LESSONS
from tools import emergence


def test_emergence_of_the_shipped_model_equals_the_last_stored_checkpoint(tmp_path: Path, monkeypatch):
    name = tmp_path / "step-49696.safetensors"
    name.write_bytes(EMBEDDED["embedded-dino"].read_bytes())
    monkeypatch.setattr(emergence.photographs, "names", lambda: ("sheep", "kitten"))
    emergence.Emergence((name,), tmp_path / "out.npz").run()
    stored, computed = np.load(LESSONS / "emergence.npz"), np.load(tmp_path / "out.npz")
    names = list(emergence.photographs.table())
    chosen = [
        [n for n in names if emergence.photographs.table()[n].pin].index(n) for n in ("sheep", "kitten")
    ]
    assert computed["steps"].tolist() == [49696]
    np.testing.assert_array_equal(computed["masks"], stored["masks"][chosen])
    np.testing.assert_allclose(computed["maps"][-1], stored["maps"][-1][chosen], rtol=0.02, atol=1e-6)
    difference = computed["test"][-1].astype(int) - stored["test"][-1]
    assert np.abs(difference).max() <= 2
