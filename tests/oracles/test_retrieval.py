"""Retrieval against the released figures, and multi-scale features against the released ones."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from dino_model.features import CLS
from dino_model.views import View
from tests.oracles.arrays import vit_of
from training.evaluation.retrieval import Relevance, medium_and_hard


def test_map_and_precision_equal_the_official_ones(oracle):
    data = oracle("retrieval")
    similarity = torch.from_numpy(data["similarity"].T.copy())
    relevance = [
        Relevance(*(tuple(data[f"query{q}/{kind}"].tolist()) for kind in ("easy", "hard", "junk")))
        for q in range(len(similarity))
    ]
    for result, name in zip(medium_and_hard(similarity, relevance), ("medium", "hard"), strict=True):
        assert result.map / 100 == pytest.approx(float(data[f"map_{name}"]), abs=1e-9)
        expected = data[f"mp_at_1_5_10_{name}"]
        np.testing.assert_allclose(np.array(result.precision) / 100, expected, rtol=0, atol=1e-9)


@torch.no_grad()
def test_multi_scale_features_are_normalised_picture_by_picture(oracle):
    data = oracle("retrieval_features")
    vit, images = vit_of(data, "official").double(), torch.from_numpy(data["images"]).double()
    scales = tuple(data["scales"].tolist())
    view = View(68, (0.0,) * 3, (1.0,) * 3, scales=scales, cut=int(data["patch_size"]))
    shown = list(view.rescale(images))
    for number in (1, 2):
        whole = torch.nn.functional.interpolate(images, scale_factor=scales[number], mode="bilinear")
        expected = torch.from_numpy(data[f"images_scale{number}"]).double()
        torch.testing.assert_close(whole, expected, rtol=0, atol=1e-6)
    features = torch.stack([CLS.compute(vit, image) for image in shown])
    np.testing.assert_allclose(features.numpy(), data["cls_per_scale"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(features[0].numpy(), data["single_scale"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        normalize(features[0], dim=1).numpy(), data["single_scale_normalised"], rtol=0, atol=1e-9
    )
    mean = features.mean(dim=0)
    np.testing.assert_allclose(
        normalize(mean, dim=1).numpy(), data["multi_scale_per_image"], rtol=0, atol=1e-9
    )
