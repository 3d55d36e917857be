"""Encodings of images by models: the one slow step of the page."""

import base64
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from app.limits.bounds import RESOLUTIONS, Limits
from app.limits.errors import LabError, NotHere
from dino_model.inference.predictor import AttentionPredictor
from dino_model.inference.resize import fed_size
from segmentation.masks import ImageArray

Array = TypeVar("Array")
QueriesKeys = tuple[NDArray[np.float16], NDArray[np.float16]]
"""Queries and keys of one block: each [heads, tokens, d], prefix tokens first."""
_READING = threading.Lock()
"""Held while arrays are computed from an encoding: predictors of one model share its buffers."""


@dataclass(frozen=True)
class Key:
    """Image, model, resolution (pixels of the short side) and version of the model's file."""

    image: str
    model: str
    size: int
    version: str = ""

    @property
    def token(self) -> str:
        """The key as text that is safe in addresses."""
        model = base64.urlsafe_b64encode(self.model.encode()).decode().rstrip("=")
        return ".".join([self.image, str(self.size), model, *([self.version] if self.version else [])])

    @classmethod
    def of(cls, token: str) -> "Key":
        """Return the key of a token."""
        try:
            image, size, model, *version = token.split(".")
            name = base64.urlsafe_b64decode(model + "==").decode()
            key = cls(image, name, int(size), *version)
            if key.token == token and 0 < key.size < 10**6:
                return key
        except (AttributeError, ValueError, TypeError):
            pass
        raise NotHere("There is nothing behind this token: open the image again.")


@dataclass(frozen=True)
class Encoding:
    """An image encoded by a model: a predictor that holds the tokens after every block, and their bytes."""

    key: Key
    nbytes: int
    predictor: AttentionPredictor = field(repr=False)

    def queries_keys(self, block: int) -> QueriesKeys:
        """Return queries and keys of one block, counted from 0."""
        return self._read(AttentionPredictor.queries_keys, block)

    def features(self, block: int) -> NDArray[np.float16]:
        """Return all tokens after one block and the final norm: [tokens, width], prefix tokens first."""
        return self._read(_tokens_in_16_bits, block)

    def patch_features(self) -> NDArray[np.float32]:
        """Return `segmentation.heads.patch_features` of the last block: [rows, columns, width]."""
        return self._read(AttentionPredictor.token_features, self.predictor.blocks - 1)

    def norms(self, block: int) -> NDArray[np.float32]:
        """Return the L2 norms of the patch tokens after one block: [rows, columns]."""
        return self._read(AttentionPredictor.token_norms, block)

    def _read(self, compute: Callable[[AttentionPredictor, int], Array], block: int) -> Array:
        if not 0 <= block < self.predictor.blocks:
            raise LabError(
                f"There is no block {block}: this model has blocks 0 to {self.predictor.blocks - 1}."
            )
        try:
            with _READING:
                return compute(self.predictor, block)
        except ValueError as error:
            raise LabError(f"Values of block {block} exceed 16 bits: choose another block.") from error


def _tokens_in_16_bits(predictor: AttentionPredictor, block: int) -> NDArray[np.float16]:
    tokens = predictor.tokens(block)
    if np.abs(tokens).max() > np.finfo(np.float16).max:
        raise ValueError("tokens exceed float16")
    return tokens.astype(np.float16)


def encode(key: Key, predictor: AttentionPredictor, image: ImageArray, limits: Limits) -> Encoding:
    """Encode an image at the resolution of a key."""
    try:
        sized = predictor.at(key.size)
        check_patches((image.shape[0], image.shape[1]), key.size, sized.patch_size, limits)
        sized.set_image(image)
    except LabError:
        raise
    except Exception as error:
        traceback.print_exc()
        raise LabError(f"{key.model} cannot encode this image: choose another model.") from error
    try:
        sized.cls_attention(0)
        _, keys = sized.queries_keys(-1)
    except ValueError as error:
        raise LabError(
            f"The page needs attention of [CLS] that follows from queries and keys, which {key.model} does "
            "not have: choose another model."
        ) from error
    return Encoding(key, 4 * (sized.blocks + 1) * keys.size, sized)


def patches_of(image_size: tuple[int, int], size: int, patch_size: int) -> int:
    """Return the number of patches of an image of this height and width at a resolution."""
    height, width = fed_size(*image_size, size, "short-side", patch_size)
    return height * width // patch_size**2


def check_patches(image_size: tuple[int, int], size: int, patch_size: int, limits: Limits) -> None:
    """Refuse an image of this height and width if it has too many patches at a resolution."""
    patches, (height, width) = patches_of(image_size, size, patch_size), image_size
    if patches > limits.max_patches:
        lower = [one for one in RESOLUTIONS if patches_of(image_size, one, patch_size) <= limits.max_patches]
        ratio = limits.max_patches * (patch_size / size) ** 2  # of the sides, at which the bound is reached
        crop = f"crop its longer side to {ratio:.1f} times the shorter one"
        advice = f"choose resolution {max(lower)}" if lower else crop
        raise LabError(
            f"At resolution {size} an image of {width} × {height} pixels has {patches:,} patches, "
            f"more than the {limits.max_patches:,} allowed: {advice}."
        )
