import pytest
import torch
from torch.nn.functional import normalize

from benchmarks import propagation


@pytest.fixture(autouse=True)
def _small_grid(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(propagation, "ROWS", 15)
    monkeypatch.setattr(propagation, "COLUMNS", 28)
    monkeypatch.setattr(propagation, "CHANNELS", 16)


def test_the_dense_reference_and_the_tiles_give_the_same_labels():
    target, contexts, labels = propagation.frames("cpu")
    plain = propagation.dense(target, contexts, labels, propagation.square_window())
    tiled = propagation.tiled(target, normalize(contexts, dim=-1), labels)
    torch.testing.assert_close(tiled, plain, rtol=0, atol=1e-5)
    assert plain.std() > 0.05  # the labels are not all alike


def test_the_window_of_the_reference_is_a_square():
    window = propagation.square_window().unflatten(0, (15, 28)).unflatten(2, (15, 28))
    assert window[14, 27, 2, 15] == 1
    assert window[14, 27, 1, 27] == 0
    assert window[14, 27, 14, 14] == 0


def test_only_near_ties_may_differ(monkeypatch: pytest.MonkeyPatch):
    assert "0 of 420 patches" in propagation.compare("cpu")[1]
    monkeypatch.setattr(propagation, "AGREEMENT", -1.0)
    with pytest.raises(SystemExit, match="420 patches differ"):
        propagation.compare("cpu")


def test_a_near_tie_is_counted_as_one():
    same = torch.ones(2, 15, 28, 3).double()
    assert propagation.near_ties(same[0, :1, 0], same, torch.tensor([[0, 0]])) == 1
    apart = torch.randn(2, 15, 28, 3, generator=torch.Generator().manual_seed(0)).double()
    assert propagation.near_ties(apart[0, :1, 0], apart, torch.tensor([[0, 0]])) == 0
