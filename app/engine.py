"""Encodings of images by models: the one slow step of the page, and their bounded cache."""

import base64
import binascii
import threading
import time
import traceback
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from app.cache import BoundedCache
from app.errors import LabError, NotHere
from app.limits import MEGABYTE, SIZES, Limits
from app.models import Models, Progress, silent
from app.photos import EXAMPLES, Picture, Pictures
from dino_model.device import Precision
from dino_model.predictor import AttentionPredictor
from dino_model.resize import fed_size
from dino_model.weights import LoadedModel

QueriesKeys = tuple[NDArray[np.float16], NDArray[np.float16]]
"""Queries and keys of one block: each [heads, tokens, d], prefix tokens first."""
_READING = threading.Lock()
"""Held while arrays are computed from an encoding: predictors of one model share its buffers."""


@dataclass(frozen=True)
class Key:
    """Image, model, resolution (pixels of the short side) and version of the model's file."""

    photo: str
    model: str
    size: int
    version: str = ""

    @property
    def token(self) -> str:
        """The key as text that is safe in addresses."""
        model = base64.urlsafe_b64encode(self.model.encode()).decode().rstrip("=")
        return ".".join([self.photo, str(self.size), model, *([self.version] if self.version else [])])

    @classmethod
    def of(cls, token: str) -> "Key":
        """Return the key of a token.

        Raises:
            NotHere: The text is no token.
        """
        try:
            photo, size, model, *version = token.split(".")
            name = base64.urlsafe_b64decode(model + "=" * (-len(model) % 4)).decode()
            key = cls(photo, name, int(size), *version)
            if key.token == token and 0 < key.size < 10**6:
                return key
        except (AttributeError, ValueError, TypeError, binascii.Error):
            pass
        raise NotHere("There is nothing behind this token: open the image again.")


@dataclass(frozen=True)
class Encoding:
    """An image encoded by a model.

    Attributes:
        picture_size: Height and width of the image.
        seconds: Duration of the forward pass.
        predictor: Holds the tokens of the image after every block.
    """

    key: Key
    picture_size: tuple[int, int]
    seconds: float
    predictor: AttentionPredictor = field(repr=False)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.predictor.grid

    @property
    def prefix_tokens(self) -> int:
        """Number of tokens before the patches: [CLS] and registers."""
        return self.predictor.prefix_tokens

    @property
    def blocks(self) -> int:
        """Number of blocks of the model."""
        return self.predictor.blocks

    @property
    def example(self) -> bool:
        """True for the examples of the package."""
        return self.key.photo in EXAMPLES

    def queries_keys(self, block: int) -> QueriesKeys:
        """Return queries and keys of one block, counted from 0."""
        self._check(block)
        try:
            with _READING:
                return self.predictor.queries_keys(block)
        except ValueError as error:
            raise LabError(
                f"Queries or keys of block {block} exceed 16 bits: choose another block."
            ) from error

    def features(self, block: int) -> NDArray[np.float16]:
        """Return all tokens after one block and the final norm: [tokens, width], prefix tokens first."""
        self._check(block)
        with _READING:
            tokens = self.predictor.tokens(block)
        if np.abs(tokens).max() > np.finfo(np.float16).max:
            raise LabError(f"Features of block {block} exceed 16 bits: choose another block.")
        return tokens.astype(np.float16)

    def patch_features(self) -> NDArray[np.float32]:
        """Return `segmentation.heads.patch_features` of the last block: [rows, columns, width]."""
        with _READING:
            return self.predictor.token_features(-1)

    def norms(self, block: int) -> NDArray[np.float32]:
        """Return the L2 norms of the patch tokens after one block: [rows, columns]."""
        self._check(block)
        with _READING:
            return self.predictor.token_norms(block)

    def _check(self, block: int) -> None:
        if not 0 <= block < self.blocks:
            raise LabError(f"There is no block {block}: this model has blocks 0 to {self.blocks - 1}.")


