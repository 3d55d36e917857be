"""Sinkhorn-Knopp agrees with the paper's listing."""

import pytest
import torch

from training import losses


@pytest.mark.parametrize(("iterations", "name"), [(1, "one_iteration"), (3, "three_iterations")])
def test_assignments_agree(oracle, iterations, name):
    file = oracle("sinkhorn")
    scores = torch.from_numpy(file["scores"]).double()
    found = losses.sinkhorn_knopp(scores, float(file["tau"]), iterations)
    torch.testing.assert_close(found, torch.from_numpy(file[name]), atol=1e-9, rtol=0)
