"""Arrays of an encoded image for the browser, which computes all other maps from them, and for programs."""

import numpy as np
from numpy.typing import NDArray

from app.limits.errors import LabError
from app.store.engine import Encoding
from dino_model.inference import quantities
from segmentation.discovery import key_features

Maps = NDArray[np.float32]
MAX_ROLLOUT_TOKENS = 3000  # 18 MB for the browser


def attention(encoding: Encoding, block: int = -1, patch: tuple[int, int] | None = None) -> Maps:
    """Compute the attention of a patch, or of [CLS] for None: float32 [heads, rows, columns].

    The block is counted from 0, or from the end if it is negative.
    """
    predictor = encoding.predictor
    rows, columns = predictor.grid
    token, prefix = 0, predictor.prefix_tokens
    if patch is not None:
        row, column = patch
        if not (0 <= row < rows and 0 <= column < columns):
            size = f"{rows} rows and {columns} columns"
            raise LabError(f"There is no patch {row},{column}: the grid has {size}.")
        token = prefix + row * columns + column
    number = block + predictor.blocks if block < 0 else block
    maps = quantities.attention(*encoding.queries_keys(number), token)
    return maps[:, prefix:].reshape(-1, rows, columns)


def rollout(encoding: Encoding, block: int) -> Maps:
    """Compute the attention rollout from the first block to this one: [tokens, tokens]."""
    encoding.queries_keys(block)  # checks the number
    rows, columns = encoding.predictor.grid
    if rows * columns > MAX_ROLLOUT_TOKENS:
        raise LabError(
            f"Rollout compares all pairs of patches, of which there are {rows * columns:,}, more than "
            f"{MAX_ROLLOUT_TOKENS:,}: choose a lower resolution."
        )
    return quantities.attention_rollout(encoding.queries_keys(number) for number in range(block + 1))


def colors_and_variance(encoding: Encoding, block: int) -> Maps:
    """Compute principal components of the keys as colors in [0, 1], flat, then three shares of variance."""
    _, keys = encoding.queries_keys(block)
    features = key_features(keys, encoding.predictor.prefix_tokens, encoding.predictor.grid)
    return np.append(quantities.principal_colors(features), quantities.explained_variance(features))


def norms_and_outliers(encoding: Encoding, block: int) -> Maps:
    """Compute the norms of the patch tokens, and 1 for outliers: [2, rows, columns]."""
    norms = encoding.norms(block)
    return np.stack([norms, quantities.outlier_patches(norms)]).astype(np.float32)
