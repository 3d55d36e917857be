"""Means of weights."""

import pytest
import torch

from dino_model.models.load import load_model
from tools.mean_weights import MeanWeights


def test_mean_has_the_stated_shares_of_each_model(tmp_path):
    models, file = ("embedded", "embedded-dino"), tmp_path / "mean.safetensors"
    MeanWeights(models, shares=(0.75, 0.25), output=file).run()
    a, b, mean = (load_model(name).backbone.state_dict() for name in (*models, str(file)))
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, 0.75 * a[name] + 0.25 * b[name], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    ("models", "shares", "message"),
    [
        (("embedded", "embedded-dino"), (0.75, 0.2), "2 shares with a sum of 0.95 for 2 models"),
        (("embedded", "random:vit_tiny/16"), (0.5, 0.5), "another architecture"),
    ],
)
def test_shares_and_models_that_do_not_fit_are_refused(models, shares, message, tmp_path):
    file = tmp_path / "mean.safetensors"
    with pytest.raises(SystemExit, match=message):
        MeanWeights(models, shares=shares, output=file).run()
    assert not file.exists()
