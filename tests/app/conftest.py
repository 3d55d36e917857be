"""One engine with a small untrained model for all tests of the page that need no browser."""

import numpy as np
import pytest

from app.catalogue import catalogue
from app.engine import Engine
from app.limits import Limits
from app.photos import Photo
from app.tabs import Start

MODEL = "random:vit_tiny/16"


@pytest.fixture(scope="session")
def engine() -> Engine:
    """Looks with ViT-Ti/16 at random initialisation, in fp32 on the CPU."""
    return Engine(catalogue(MODEL), Limits(max_patches=400), precision="fp32", device="cpu")


@pytest.fixture(scope="session")
def start() -> Start:
    """What the page opens with."""
    return Start(model=MODEL, size=64, example="cat")


@pytest.fixture(scope="session")
def photo() -> Photo:
    """A photograph of noise, 90 × 60 pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    return Photo("noise.png", "noise", lambda: pixels)
