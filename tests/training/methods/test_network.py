import pytest
import torch

from dino_model.models.backbones import BackboneConfig
from training.augmentation.randomness import Randomness
from training.methods.head import HeadConfig
from training.methods.network import StochasticDepth, create_network


def network(drop_path=0.5):
    config = BackboneConfig("vit_tiny", 8, 16, width=12, depth=3, heads=2, drop_path=drop_path)
    return create_network(config, HeadConfig(16, hidden=8, bottleneck=4))


def test_stochastic_depth_drops_its_share_and_keeps_the_mean():
    layer, numbers = StochasticDepth(0.3), torch.rand(20_000)
    layer.factors = layer.scale(numbers)
    kept = layer(torch.ones(20_000, 2, 3))
    assert kept.mean() == pytest.approx(1.0, abs=0.02)
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert torch.equal(kept[:, 0, 0] == 0, numbers < 0.3)
    assert StochasticDepth(0.25).scale(torch.tensor([0.2, 0.25, 0.3])).tolist() == pytest.approx(
        [0, 4 / 3, 4 / 3]
    )


def test_network_gives_each_layer_and_crop_own_random_numbers(monkeypatch):
    student, dealt, honest = network(), [], StochasticDepth.scale
    monkeypatch.setattr(StochasticDepth, "scale", lambda self, n: (dealt.append(n), honest(self, n))[1])
    views, locals_ = torch.randn(2, 4, 3, 16, 16), torch.randn(3, 4, 3, 8, 8)
    student(views, locals_, randomness=Randomness(0, 0, 0, 4))
    assert [len(numbers) for numbers in dealt] == [20] * 4  # each layer's, for all crops
    assert len(torch.cat(dealt).unique()) == 80


def test_network_in_training_without_randomness_raises():
    views = torch.randn(1, 4, 3, 16, 16)
    with pytest.raises(RuntimeError, match="has no random numbers for 4 crops: pass randomness"):
        network()(views)
    network(drop_path=0.0)(views)
    network().eval()(views)
