"""One pass of all crops against a pass for each size."""

import pytest
import torch

from dino_model.models.backbones import BackboneConfig
from dino_model.runtime.device import autocast
from training.methods.head import HeadConfig
from training.methods.network import cls_tokens, create_network
from training.randomness import Randomness

CPU = torch.device("cpu")


def outputs_and_gradients(one_pass, precision, **settings):
    """Bottlenecks of four crops of two sizes, and the gradient of every weight."""
    torch.manual_seed(0)
    config = BackboneConfig("vit_tiny", 8, 32, width=24, depth=3, heads=3, drop_path=0.3, **settings)
    network = create_network(config, HeadConfig(16, hidden=8, bottleneck=4))
    network.one_pass = one_pass
    crops = torch.randn(2, 5, 3, 32, 32), torch.randn(3, 5, 3, 16, 16)
    visible = torch.rand(2, 5, 16).argsort()[..., :9]
    with autocast(precision, CPU):
        randomness = Randomness(0, 0, 0, 5, 5)
        features = network.features(*crops, randomness=randomness, visible=visible, patches=False)
        found = network.head.project(cls_tokens(features))
        (found * torch.randn(found.shape)).sum().backward()
    return found, {name: weight.grad for name, weight in network.backbone.named_parameters()}


@pytest.mark.parametrize("settings", [{}, {"layer_scale": 0.1, "mlp": "swiglu"}], ids=["gelu", "swiglu"])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 0.01), ("bf16", 0.06)])
def test_one_pass_gives_the_features_and_gradients_of_a_pass_per_size(settings, precision, tolerance):
    expected, gradients = outputs_and_gradients(False, "fp32", **settings)
    found, others = outputs_and_gradients(True, precision, **settings)
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
    for name, gradient in gradients.items():
        assert others[name].dtype == torch.float32
        size = max(gradient.norm(), gradients["blocks.0.mlp.fc1.weight"].norm())
        assert (others[name] - gradient).norm() <= tolerance * size, name
