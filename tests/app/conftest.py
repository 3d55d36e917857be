"""One lab with a small untrained model for all tests of the page that need no browser."""

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from app.arrays import routes
from app.engine import Encoding
from app.lab import Lab
from app.limits import Limits
from app.models import Models
from app.page import build
from app.photos import png
from app.shared import Shared
from dino_model.predictor import AttentionPredictor
from dino_model.search import Index

MODEL = "random:vit_tiny/16"


def small_lab(limits: Limits | None = None, index: Index | None = None, **models: Any) -> Lab:
    """Return a lab with ViT-Ti/16 at random initialization, in fp32 on the CPU."""
    limits = limits or Limits()
    offered = Models(MODEL, limits=limits, precision="fp32", device="cpu", **models)
    return Lab(offered, limits, 64, index=index)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in an event loop of its own."""
    with ThreadPoolExecutor(1) as pool:  # browser tests leave a loop in the thread of the tests
        return pool.submit(asyncio.run, work).result()


@contextmanager
def serving(lab: Lab) -> Iterator[str]:
    """The address of this lab's page on a free port, until the block ends."""
    demo, options = build(lab, routes=True), {"app_kwargs": {"routes": routes(lab)}}
    _, address, _ = demo.launch(prevent_thread_lock=True, quiet=True, ssr_mode=False, **options)
    try:
        yield address.rstrip("/")
    finally:
        demo.close()


@pytest.fixture(scope="session")
def lab() -> Lab:
    """A small lab with a bound on the patches of an image."""
    return small_lab(Limits(max_patches=1200))


@pytest.fixture(scope="session")
def pixels() -> np.ndarray:
    """An image of noise, 90 × 60 pixels."""
    return np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)


@pytest.fixture(scope="session")
def predictor(pixels: np.ndarray) -> AttentionPredictor:
    """The library's predictor, with the image of noise."""
    library = AttentionPredictor(MODEL, size=64, precision="fp32", device="cpu")
    library.set_image(pixels)
    return library


@pytest.fixture(scope="session")
def photo(lab: Lab, pixels: np.ndarray) -> str:
    """The name of the image of noise in the lab."""
    return lab.images.keep(png(pixels))


@pytest.fixture(scope="session")
def encoding(lab: Lab, photo: str) -> Encoding:
    """The image of noise, encoded by `MODEL`."""
    return lab.encode(photo, MODEL, 64)


@pytest.fixture(scope="session")
def shared(lab: Lab) -> Shared:
    """`Shared` without components, for handlers that only compute."""
    return Shared(lab, routes=True)