class Engine:
    """Encode images, one at a time; the same image, model and size once for all users.

    Args:
        models: Models that users may choose.
        pictures: Images by name.
        limits: Bounds on memory and patches.
        precision, device: As in `AttentionPredictor`.
    """

    def __init__(
        self,
        models: Models,
        pictures: Pictures,
        limits: Limits,
        *,
        precision: Precision = "auto",
        device: str = "auto",
    ) -> None:
        self.models, self.pictures, self.limits = models, pictures, limits
        self._model = threading.Lock()
        self._precision: Precision = precision
        self._device = device
        self._predictors: dict[int, AttentionPredictor] = {}  # by the identity of their model
        self._encodings: BoundedCache[Key, Encoding] = BoundedCache(limits.max_memory_mb * MEGABYTE // 2)
        models.on_forgotten = self._forget

    def encode(self, photo: str, model: str, size: int, progress: Progress = silent) -> Encoding:
        """Encode an image, or return its cached encoding.

        Args:
            photo: Name of the image in `pictures`.
            model: Name of the model in `models`.
            size: Pixels of the short side.
            progress: Receives the progress of a download.
        """
        if not (isinstance(photo, str) and isinstance(model, str)):
            raise LabError("The image and the model must be named by text.")
        if type(size) is not int or not SIZES[0] <= size <= SIZES[1]:
            raise LabError(f"The resolution must be a whole number from {SIZES[0]} to {SIZES[1]} pixels.")
        key = Key(photo, model, size, self.models.source(model).version)
        found = self._encodings.get(key)
        if found is None:
            self.pictures.check(photo)
            weights = self.models.ready(model, progress)
            with self._model:
                # Another request may have encoded the same image meanwhile.
                found = self._encodings.get(key) or self.look(key, weights, self.pictures.read(photo))
        return found

    def holds(self, token: str) -> bool:
        """Return whether the encoding of a token is in memory."""
        return self._encodings.get(Key.of(token)) is not None

    def encoding(self, token: str) -> Encoding:
        """Return the encoding of a token; compute it again if it was forgotten."""
        key = Key.of(token)
        if self.models.source(key.model).version != key.version:
            raise NotHere(f"{key.model} has been trained on meanwhile: choose it again.")
        return self.encode(key.photo, key.model, key.size)

    def predictor(self, weights: LoadedModel, size: int) -> AttentionPredictor:
        """Return the predictor of a model at a resolution; all resolutions share weights and graphs."""
        if id(weights) not in self._predictors:
            self._predictors[id(weights)] = AttentionPredictor(
                weights, size=size, precision=self._precision, device=self._device
            )
        return self._predictors[id(weights)].at(size)

    def look(self, key: Key, weights: LoadedModel, picture: Picture) -> Encoding:
        """Encode an image now, whatever the cache holds."""
        try:
            predictor = self.predictor(weights, key.size)
            picture_size = (picture.shape[0], picture.shape[1])
            check_patches(picture_size, key.size, predictor.patch_size, self.limits)
            started = time.perf_counter()
            predictor.set_image(picture)
            keys = _last_keys(predictor, key.model)
        except LabError:
            raise
        except Exception as error:
            traceback.print_exc()
            raise LabError(f"{key.model} cannot encode this image: choose another model.") from error
        found = Encoding(key, picture_size, time.perf_counter() - started, predictor)
        heads, tokens, dimensions = keys.shape
        self._encodings.put(key, found, 4 * (predictor.blocks + 1) * tokens * heads * dimensions)
        return found

    def _forget(self, model: LoadedModel) -> None:
        """Drop the encodings of a model that was dropped: they would hold its weights."""
        self._predictors.pop(id(model), None)
        self._encodings.drop(lambda encoding: encoding.predictor.model is model)


def patches_of(picture_size: tuple[int, int], size: int, patch_size: int) -> int:
    """Return the number of patches of an image of this height and width at a resolution."""
    height, width = fed_size(*picture_size, size, "short-side", patch_size)
    return height * width // patch_size**2


def check_patches(picture_size: tuple[int, int], size: int, patch_size: int, limits: Limits) -> None:
    """Refuse an image of this height and width if it has too many patches at a resolution."""
    patches, (height, width) = patches_of(picture_size, size, patch_size), picture_size
    if patches > limits.max_patches:
        raise LabError(
            f"At resolution {size} an image of {width} × {height} pixels has {patches:,} patches, "
            f"more than the {limits.max_patches:,} allowed: choose a lower resolution or crop it."
        )


def _last_keys(predictor: AttentionPredictor, model: str) -> NDArray[np.float16]:
    """Return the keys of the last block.

    Raises:
        LabError: Attention does not follow from queries, keys and [CLS], as for BEiT, SigLIP and CaiT.
    """
    try:
        predictor.cls_attention(0)
    except ValueError as error:
        raise LabError(
            f"{model} has no [CLS] token in its blocks, which this page needs: choose another model."
        ) from error
    try:
        return predictor.queries_keys(-1)[1]
    except ValueError as error:
        raise LabError(
            f"The attention of {model} needs more than queries and keys: choose another model."
        ) from error
