"""A lab with a small untrained model, clips, runs and maps of the library for tests of the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:  # fixtures import what they need: torch and Gradio take seconds
    from app.limits.bounds import Limits
    from app.page import Page
    from app.store.backend import Backend
    from app.store.engine import Encoding
    from dino_model.inference.predictor import AttentionPredictor
    from dino_model.inference.search import SearchIndex

MODEL = "random:vit_tiny/16"
BACKBONE = {"architecture": "vit_tiny", "patch_size": 16, "image_size": 64, "depth": 2}


def small_backend(limits: Limits | None = None, index: SearchIndex | None = None, **models: Any) -> Backend:
    """Return a lab with ViT-Ti/16 at random initialization, in fp32 on the CPU."""
    from app.limits.bounds import Limits
    from app.store.backend import Backend
    from app.store.models import Models

    limits = limits or Limits()
    offered = Models(MODEL, limits=limits, precision="fp32", device="cpu", **models)
    return Backend(offered, limits, 64, index=index)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in an event loop of its own."""
    with ThreadPoolExecutor(1) as pool:  # browser tests leave a loop in the thread of the tests
        return pool.submit(asyncio.run, work).result()


def square_frames(count: int, size: tuple[int, int]) -> list[np.ndarray]:
    """Return frames with a bright square that moves to the right over noise."""
    noise = np.random.default_rng(0).integers(0, 90, (*size, 3), dtype=np.uint8)
    found, unit = [noise.copy() for _ in range(count)], size[0] // 12
    for number, frame in enumerate(found):
        left = unit + number * unit // 2
        frame[3 * unit : 7 * unit, left : left + 4 * unit] = (250, 200, 60)
    return found


def write_video(path: Path, count: int, fps: float = 10, size: tuple[int, int] = (48, 64)) -> Path:
    """Write `square_frames` and return the path."""
    from segmentation.video import VideoWriter

    with VideoWriter(path, fps) as video:
        for frame in square_frames(count, size):
            video.write(frame)
    return path


def line(step: int, **values: float) -> bytes:
    """Return a line of a log."""
    return json.dumps({"step": step, **values}).encode() + b"\n"


def write_run(folder: Path, *lines: bytes, epochs: int = 3, **config: object) -> Path:
    """Write a run of ten steps an epoch with these lines in its log; default: three lines."""
    folder.mkdir(exist_ok=True)
    recipe = {"epochs": epochs, "batch_size": 4, "method": {}, "optimizer": {"warmup_epochs": 0}}
    settings = {"method": "dino", "recipe": recipe, "num_images": 42, "backbone": BACKBONE}
    settings |= {"seed": 0, "precision": "fp32"} | config
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "log.jsonl").write_bytes(b"".join(lines or (line(step, loss=1.0) for step in range(3))))
    return folder


def save_milestone(folder: Path, step: int) -> Path:
    """Save a checkpoint whose weights follow from its step."""
    import torch

    from dino_model.models.backbones import BackboneConfig, create_backbone

    torch.manual_seed(step)
    backbone = create_backbone(BackboneConfig(**BACKBONE))
    state = {f"teacher.backbone.{name}": tensor for name, tensor in backbone.state_dict().items()}
    file = folder / f"step-{step:08d}.pt"
    torch.save({"format": 1, "step": step, "method": state}, file)
    return file


def library_maps(predictor: AttentionPredictor, quantity: str, token: int, block: int) -> np.ndarray:
    """Return the library's maps: [heads, rows, columns]; of a PCA [rows, columns, 3]."""
    from dino_model.inference import quantities

    queries, keys = predictor.queries_keys(block)
    grid, prefix = predictor.grid, predictor.prefix_tokens
    if quantity == "token-norm":
        return predictor.token_norms(block)[None]
    if quantity == "key-pca":
        return quantities.principal_colors(keys[:, prefix:].transpose(1, 0, 2).reshape(*grid, -1))
    if quantity == "rollout":
        blocks = map(predictor.queries_keys, range(block + 1))
        return quantities.attention_rollout(blocks)[token, prefix:].reshape(1, *grid)
    values = {
        "key-similarity": lambda: quantities.key_similarity(keys, prefix, token)[None],
        "attention": lambda: quantities.attention(queries, keys, token),
        "logits": lambda: quantities.logits(queries, keys, token),
        "key-cosine": lambda: quantities.cosines(keys, token),
        "token-cosine": lambda: quantities.cosines(predictor.tokens(block)[None], token),
    }[quantity]()
    return values[:, prefix:].reshape(-1, *grid)


@pytest.fixture(scope="session")
def backend() -> Backend:
    """A small lab with a bound on the patches of an image."""
    from app.limits.bounds import Limits

    return small_backend(Limits(max_patches=1200))


@pytest.fixture(scope="session")
def pixels() -> np.ndarray:
    """An image of noise, 90 × 60 pixels."""
    return np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)


@pytest.fixture(scope="session")
def predictor(pixels: np.ndarray) -> AttentionPredictor:
    """The library's predictor, with the image of noise."""
    from dino_model.inference.predictor import AttentionPredictor

    library = AttentionPredictor(MODEL, size=64, precision="fp32", device="cpu")
    library.set_image(pixels)
    return library


@pytest.fixture(scope="session")
def photo(backend: Backend, pixels: np.ndarray) -> str:
    """The name of the image of noise in the lab."""
    from app.store.images import png

    return backend.images.keep(png(pixels))


@pytest.fixture(scope="session")
def encoding(backend: Backend, photo: str) -> Encoding:
    """The image of noise, encoded by `MODEL`."""
    return backend.encode(photo, MODEL, 64)


@pytest.fixture(scope="session")
def page(backend: Backend) -> Page:
    """`Page` without components, for handlers that only compute."""
    from app.page import Page

    return Page(backend)
