"""Procedural gray textures: a labeled data set that is generated, not downloaded.

`textures:` holds 16 classes of 200 training images, `textures:test` 100 other images of each class, both
48 × 48 pixels. Phase, scale, rotation, contrast, polarity, brightness gradient and noise of each image are
random, so that neither color nor position identifies a class.
"""

import io
import tarfile
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dino_model.runtime import files
from dino_model.runtime.download import cache_folder

SIZE = 48
"""Side of an image in pixels."""
PERIOD = 9.0
"""Mean period of a texture in pixels."""
CLASSES = (
    *("bars", "bricks", "checker", "dots", "grid", "hatch", "plus", "rings", "stripes", "waves", "zigzag"),
    *("noise-coarse", "noise-fine", "voronoi-cells", "voronoi-distance", "voronoi-edges"),
)
TEXTURES = "textures:"
"""Start of the name of a set."""
SETS = {TEXTURES: (0, 200), f"{TEXTURES}test": (1, 100)}
"""Name of each set -> seed and images of each class."""


def texture(name: str, random: np.random.Generator) -> NDArray[np.uint8]:
    """Draw an image of a class: uint8 gray [48, 48]."""
    values = _noise(name, random) if "-" in name else _pattern(name, random)
    values = (values - values.mean()) / (values.std() + 1e-6)
    rows, columns = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j]
    contrast = random.uniform(25, 60) * random.choice([-1, 1])
    gradient = random.normal(0, 8, 2)
    values = 128 + contrast * values + gradient[0] * rows + gradient[1] * columns
    return (values + random.normal(0, 12, values.shape)).clip(0, 255).astype(np.uint8)


def _pattern(name: str, random: np.random.Generator) -> NDArray[np.float64]:
    """Draw a periodic pattern from the coordinates u and v, in periods."""
    angle, period = random.uniform(-0.25, 0.25), PERIOD * random.uniform(0.8, 1.25)
    x, y = np.meshgrid(np.arange(SIZE), np.arange(SIZE))
    u = (np.cos(angle) * x + np.sin(angle) * y) / period + random.uniform()
    v = (np.cos(angle) * y - np.sin(angle) * x) / period + random.uniform()
    s, t = u % 1, v % 1
    across, down = np.abs(s - 0.5), np.abs(t - 0.5)
    radius, offset = np.hypot(across, down), np.floor(2 * v) % 2 / 2
    patterns = {
        "bars": s < 0.25,
        "bricks": (2 * v % 1 < 0.25) | ((u + offset) % 1 < 0.12),
        "checker": (np.floor(2 * u) + np.floor(2 * v)) % 2,
        "dots": radius < 0.3,
        "grid": np.minimum(s, t) < 0.18,
        "hatch": ((u + v) % 1 < 0.2) | ((u - v) % 1 < 0.2),
        "plus": (np.minimum(across, down) < 0.1) & (np.maximum(across, down) < 0.38),
        "rings": np.abs(radius - 0.32) < 0.09,
        "stripes": np.sin(2 * np.pi * v),
        "waves": np.sin(2 * np.pi * (v + 0.25 * np.sin(2 * np.pi * u))),
        "zigzag": (v + np.abs(2 * s - 1)) % 1 < 0.5,
    }
    return np.asarray(patterns[name], np.float64)


def _noise(name: str, random: np.random.Generator) -> NDArray[np.float64]:
    """Draw filtered noise or a Voronoi diagram of random points."""
    from scipy.ndimage import gaussian_filter  # here, so that no help text loads it
    from scipy.spatial import cKDTree

    if name.startswith("noise"):
        width = random.uniform(0.8, 1.25) * (0.8 if name == "noise-fine" else 3)
        return np.asarray(gaussian_filter(random.normal(size=(SIZE, SIZE)), width, mode="wrap"))
    count = round((SIZE / PERIOD / random.uniform(0.8, 1.25)) ** 2)
    points = random.uniform(0, SIZE, (count, 2))
    distances, nearest = cKDTree(points).query(np.argwhere(np.ones((SIZE, SIZE))), k=2)
    first, second = distances.T
    values = {
        "voronoi-cells": random.uniform(size=count)[nearest[:, 0]],
        "voronoi-distance": first,
        "voronoi-edges": second - first < 1.5,
    }[name]
    return np.asarray(values, np.float64).reshape(SIZE, SIZE)


def textures_tar(source: str) -> Path:
    """Return the tar of a set in the cache folder, which is generated in seconds if it is missing.

    Raises:
        ValueError: There is no such set.
    """
    if source not in SETS:
        raise ValueError(f"Unknown data set {source!r}. Available: {', '.join(SETS)}.")
    seed, count = SETS[source]
    path = cache_folder() / f"textures-{seed}-{count}.tar"
    if path.exists():
        return path
    with (
        files.replace_file(path) as temporary,
        tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for (label, name), number in product(enumerate(CLASSES), range(count)):
            content, member = io.BytesIO(), tarfile.TarInfo(f"{name}/{number:03}.png")
            image = texture(name, np.random.default_rng([seed, label, number]))
            Image.fromarray(image).convert("RGB").save(content, "PNG")
            member.size = content.tell()
            content.seek(0)
            tar.addfile(member, content)
    return path
