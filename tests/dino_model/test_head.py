import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from dino_model.head import HeadConfig, ProjectionHead


@given(
    layers=st.integers(1, 4),
    bottleneck=st.sampled_from([None, 4, 8]),
    batch_norm=st.booleans(),
    activation=st.sampled_from(["gelu", "relu"]),
    train_gain=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_head_of_each_variant_gives_logits(layers, bottleneck, batch_norm, activation, train_gain):
    head = ProjectionHead(6, HeadConfig(20, layers, 12, bottleneck, batch_norm, activation, train_gain))
    assert head(torch.randn(5, 6)).shape == (5, 20)
    linear = [m for m in head.mlp if isinstance(m, torch.nn.Linear)]
    assert len(linear) == layers


def test_prototypes_give_cosines_scaled_by_gain():
    head = ProjectionHead(6, HeadConfig(20, 2, 12, 4, train_gain=True))
    torch.nn.init.uniform_(head.last_layer.weight_g, 0.5, 2.0)
    features = torch.randn(5, 6)
    cosines = F.cosine_similarity(head.mlp(features)[:, None], head.last_layer.weight_v[None], dim=-1)
    torch.testing.assert_close(head(features), cosines * head.last_layer.weight_g[:, 0])


def test_head_under_autocast_gives_fp32_logits():
    with torch.autocast("cpu", torch.bfloat16):
        assert ProjectionHead(6, HeadConfig(20))(torch.randn(5, 6)).dtype == torch.float32


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (HeadConfig(layers=0), "layers is 0, expected at least 1"),
        (HeadConfig(prototypes=1), "prototypes is 1, expected at least 2"),
        (HeadConfig(bottleneck=0), "bottleneck is 0"),
    ],
)
def test_head_with_invalid_config_raises(config, named):
    with pytest.raises(ValueError, match=named):
        ProjectionHead(6, config)
