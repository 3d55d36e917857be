"""Matching patches of two images; the algorithms are in `segmentation.matching`."""

from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from app.limits.bounds import SIZES
from app.limits.errors import LabError
from app.store.backend import Backend
from app.store.engine import Encoding, Key, patches_of
from app.store.images import png
from app.values import SCREEN_SIDE
from dino_model.inference.quantities import unit_vectors
from segmentation import matching
from segmentation.matching import SCALES, MatchFeatures, best_scale
from segmentation.video import shrunk

TURN_DEGREES = 20
GRAY = (128, 128, 128)


Half = tuple[Encoding, MatchFeatures]
"""An image of a pair: its encoding, and the features that are compared."""


def load_half(backend: Backend, token: str) -> Half:
    """Return the features of an encoded image; refuse one without texture."""
    encoding = backend.encoding(token)
    image = backend.images.read(encoding.key.image)
    if matching.is_flat(image):
        raise LabError("One of the images has no texture, every pixel has the same color: choose another.")
    return encoding, matching.match_features(encoding.predictor, image)


def load_pair(backend: Backend, a: str, b: str) -> tuple[Half, Half]:
    """Return the features of two images encoded by one model."""
    first, second = Key.of(a), Key.of(b)
    if (first.model, first.version) != (second.model, second.version):
        raise LabError("The two images were encoded by different models: encode both with one model.")
    return load_half(backend, a), load_half(backend, b)


def match(backend: Backend, a: str, b: str, ratio: float) -> tuple[dict[str, Any], Encoding]:
    """Match two images encoded by one model, given by their tokens, the second at several scales.

    Returns:
        1. The scale with the most matches, these matches, and the possible scales. A match has a and b (y
        and x in pixels), cosine and ratio. 2. The encoding of B at that scale.
    """
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0.01 <= ratio <= 1:
        raise LabError("The ratio must be a number from 0.01 to 1.")
    (first, features), second = load_pair(backend, a, b)
    encoding, key = second[0], second[0].key
    scaled = {1.0: second}
    for scale in SCALES:
        size = round(key.size * scale)
        patches = patches_of(encoding.predictor.image_size, size, encoding.predictor.patch_size)
        possible = SIZES[0] <= size <= SIZES[1] and patches <= backend.limits.max_patches
        if scale not in scaled and possible:
            scaled[scale] = load_half(backend, replace(key, size=size).token)
    scale, pairs = best_scale(features, {scale: others for scale, (_, others) in scaled.items()}, ratio)
    best, _ = scaled[scale]
    one, other = first.predictor, best.predictor
    grids, sizes = (one.grid, other.grid), (one.image_size, other.image_size)
    matches = matching.matches_as_json(pairs, grids, sizes)
    return {"matches": matches, "scale": scale, "scales": sorted(scaled)}, best


def turn_directions(backend: Backend, name: str) -> str:
    """Turn an image within its frame and keep the copy; return its name.

    The matches of an image with its turned copy can be checked by eye.
    """
    image = Image.fromarray(shrunk(backend.images.read(name), SCREEN_SIDE))
    copy = image.rotate(TURN_DEGREES, Image.Resampling.BICUBIC, fillcolor=GRAY)
    return backend.images.keep(png(np.asarray(copy)))


def direction_bytes(backend: Backend, a: str, b: str) -> bytes:
    """Return vectors whose products are cosines, little-endian float16 [patches of A and of B, D]."""
    (_, first), (_, second) = load_pair(backend, a, b)
    compared = matching.prepare_pair(first.features, second.features)
    units = [unit_vectors(one).reshape(-1, one.shape[-1]) for one in compared]
    return np.concatenate(units).astype("<f2").tobytes()
