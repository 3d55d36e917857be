import pytest
import torch

from dino_model.models.head import HeadConfig, ProjectionHead


@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("bottleneck", [None, 4])
def test_head_without_and_with_bottleneck_gives_fp32_logits(layers, bottleneck):
    head = ProjectionHead(6, HeadConfig(20, layers, 12, bottleneck, batch_norm=True, activation="relu"))
    with torch.autocast("cpu", torch.bfloat16):
        logits = head(torch.randn(5, 6))
    assert (logits.shape, logits.dtype) == ((5, 20), torch.float32)
    assert sum(isinstance(module, torch.nn.Linear) for module in head.mlp) == layers


def test_head_with_batch_norm_takes_any_leading_axes():
    head = ProjectionHead(6, HeadConfig(20, 3, 12, 4, batch_norm=True), predictor=5)
    features = torch.randn(2, 5, 7, 6)
    torch.testing.assert_close(head(features), head(features.flatten(0, 2)).unflatten(0, (2, 5, 7)))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"layers": 0}, "layers is 0, expected at least 1"),
        ({"layers": 5}, "layers is 5, expected at most 4"),
        ({"prototypes": 1}, "prototypes is 1, expected at least 2"),
        ({"bottleneck": 0}, "bottleneck is 0"),
    ],
)
def test_head_with_invalid_config_raises(config, message):
    with pytest.raises(ValueError, match=message):
        ProjectionHead(6, HeadConfig(**config))
