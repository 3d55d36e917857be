import pytest
import torch

from training import losses
from training.methods import head as head_module
from training.methods.head import HeadConfig, ProjectionHead

CROPS, BATCH, PROTOTYPES = 5, 7, 11


@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("bottleneck", [None, 4])
def test_head_without_and_with_bottleneck_gives_fp32_logits(layers, bottleneck):
    head = ProjectionHead(6, HeadConfig(20, layers, 12, bottleneck, batch_norm=True, activation="relu"))
    features = torch.randn(5, 6)
    with torch.autocast("cpu", torch.bfloat16):
        logits = head(features)
    assert (logits.shape, logits.dtype) == ((5, 20), torch.float32)
    if bottleneck is None:
        torch.testing.assert_close(head(features), head.mlp(features))
    assert sum(isinstance(module, torch.nn.Linear) for module in head.mlp) == layers


def test_head_with_batch_norm_takes_any_leading_axes():
    head = ProjectionHead(6, HeadConfig(20, 3, 12, 4, batch_norm=True), predictor=5)
    features = torch.randn(2, 5, 7, 6)
    torch.testing.assert_close(head(features), head(features.flatten(0, 2)).unflatten(0, (2, 5, 7)))


def test_head_begins_with_a_deviation_of_002_and_no_bias():
    linear, last = (
        layer for layer in ProjectionHead(60, HeadConfig(20, 2, 500, 80)).mlp if hasattr(layer, "bias")
    )
    assert [float(layer.weight.detach().std()) for layer in (linear, last)] == pytest.approx(
        [0.02] * 2, rel=0.05
    )
    assert not linear.bias.any()
    assert not last.bias.any()
    directions = ProjectionHead(
        6, HeadConfig(500, 1, 8, 64)
    ).last_layer.weight_v  # as a linear layer of torch
    low, high = torch.aminmax(directions)
    assert (low.item(), high.item()) == pytest.approx((-1 / 8, 1 / 8), abs=1e-3)
    assert directions.std().item() == pytest.approx(1 / 8 / 3**0.5, rel=0.02)


def test_predictor_is_one_hidden_layer_after_the_mlp():
    head, features = ProjectionHead(6, HeadConfig(20, 1, 12, 4), predictor=5), torch.randn(7, 6)
    weight, bias, last_weight, last_bias = head.predictor.parameters()
    hidden = torch.nn.functional.gelu(head.mlp(features) @ weight.T + bias)
    vectors = hidden @ last_weight.T + last_bias
    torch.testing.assert_close(head.project(features), vectors / vectors.norm(dim=-1, keepdim=True))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"layers": 0}, "layers is 0, expected at least 1"),
        ({"layers": 5}, "layers is 5, expected at most 4"),
        ({"prototypes": 1}, "prototypes is 1, expected at least 2"),
        ({"bottleneck": 0}, "bottleneck is 0"),
        ({"hidden": 0}, "hidden is 0"),
    ],
)
def test_head_with_invalid_config_raises(config, message):
    with pytest.raises(ValueError, match=message):
        ProjectionHead(6, HeadConfig(**config))
    assert ProjectionHead(6, HeadConfig(2, 2, hidden=1, bottleneck=1))(torch.ones(3, 6)).shape == (3, 2)


@pytest.mark.parametrize("images", [1, 2, BATCH])
@pytest.mark.parametrize(("shared", "train_gain"), [(None, True), (0, True), (1, False)])
def test_prototype_loss_equals_the_loss_of_all_logits(images, shared, train_gain, monkeypatch):
    monkeypatch.setattr(head_module, "CHUNK", images * CROPS * PROTOTYPES)
    torch.manual_seed(0)
    head = ProjectionHead(3, HeadConfig(PROTOTYPES, 1, bottleneck=4, train_gain=train_gain)).double()
    prototypes = head.last_layer
    with torch.no_grad():
        prototypes.weight_g += torch.rand(PROTOTYPES, 1)
    features = torch.randn(CROPS, BATCH, 4, dtype=torch.float64, requires_grad=True)
    targets = torch.randn(2, BATCH, PROTOTYPES, dtype=torch.float64).softmax(-1)
    trained = [features, *(p for p in prototypes.parameters() if p.requires_grad)]
    logits = torch.nn.functional.linear(features, prototypes.weight())
    plain = losses.multi_crop_cross_entropy(logits, targets, 0.1, shared)
    ours = head.cross_entropy(features, targets, 0.1, shared)
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=0)
    expected = torch.autograd.grad(plain * 3, trained)
    torch.testing.assert_close(torch.autograd.grad(ours * 3, trained), expected, rtol=1e-9, atol=1e-12)


def test_loss_of_a_head_without_bottleneck_is_that_of_its_logits():
    head, features = ProjectionHead(6, HeadConfig(20, 2, 12, None)), torch.randn(3, 5, 6)
    targets = torch.randn(2, 5, 20).softmax(-1)
    plain = losses.multi_crop_cross_entropy(head(features), targets, 0.1)
    assert torch.equal(head.cross_entropy(head.project(features), targets, 0.1), plain)
