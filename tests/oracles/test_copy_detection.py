"""Descriptors, whitening and average precision of copies against the released evaluation."""

import numpy as np
import pytest
import torch

from dino_model.features import gem
from training.evaluation.copy_detection import average_precisions, compute_whitening, similarity


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
def test_few_pictures_leave_directions_that_are_raised(oracle, name):
    data = oracle("copy_detection")
    others = torch.from_numpy(data["whitening_vectors"][: int(data["few"])]).double()
    whitening = compute_whitening(others, name)
    queries, database = (torch.from_numpy(data[key]).double() for key in ("queries", "database"))
    found = similarity(queries, database, whitening)
    np.testing.assert_allclose(found.numpy(), data[f"{name}_few/similarity"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(whitening.variances.numpy(), data[f"{name}_few/eigenvalues"], rtol=1e-6)
