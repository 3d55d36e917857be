import numpy as np
import pytest
import torch

from dino_model import photographs
from dino_model.inference.predictor import AttentionPredictor
from dino_model.models.backbones import BackboneConfig, create_backbone
from dino_model.models.load import LoadedModel, load_model
from dino_model.runtime import ranks
from training.evaluation.metrics import accuracy, photograph_lifts, rank_me


def test_photograph_lifts_equal_means_over_patch_centers():
    model = load_model("embedded")
    predictor, lifts = AttentionPredictor(model, size=64, precision="fp32", device="cpu"), []
    for name in photographs.names():
        predictor.set_image(photographs.image(name))
        attention, mask = predictor.cls_attention().mean(0), photographs.mask(name)
        sides = zip(attention.shape, mask.shape, strict=True)
        rows, columns = (((np.arange(count) + 0.5) * side / count).astype(int) for count, side in sides)
        inside = mask[np.ix_(rows, columns)]
        if inside.any():
            lifts.append(attention[inside].mean() / attention.mean())
    found = photograph_lifts(model, size=64, precision="fp32", device="cpu")
    assert found == pytest.approx(lifts, rel=0.01)
    assert np.mean(found) > 1.2


def test_rank_me_is_the_exponential_of_the_entropy_of_singular_values():
    left, right = (torch.linalg.qr(torch.randn(side, 3))[0] for side in (20, 8))
    shares = torch.tensor([1.0, 2.0, 5.0]) / 8
    found = rank_me(left @ torch.diag(3 * shares) @ right.T)
    assert found == pytest.approx(float(torch.exp(-(shares * shares.log()).sum())), rel=1e-4)
    single = torch.zeros(400, 400)
    single[0, 0] = 7  # 399 singular values are 0, whose shares count as 1e-7
    expected = np.exp(-399 * 1e-7 * np.log(1e-7) - (1 + 1e-7) * np.log(1 + 1e-7))
    assert rank_me(single) - 1 == pytest.approx(expected - 1, rel=0.01)


def test_accuracy_counts_the_true_class_among_the_first_five():
    scores, labels = torch.arange(8.0).flip(0).expand(6, 8), torch.tensor([0, 3, 4, 4, 5, 7])
    found = accuracy(scores, labels)
    assert (found.top1, found.top5) == pytest.approx((100 / 6, 100 * 4 / 6))
    assert found.per_class_top1 == pytest.approx(100 / 5)


def test_photograph_lifts_keep_training_mode_and_gradients():
    vit = create_backbone(BackboneConfig("vit_tiny", 16, 32, width=24, depth=3, heads=3, drop_path=0.5))
    model = LoadedModel("the run", vit.train(), (0.5,) * 3, (0.5,) * 3, "a training", None)
    first = photograph_lifts(model, size=48, device="cpu")
    assert vit.training
    assert all(parameter.requires_grad for parameter in vit.parameters())
    vit.eval()
    assert photograph_lifts(model, size=48, device="cpu") == first  # no stochastic depth in either
    assert not vit.training


def test_photograph_lifts_of_a_rank_encode_its_share_only(monkeypatch):
    encoded, honest = [], photographs.image
    monkeypatch.setattr(photographs, "image", lambda name: (encoded.append(name), honest(name))[1])
    monkeypatch.setattr(ranks, "gather_rows", lambda compute, numbers: compute(numbers[1:3]))
    found = photograph_lifts(load_model("random:embedded"), device="cpu")
    assert len(found) == 2
    assert photograph_lifts(load_model("random:embedded"), size=224, device="cpu") == found
    assert encoded == [*photographs.names()[1:3]] * 2
