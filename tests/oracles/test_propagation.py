"""One step of label propagation agrees with the official DINO code, ties included."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from segmentation.propagation import DINO, hard_labels, propagate_step

Oracle = Callable[[str], dict[str, np.ndarray]]


@pytest.mark.parametrize("case", ["a", "b", "c", "d"])
def test_soft_and_hard_labels_are_the_official_ones(oracle: Oracle, case: str):
    arrays = oracle(f"propagation_{case}")
    grid = int(arrays["grid_height"]), int(arrays["grid_width"])
    settings = {name: arrays[name].item() for name in ("radius", "topk", "temperature")}
    target, contexts = (torch.from_numpy(arrays[f"{name}_features"]) for name in ("target", "context"))
    soft = propagate_step(
        F.normalize(target, dim=-1).unflatten(0, grid),
        F.normalize(contexts, dim=-1).unflatten(1, grid),
        torch.from_numpy(arrays["context_labels"]),
        replace(DINO, **settings),
    )
    np.testing.assert_allclose(soft[None].numpy(), arrays["target_labels"], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(hard_labels(soft, int(arrays["patch_size"])), arrays["hard_labels"])
