"""One lab with a small untrained model for all tests of the page that need no browser."""

import io
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi.testclient import TestClient
from PIL import Image

from app.engine import Encoding
from app.lab import Lab
from app.limits import Limits
from app.models import Models
from app.security import host_names
from app.server import create_app

MODEL = "random:vit_tiny/16"


@pytest.fixture(scope="session")
def portal() -> Iterator[BlockingPortal]:
    """Runs what waits, in an event loop of its own: Playwright leaves one in the thread of its tests."""
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(scope="session")
def lab() -> Lab:
    """Looks with ViT-Ti/16 at random initialisation, in fp32 on the CPU."""
    return Lab(Models(MODEL), Limits(max_patches=1200), 64, precision="fp32", device="cpu")


@pytest.fixture(scope="session")
def encode(portal: BlockingPortal, lab: Lab) -> Callable[..., Encoding]:
    """`encode(photo, model, size)` by the lab, or by another."""

    def run(photo: str, model: str = MODEL, size: int = 64, by: Lab = lab) -> Encoding:
        return portal.call(by.engine.encode, photo, model, size)

    return run


@pytest.fixture(scope="session")
def pixels() -> np.ndarray:
    """A photograph of noise, 90 × 60 pixels."""
    return np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)


@pytest.fixture(scope="session")
def photo(lab: Lab, pixels: np.ndarray, as_file: Callable[..., bytes]) -> str:
    """That photograph, sent."""
    return lab.pictures.keep(as_file(pixels))[0]


@pytest.fixture(scope="session")
def client(lab: Lab) -> Iterator[TestClient]:
    """The whole application, without a port."""
    app = create_app(lab, host_names("127.0.0.1"))
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="session")
def as_file() -> Callable[..., bytes]:
    """`as_file(picture, kind)`: a picture as a file."""

    def write(picture: np.ndarray, kind: str = "PNG", **options: object) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(picture).save(buffer, kind, **options)
        return buffer.getvalue()

    return write
