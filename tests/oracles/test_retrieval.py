"""Retrieval and copy detection agree with the released figures: features, rankings, whitening, precision."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from dino_model.data.framing import Framing
from dino_model.inference.features import OUTPUT, gem
from tests.oracles.arrays import vit_of
from training.evaluation.copy_detection import average_precisions, compute_whitening, similarity
from training.evaluation.retrieval import Relevance, medium_and_hard


def test_map_and_precision_equal_the_official_ones(oracle):
    data = oracle("retrieval")
    scores = torch.from_numpy(data["similarity"].T.copy())
    relevance = [
        Relevance(*(tuple(data[f"query{q}/{kind}"].tolist()) for kind in ("easy", "hard", "junk")))
        for q in range(len(scores))
    ]
    for result, name in zip(medium_and_hard(scores, relevance), ("medium", "hard"), strict=True):
        assert result.map / 100 == pytest.approx(float(data[f"map_{name}"]), abs=1e-9)
        expected = data[f"mp_at_1_5_10_{name}"]
        np.testing.assert_allclose(np.array(result.precision) / 100, expected, rtol=0, atol=1e-9)


@torch.no_grad()
def test_multi_scale_features_are_normalized_image_by_image(oracle):
    data = oracle("retrieval_features")
    vit, images = vit_of(data, "official").double(), torch.from_numpy(data["images"]).double()
    scales = tuple(data["scales"].tolist())
    view = Framing(68, (0.0,) * 3, (1.0,) * 3, scales=scales, cut=int(data["patch_size"]))
    shown = list(view.rescale(images))
    for number in (1, 2):
        whole = torch.nn.functional.interpolate(images, scale_factor=scales[number], mode="bilinear")
        expected = torch.from_numpy(data[f"images_scale{number}"]).double()
        torch.testing.assert_close(whole, expected, rtol=0, atol=1e-6)
    features = torch.stack([OUTPUT.compute(vit, image) for image in shown])
    np.testing.assert_allclose(features.numpy(), data["cls_per_scale"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(features[0].numpy(), data["single_scale"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        normalize(features[0], dim=1).numpy(), data["single_scale_normalised"], rtol=0, atol=1e-9
    )
    mean = features.mean(dim=0)
    np.testing.assert_allclose(
        normalize(mean, dim=1).numpy(), data["multi_scale_per_image"], rtol=0, atol=1e-9
    )


def test_descriptors_are_cls_and_gem(oracle):
    data = oracle("copy_detection")
    tokens = torch.from_numpy(data["tokens"]).double()
    found = torch.cat([tokens[:, 0], gem(tokens[:, 1:])], dim=1)
    np.testing.assert_allclose(found.numpy(), data["descriptors"], rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["unwhitened", "released", "corrected"])
def test_rankings_of_all_settings_are_the_official_ones(oracle, name):
    data = oracle("copy_detection")
    queries, database, others = (
        torch.from_numpy(data[key]).double() for key in ("queries", "database", "whitening_vectors")
    )
    whitening = None if name == "unwhitened" else compute_whitening(others, name)
    found = similarity(queries, database, whitening)
    np.testing.assert_allclose(found.numpy(), data[f"{name}/similarity"], rtol=0, atol=1e-8)
    top = found.topk(int(data["topk"]), dim=1).indices
    assert np.array_equal(top.numpy(), data[f"{name}/top20"])
    positives = [np.flatnonzero(row).tolist() for row in data["positives"]]
    for depth, kind in ((int(data["topk"]), "top20"), (None, "full")):
        scored = average_precisions(found, positives, depth=depth)
        np.testing.assert_allclose(scored, data[f"{name}/ap_{kind}"], rtol=0, atol=1e-9)
        for block, label in enumerate(("original", "strong")):
            mean = scored[data["block"] == block].mean()
            assert mean == pytest.approx(float(data[f"{name}/map_{kind}_{label}"]), abs=1e-9)
    if whitening is not None:
        np.testing.assert_allclose(whitening.variances.numpy(), data[f"{name}/eigenvalues"], rtol=1e-8)


@pytest.mark.parametrize("name", ["released", "corrected"])
def test_few_images_leave_directions_that_are_raised(oracle, name):
    data = oracle("copy_detection")
    others = torch.from_numpy(data["whitening_vectors"][: int(data["few"])]).double()
    whitening = compute_whitening(others, name)
    queries, database = (torch.from_numpy(data[key]).double() for key in ("queries", "database"))
    found = similarity(queries, database, whitening)
    np.testing.assert_allclose(found.numpy(), data[f"{name}_few/similarity"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(whitening.variances.numpy(), data[f"{name}_few/eigenvalues"], rtol=1e-6)
