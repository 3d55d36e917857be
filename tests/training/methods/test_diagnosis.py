import math

import pytest
import torch

from training import losses
from training.methods import diagnosis


def test_spread_is_one_for_random_directions_and_nothing_for_one():
    assert losses.spread(torch.randn(2, 4000, 64)).item() == pytest.approx(1, abs=0.01)
    same = torch.randn(64).expand(10, 64)
    assert losses.spread(same * torch.arange(1.0, 11)[:, None]).item() == pytest.approx(0, abs=1e-3)


MEASURED = {
    "no centering, step 124": (0.1506, 0.1720, 256, 1.494, "one prototype"),
    "no centering, step 247": (0.0703, 0.0788, 256, 1.140, "one prototype"),
    "short run with K = 1,024": (0.3900, 0.2000, 1024, 1.500, "one prototype"),
    "no sharpening, step 247": (5.5129, 0.0180, 256, 255.8, "uniform output"),
    "neither, step 124": (5.2348, 0.0169, 256, 194.3, "one output for all images"),
    "neither, step 247": (5.2422, 0.0143, 256, 193.8, "one output for all images"),
    "both, step 0": (1.9687, 2.8720, 256, 83.4, None),
    "both, step 62": (1.5928, 1.1613, 256, 24.8, None),
    "both, step 247": (3.2395, 1.0528, 256, 102.5, None),
}
"""Teacher entropy, KL, K and prototypes in use, as the four runs of lesson 4 log them; the collapse."""


@pytest.mark.parametrize("name", MEASURED)
def test_collapse_of_measured_runs_names_the_collapse(name):
    entropy, kl, number, used, expected = MEASURED[name]
    logs = {"teacher_entropy": entropy, "kl": kl, "ln_k": math.log(number), "prototypes": used}
    found = diagnosis.collapse(logs)
    assert (found is None) if expected is None else expected in found
