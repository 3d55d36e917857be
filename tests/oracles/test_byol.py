"""BYOL's loss and its gradient agree, with two views and with several crops."""

import pytest

from tests.oracles.arrays import PRECISIONS, agree, tensors
from training import losses


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("setting", ["two_views", "multi_crop"])
def test_loss_and_gradient_agree(oracle, setting, dtype, tolerance):
    file = tensors(oracle("byol"))
    crops = 2 if setting == "two_views" else int(file["ncrops"])
    batch = int(file["batch"])
    predictions = file["predictions"][: crops * batch].to(dtype).unflatten(0, (crops, -1)).requires_grad_()
    loss = losses.multi_crop_mse(predictions, file["targets"].to(dtype).unflatten(0, (2, -1)))
    total = loss * 2 * (crops - 1)  # over all pairs
    total.backward()
    expected, gradient = (
        ("two_views/loss", "two_views/predictions_grad")
        if crops == 2
        else ("multi_crop/loss_sum", "multi_crop/predictions_grad_of_sum")
    )
    assert total.item() == pytest.approx(file[expected].item(), rel=tolerance)
    agree(predictions.grad.flatten(0, 1), file[gradient], tolerance)
    if crops > 2:
        assert loss.item() == pytest.approx(file["multi_crop/loss_mean"].item(), rel=tolerance)
