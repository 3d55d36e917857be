import numpy as np
import pytest

from dino_model import photographs
from dino_model.backbones import BackboneConfig, create_backbone
from dino_model.predictor import AttentionPredictor
from dino_model.weights import LoadedModel, load_model
from training.evaluation.metrics import photographs_lift


def test_photographs_lift_equals_mean_over_patch_centers():
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
    found = photographs_lift(model, size=64, precision="fp32", device="cpu")
    assert found == pytest.approx(np.mean(lifts), rel=0.01)
    assert found > 1.2


def test_photographs_lift_keeps_training_mode_and_gradients():
    vit = create_backbone(BackboneConfig("vit_tiny", 16, 32, width=24, depth=3, heads=3, drop_path=0.5))
    model = LoadedModel("the run", vit.train(), (0.5,) * 3, (0.5,) * 3, "a training", None)
    first = photographs_lift(model, size=48, device="cpu")
    assert vit.training
    assert all(parameter.requires_grad for parameter in vit.parameters())
    vit.eval()
    assert photographs_lift(model, size=48, device="cpu") == first  # no stochastic depth in either
    assert not vit.training
