"""The loss from the bottleneck, against the one that holds all logits."""

import pytest
import torch

from dino_model.models.head import Prototypes
from training import losses, prototype_loss
from training.prototype_loss import prototype_cross_entropy

CROPS, BATCH, PROTOTYPES = 5, 7, 11


@pytest.mark.parametrize("images", [1, 2, BATCH])
@pytest.mark.parametrize(("shared", "train_gain"), [(None, True), (0, True), (1, False)])
def test_prototype_loss_equals_the_loss_of_all_logits(images, shared, train_gain, monkeypatch):
    monkeypatch.setattr(prototype_loss, "CHUNK", images * CROPS * PROTOTYPES)
    torch.manual_seed(0)
    prototypes = Prototypes(4, PROTOTYPES, train_gain).double()
    with torch.no_grad():
        prototypes.weight_g += torch.rand(PROTOTYPES, 1)
    features = torch.randn(CROPS, BATCH, 4, dtype=torch.float64, requires_grad=True)
    targets = torch.randn(2, BATCH, PROTOTYPES, dtype=torch.float64).softmax(-1)
    trained = [features, *(p for p in prototypes.parameters() if p.requires_grad)]
    logits = torch.nn.functional.linear(features, prototypes.weight())
    plain = losses.multi_crop_cross_entropy(logits, targets, 0.1, shared)
    ours = prototype_cross_entropy(features, prototypes, targets, 0.1, shared)
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=0)
    expected = torch.autograd.grad(plain * 3, trained)
    torch.testing.assert_close(torch.autograd.grad(ours * 3, trained), expected, rtol=1e-9, atol=1e-12)
