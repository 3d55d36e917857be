"""What linear classifiers read against the official code's features, and its published heads."""

import numpy as np
import pytest
import torch

from dino_model.features import FeatureType
from tests.oracles.arrays import vit_of
from training.evaluation.linear import FeatureSpec, parse_official_head


@torch.no_grad()
def test_every_kind_is_the_official_one(oracle):
    data = oracle("linear_features")
    vit, images = vit_of(data).double(), torch.from_numpy(data["images"]).double()
    features = FeatureType(4, "average").compute(vit, images).unflatten(1, (5, -1))
    expected = {
        FeatureSpec(1): "n1/cls",
        FeatureSpec(4): "n4/cls",
        FeatureSpec(1, "after"): "n1/cls_then_average",
        FeatureSpec(4, "after"): "n4/cls_then_average",
        FeatureSpec(1, "interleaved"): "n1/cls_average_interleaved",
    }
    for spec, name in expected.items():
        np.testing.assert_allclose(
            spec.select(features).numpy(), data[name], rtol=0, atol=1e-10, err_msg=name
        )
    average = FeatureType(0, "average").compute(vit, images)
    np.testing.assert_allclose(average.numpy(), data["average"], rtol=0, atol=1e-10)


def test_a_published_head_reads_what_its_size_tells(oracle):
    data = oracle("linear_features")
    width = data["n1/cls"].shape[1]
    features = torch.randn(3, 5, width)
    for spec, numbers in ((FeatureSpec(1), 1), (FeatureSpec(1, "interleaved"), 2), (FeatureSpec(4), 4)):
        tensors = {
            "module.linear.weight": torch.randn(7, numbers * width),
            "module.linear.bias": torch.randn(7),
        }
        head = parse_official_head(tensors, width)
        assert head.spec == spec
        expected = spec.select(features) @ tensors["module.linear.weight"].T + tensors["module.linear.bias"]
        torch.testing.assert_close(head.scores(features), expected)
    with pytest.raises(ValueError, match="has 3 inputs, which a model of width 24 does not output"):
        parse_official_head({"linear.weight": torch.ones(7, 3), "linear.bias": torch.ones(7)}, 24)
    with pytest.raises(ValueError, match="no linear head"):
        parse_official_head({"weight": torch.ones(7, 3)}, 24)
