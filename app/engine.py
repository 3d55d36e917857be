"""From photographs to encodings: the one slow step of the page, and the memory of what came out of it."""

import base64
import binascii
import contextlib
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from app.cache import BoundedCache
from app.errors import Busy, LabError, NotHere
from app.limits import MEGABYTE, SIZES, Limits
from app.models import Models
from app.photos import EXAMPLES, Picture, Pictures
from app.progress import Progress, silent
from dino_model import quantities
from dino_model.device import Precision
from dino_model.predictor import AttentionPredictor
from dino_model.resize import fed_size
from dino_model.weights import LoadedModel

QueriesKeys = tuple[NDArray[np.float16], NDArray[np.float16]]
"""Queries and keys of one block: each [heads, tokens, d], prefix tokens first."""

Features = NDArray[np.float16]
"""Tokens after one block and the final norm: [tokens, width], prefix tokens first."""


ROLLOUT_PATCHES = 2500
"""Most patches of a rollout: 13 MB for a browser."""


@dataclass(frozen=True)
class Key:
    """What an encoding follows from, and what its token says: nothing else is remembered of a visitor."""

    photo: str
    model: str
    size: int
    """Pixels of the short side."""
    version: str = ""
    """Of the model's file."""

    @property
    def token(self) -> str:
        """The same as text that is safe in addresses."""
        model = base64.urlsafe_b64encode(self.model.encode()).decode().rstrip("=")
        return ".".join([self.photo, str(self.size), model, *([self.version] if self.version else [])])

    @classmethod
    def of(cls, token: str) -> "Key":
        """The key that has this token.

        Raises:
            NotHere: none has.
        """
        parts = token.split(".")
        try:
            photo, size, model, *version = parts
            name = base64.urlsafe_b64decode(model + "=" * (-len(model) % 4)).decode()
            key = cls(photo, name, int(size), *version)
            if key.token == token and 0 < key.size < 10**6:
                return key
        except (ValueError, TypeError, binascii.Error):
            pass
        raise NotHere("There is nothing behind this token: open the image again.")


@dataclass(frozen=True)
class Encoding:
    """A photograph that a model has looked at. One thread at a time computes from it."""

    key: Key
    picture_size: tuple[int, int]
    """Height and width of the photograph."""
    seconds: float
    """What it took."""
    predictor: AttentionPredictor = field(repr=False)
    """Holds the photograph's tokens at every block."""

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.predictor.grid

    @property
    def prefix_tokens(self) -> int:
        """[CLS] and registers."""
        return self.predictor.prefix_tokens

    @property
    def blocks(self) -> int:
        """Of the model."""
        return self.predictor.blocks

    @property
    def example(self) -> bool:
        """Whether the photograph is one of the examples."""
        return self.key.photo in EXAMPLES

    def queries_keys(self, block: int) -> QueriesKeys:
        """Queries and keys of one block, counted from 0.

        Raises:
            LabError: no such block, or figures beyond float16.
        """
        self._check(block)
        try:
            return self.predictor.queries_keys(block)
        except ValueError as error:
            raise LabError(
                f"The figures of block {block} are too large for 16 bits: try another block."
            ) from error

    def features(self, block: int) -> Features:
        """Every token after one block and the final norm.

        Raises:
            LabError: no such block, or features beyond float16.
        """
        self._check(block)
        tokens = self.predictor.tokens(block)
        if np.abs(tokens).max() > np.finfo(np.float16).max:
            raise LabError(f"The features of block {block} are too large for 16 bits: try another block.")
        return tokens.astype(np.float16)

    def rollout(self, block: int) -> NDArray[np.float16]:
        """How much of every token comes from which, through all blocks up to this one: [tokens, tokens].

        Raises:
            LabError: no such block, or too many patches: it grows with their square.
        """
        self._check(block)
        if self.grid[0] * self.grid[1] > ROLLOUT_PATCHES:
            raise LabError(
                f"Rollout compares all pairs of patches and takes at most {ROLLOUT_PATCHES:,} of them: "
                "choose a lower resolution."
            )
        return quantities.rollout([self.queries_keys(one) for one in range(block + 1)]).astype(np.float16)

    def _check(self, block: int) -> None:
        if not 0 <= block < self.blocks:
            raise LabError(f"There is no block {block}: this model has blocks 0 to {self.blocks - 1}.")


