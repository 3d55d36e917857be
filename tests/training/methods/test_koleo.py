import numpy as np
import pytest
import torch

from dino_model.runtime.errors import SettingError
from training.augmentation.crop_config import CropConfig
from training.losses import koleo
from training.methods.dino_ablations_config import AblationsConfig


def plain_koleo(features: np.ndarray) -> float:
    """The formula of the paper, image by image."""
    points = [row / np.sqrt((row**2).sum()) for row in features]
    total = 0.0
    for i, point in enumerate(points):
        distances = [np.sqrt(((point - other) ** 2).sum()) for j, other in enumerate(points) if j != i]
        total += np.log(min(distances))
    return -total / len(points)


def test_koleo_of_each_crop_is_the_formula_of_the_paper_with_its_gradient():
    features = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    found = koleo(features)
    for crop in range(2):
        expected = plain_koleo(features[crop].detach().numpy())
        assert found[crop].item() == pytest.approx(expected, rel=1e-6)
    assert torch.autograd.gradcheck(koleo, features)


def test_koleo_of_features_with_negative_cosines_only_leaves_out_the_image_itself():
    angles = torch.tensor([0.0, 1.9, 4.4])
    features = torch.stack([angles.cos(), angles.sin()], dim=-1)
    assert (features @ features.T).triu(1).max() <= 0
    assert koleo(features).item() == pytest.approx(plain_koleo(features.numpy()), rel=1e-5)


def test_koleo_of_equal_features_is_finite_and_larger():
    equal = torch.ones(4, 3, requires_grad=True)
    loss = koleo(equal)
    loss.backward()
    assert equal.grad.isfinite().all()
    assert loss > koleo(torch.eye(4, 3) - 0.5)
    assert loss.item() == pytest.approx(-np.log(1e-8))


def test_koleo_needs_a_batch_of_two_images():
    config, crops = AblationsConfig(koleo=0.1), CropConfig(local_crops=0)
    config.check(crops, 2, 1, 0)
    with pytest.raises(SettingError, match="raise --batch-size to 2 or more"):
        config.check(crops, 1, 1, 0)
