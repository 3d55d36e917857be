import pytest
import torch

from training import losses
from training.methods import diagnosis


def test_spread_is_one_for_random_directions_and_nothing_for_one():
    assert losses.spread(torch.randn(2, 4000, 64)).item() == pytest.approx(1, abs=0.01)
    same = torch.randn(64).expand(10, 64)
    assert losses.spread(same * torch.arange(1.0, 11)[:, None]).item() == pytest.approx(0, abs=1e-3)


def test_a_small_spread_is_named_with_its_remedy():
    assert diagnosis.sameness({"spread": 0.01}, "lower --lr").endswith("lower --lr")
    assert diagnosis.sameness({"spread": 0.2}, "lower --lr") is None