class Engine:
    """Encode images, one at a time; the same image, model and size once for all users.

    Args:
        models: Models that users may choose.
        pictures: Images by name.
        limits: Bounds on memory, patches and waiting requests.
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
        self.reading = threading.Lock()
        """Held while maps are computed from an encoding."""
        self._model = threading.Lock()
        self._waiting = 0
        self._precision: Precision = precision
        self._device = device
        self._predictors: dict[int, AttentionPredictor] = {}  # by the identity of their model
        self._looks: BoundedCache[Key, Encoding] = BoundedCache(limits.max_memory_mb * MEGABYTE // 2)
        models.on_forgotten = self._forget

    def encode(self, photo: str, model: str, size: int, progress: Progress = silent) -> Encoding:
        """Encode an image, or return its cached encoding.

        Args:
            photo: Name of the image in `pictures`.
            model: Name of the model in `models`.
            size: Pixels of the short side.
            progress: Hears of a download and of a compilation.

        Raises:
            LabError: An argument is invalid, the image or model is missing, or too many requests wait.
        """
        if not (isinstance(photo, str) and isinstance(model, str)):
            raise LabError("The image and the model must be named by text.")
        if type(size) is not int or not SIZES[0] <= size <= SIZES[1]:
            raise LabError(f"The resolution must be a whole number from {SIZES[0]} to {SIZES[1]} pixels.")
        key = Key(photo, model, size, self.models.source(model).version)
        found = self._looks.get(key)
        if found is None:
            self.pictures.check(photo)
            weights = self.models.ready(model, progress)
            with self._turn():
                # Another request may have encoded the same image meanwhile.
                found = self._looks.get(key) or self.look(key, weights, self.pictures.read(photo), progress)
        return found

    def holds(self, token: str) -> bool:
        """Whether the encoding of a token is in memory.

        Raises:
            NotHere: There is no such token.
        """
        return self._looks.get(Key.of(token)) is not None

    def encoding(self, token: str, progress: Progress = silent) -> Encoding:
        """Return the encoding of a token, computed again where it was forgotten.

        Raises:
            LabError: As `encode`; or the model's file has changed since the token was given.
        """
        key = Key.of(token)
        if self.models.source(key.model).version != key.version:
            raise NotHere(f"{key.model} has been trained on meanwhile: choose it again.")
        return self.encode(key.photo, key.model, key.size, progress)

    def predictor(self, weights: LoadedModel, size: int) -> AttentionPredictor:
        """Of a model at a resolution; shares weights and compiled graphs with all others of that model."""
        if id(weights) not in self._predictors:
            self._predictors[id(weights)] = AttentionPredictor(
                weights, size=size, precision=self._precision, device=self._device
            )
        return self._predictors[id(weights)].at(size)

    def look(self, key: Key, weights: LoadedModel, picture: Picture, progress: Progress = silent) -> Encoding:
        """Encode an image now; `progress` hears of a compilation.

        Raises:
            LabError: too many patches, or a model that cannot be used on it.
        """
        try:
            predictor = self.predictor(weights, key.size)
            self._check_patches(picture, key.size, predictor.patch_size)
            started = time.perf_counter()
            predictor.set_image(picture)
            last, _ = _last_block(predictor, key.model)
        except LabError:
            raise
        except Exception as error:
            traceback.print_exc()
            raise LabError(f"{key.model} cannot look at this picture: choose another model.") from error
        seconds = time.perf_counter() - started
        found = Encoding(key, (picture.shape[0], picture.shape[1]), seconds, predictor)
        tokens = predictor.grid[0] * predictor.grid[1] + predictor.prefix_tokens
        self._looks.put(key, found, 4 * (predictor.blocks + 1) * tokens * last.shape[0] * last.shape[-1])
        return found

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for the model.

        Raises:
            Busy: Too many requests wait already.
        """
        if self._waiting >= self.limits.max_waiting:
            raise Busy("Too many images wait for the model: try again in a moment.")
        self._waiting += 1
        try:
            with self._model:
                yield
        finally:
            self._waiting -= 1

    def _forget(self, model: LoadedModel) -> None:
        """Let go of encodings whose weights were let go: they would hold them."""
        self._predictors.pop(id(model), None)
        self._looks.drop(lambda encoding: encoding.predictor.model is model)

    def _check_patches(self, picture: Picture, size: int, patch_size: int) -> None:
        height, width = picture.shape[:2]
        patches = patches_of((height, width), size, patch_size)
        if patches > self.limits.max_patches:
            raise LabError(
                f"At resolution {size} this picture of {width} × {height} pixels would make {patches:,} "
                f"patches, more than the {self.limits.max_patches:,} allowed: "
                "choose a lower resolution or crop it."
            )


def patches_of(picture_size: tuple[int, int], size: int, patch_size: int) -> int:
    """How many patches a picture of this height and width makes at a resolution."""
    height, width = fed_size(*picture_size, size, "short-side", patch_size)
    return height * width // patch_size**2


def _last_block(predictor: AttentionPredictor, model: str) -> QueriesKeys:
    """Queries and keys of the last block, where the page's arithmetic holds: every map follows from them and
    [CLS].

    Raises:
        LabError: attention has a bias beside them (BEiT), or there is no [CLS] in the blocks (SigLIP, CaiT).
    """
    try:
        predictor.cls_attention(0)
    except ValueError as error:
        raise LabError(
            f"{model} has no [CLS] token in its blocks, which this page asks first: choose another model."
        ) from error
    try:
        return predictor.queries_keys(-1)
    except ValueError as error:
        raise LabError(
            f"The queries and keys of {model} alone do not tell its attention, as this page needs it: "
            "choose another model."
        ) from error
