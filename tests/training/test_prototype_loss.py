"""The loss from the bottleneck, against the one that holds all logits."""

import pytest
import torch

from dino_model.head import Prototypes
from training import losses, prototype_loss
from training.prototype_loss import prototype_cross_entropy


def case(train_gain=True, crops=5, batch=7):
    torch.manual_seed(0)
    prototypes = Prototypes(4, 11, train_gain).double()
    with torch.no_grad():
        prototypes.weight_g += torch.rand(11, 1)
    features = torch.randn(crops, batch, 4, dtype=torch.float64, requires_grad=True)
    targets = torch.randn(2, batch, 11, dtype=torch.float64).softmax(-1)
    return features, prototypes, targets


@pytest.mark.parametrize("chunk", [1, 2 * 5 * 11, 2**22])
@pytest.mark.parametrize("shared", [None, 0, 1])
def test_prototype_loss_equals_the_loss_of_all_logits(chunk, shared, monkeypatch):
    monkeypatch.setattr(prototype_loss, "CHUNK", chunk)
    features, prototypes, targets = case()
    asked = [features, *prototypes.parameters()]
    logits = torch.nn.functional.linear(features, prototypes.weight())
    plain = losses.multi_crop_cross_entropy(logits, targets, 0.1, shared)
    ours = prototype_cross_entropy(features, prototypes, targets, 0.1, shared)
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=0)
    expected = torch.autograd.grad(plain * 3, asked)
    torch.testing.assert_close(torch.autograd.grad(ours * 3, asked), expected, rtol=1e-9, atol=1e-12)


def test_prototype_loss_gives_fixed_gain_no_gradient():
    features, prototypes, targets = case(train_gain=False)
    prototype_cross_entropy(features, prototypes, targets, 0.1).backward()
    assert prototypes.weight_g.grad is None
    assert prototypes.weight_v.grad.abs().sum() > 0
