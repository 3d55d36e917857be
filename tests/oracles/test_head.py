"""The projection head agrees with the official one in every variant that the oracles hold."""

import pytest
import torch

from tests.oracles.arrays import tensors
from training.methods.head import HeadConfig, ProjectionHead


@pytest.mark.parametrize("variant", ["default", "two_layers", "batch_norm", "trainable_gain"])
def test_head_agrees(oracle, variant):
    file = oracle(f"head_{variant}")
    weights = tensors(file, "param/")
    linear = [name for name in weights if name.startswith("mlp.") and weights[name].ndim == 2]
    prototypes, bottleneck = weights["last_layer.weight_v"].shape
    hidden, in_width = weights["mlp.0.weight"].shape
    config = HeadConfig(
        prototypes,
        len(linear),
        hidden,
        bottleneck,
        batch_norm=any("running_mean" in name for name in weights),
        train_gain=variant == "trainable_gain",
    )
    head = ProjectionHead(in_width, config).train()
    head.load_state_dict(weights)
    expected = torch.from_numpy(file["output"])
    torch.testing.assert_close(head(torch.from_numpy(file["input"])), expected, atol=1e-5, rtol=0)
