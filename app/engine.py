"""From photographs to encodings: the one slow step of the page, and the memory of what came out of it."""

import secrets
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from app.cache import BoundedCache
from app.catalogue import Catalogue
from app.limits import MEGABYTE, Limits
from app.photos import Photo
from app.runs import checkpoint_file
from dino_model.checkpoints import WeightsError
from dino_model.device import Precision
from dino_model.download import DownloadError
from dino_model.images import ImageError
from dino_model.predictor import AttentionPredictor, fed_size

PREDICTORS_KEPT = 3
TOKENS_KEPT = 10_000

QueriesKeys = tuple[NDArray[np.float16], NDArray[np.float16]]
"""Queries and keys of one block: each [heads, tokens, d], prefix tokens first."""

Features = NDArray[np.float16]
"""Tokens after one block and the final norm: [tokens, width], prefix tokens first."""

EncodingKey = tuple[str, str, int]
"""Content of the photograph, model, size: what an encoding follows from."""


class LabError(RuntimeError):
    """Something a visitor can understand and mend; the message is one sentence and names no path here."""


@dataclass(frozen=True)
class Encoding:
    """A photograph that a model has looked at, and everything the page says about it."""

    name: str
    """What its visitor calls the photograph; two visitors may bring the same one under different names."""
    content: str
    """The same for the same content."""
    example: str | None
    """Which of the examples it is; None for a visitor's own."""
    picture: NDArray[np.uint8]
    """[height, width, 3]"""
    model: str
    source: str
    """Where the weights came from, in words."""
    size: int
    input_size: tuple[int, int]
    grid: tuple[int, int]
    heads: int
    blocks: int
    patch_size: int
    prefix_tokens: int
    precision: str
    device: str
    seconds: float
    """What it took."""

    @property
    def key(self) -> EncodingKey:
        """The same for the same photograph, model and size."""
        return (self.content, self.model, self.size)

    @property
    def photo(self) -> Photo:
        """The photograph, to be looked at in another way."""
        return Photo(self.name, self.content, lambda: self.picture, self.example)


class Engine:
    """Encodes photographs, one at a time, and hands them out under tokens that cannot be guessed.

    A token is all that a visitor holds: who does not know it cannot see the photograph. The same content,
    model and size are encoded once, whoever sends them.

    Args:
        models: what visitors may choose from.
        limits: what they may ask.
        precision, device: as in `AttentionPredictor`.
        models_dir: where visitors' further choices lie: training runs, class maps.
    """

    def __init__(
        self,
        models: Catalogue,
        limits: Limits,
        *,
        precision: Precision = "auto",
        device: str = "auto",
        models_dir: Path | None = None,
    ) -> None:
        self.models = models
        self.limits = limits
        self.models_dir = models_dir
        self._precision: Precision = precision
        self._device = device
        third = limits.max_memory_mb * MEGABYTE // 3
        self._encodings: BoundedCache[EncodingKey, Encoding] = BoundedCache(third)
        self._queries_keys: BoundedCache[tuple[EncodingKey, int], QueriesKeys] = BoundedCache(third)
        self._features: BoundedCache[tuple[EncodingKey, int], Features] = BoundedCache(third)
        self._tokens: BoundedCache[str, tuple[EncodingKey, str]] = BoundedCache(TOKENS_KEPT)
        self._predictors: BoundedCache[tuple[str, int], AttentionPredictor] = BoundedCache(PREDICTORS_KEPT)
        self._model_lock = Lock()  # a predictor holds one picture at a time

    def encode(self, photo: Photo, model: str, size: int) -> str:
        """Look at a photograph; returns the token of its encoding.

        Raises:
            LabError: it cannot be read or is too large, or the model cannot be had.
        """
        key = (photo.key, model, size)
        if self._encodings.get(key) is None:
            with self._model_lock:  # and look again: another visitor may have brought the same meanwhile
                encoding = self._encodings.get(key) or self._encode(photo, model, size)
            self._encodings.put(key, encoding, encoding.picture.nbytes)
        token = secrets.token_urlsafe(16)
        self._tokens.put(token, (key, photo.name))
        return token

    def encoding(self, token: str) -> Encoding:
        """The encoding behind a token.

        Raises:
            LabError: unknown token, or forgotten by now.
        """
        key, name = self._tokens.get(token) or (None, "")
        encoding = None if key is None else self._encodings.get(key)
        if encoding is None:
            raise LabError("This picture is no longer in the server's memory: open it again.")
        return replace(encoding, name=name)

    def queries_keys(self, encoding: Encoding, block: int) -> QueriesKeys:
        """Queries and keys of one block, from memory or computed again.

        Raises:
            LabError: no such block.
        """
        _check_block(encoding, block)
        found = self._queries_keys.get((encoding.key, block))
        if found is None:
            with self.looking_at(encoding) as predictor:
                found = self._take(predictor, encoding.key, block)
        return found

    def features(self, encoding: Encoding, block: int) -> Features:
        """Every token after one block and the final norm, from memory or computed again.

        Raises:
            LabError: no such block, or features beyond float16.
        """
        _check_block(encoding, block)
        found = self._features.get((encoding.key, block))
        if found is None:
            with self.looking_at(encoding) as predictor:
                tokens = predictor.tokens(block)
            if np.abs(tokens).max() > np.finfo(np.float16).max:
                raise LabError(f"The features of block {block} are too large for 16 bits: try another block.")
            found = tokens.astype(np.float16)
            self._features.put((encoding.key, block), found, found.nbytes)
        return found

    @contextmanager
    def borrow(self, model: str, size: int) -> Iterator[AttentionPredictor]:
        """A predictor that is nobody else's until the block ends; what goes wrong inside is said in words.

        Raises:
            LabError: no such model, or whatever went wrong.
        """
        with self._model_lock, _in_words(model):
            yield self.predictor(model, size)

    @contextmanager
    def looking_at(self, encoding: Encoding) -> Iterator[AttentionPredictor]:
        """`borrow`, with the encoding's photograph set; that costs a hash when it is the one set last."""
        with self.borrow(encoding.model, encoding.size) as predictor:
            predictor.set_image(encoding.picture)
            yield predictor

    def predictor(self, model: str, size: int) -> AttentionPredictor:
        """One of the models, or a checkpoint of a run (see `runs.checkpoint_file`), loaded and ready.

        Raises:
            LabError: no model of that name.
            OSError, TypeError, ValueError: as `load_model` and `AttentionPredictor`.
        """
        predictor = self._predictors.get((model, size))
        if predictor is None:
            predictor = AttentionPredictor(
                self._source(model), size=size, precision=self._precision, device=self._device
            )
            self._predictors.put((model, size), predictor)
        return predictor

    def _source(self, model: str) -> str:
        """What `load_model` takes; visitors choose from what is here by name, and only by name."""
        if model in self.models:
            return self.models[model].source
        checkpoint = checkpoint_file(model, self.models_dir)
        if checkpoint is None:
            raise LabError(f"There is no model of that name here; choose one of {', '.join(self.models)}.")
        return str(checkpoint)

    def _encode(self, photo: Photo, model: str, size: int) -> Encoding:
        with _in_words(model):
            predictor = self.predictor(model, size)
            started = time.perf_counter()
            picture = photo.read()
            self._check_patches(picture, size, predictor.patch_size)
            predictor.set_image(picture)
            seconds = time.perf_counter() - started
            self._take(predictor, (photo.key, model, size), predictor.blocks - 1)
        return Encoding(
            name=photo.name,
            content=photo.key,
            example=photo.example,
            picture=picture,
            model=model,
            source=predictor.model.source,
            size=size,
            input_size=predictor.input_size,
            grid=predictor.grid,
            heads=predictor.heads,
            blocks=predictor.blocks,
            patch_size=predictor.patch_size,
            prefix_tokens=predictor.prefix_tokens,
            precision=predictor.precision,
            device=str(predictor.device),
            seconds=seconds,
        )

    def _take(self, predictor: AttentionPredictor, key: EncodingKey, block: int) -> QueriesKeys:
        found = predictor.queries_keys(block)
        self._queries_keys.put((key, block), found, found[0].nbytes + found[1].nbytes)
        return found

    def _check_patches(self, picture: NDArray[np.uint8], size: int, patch_size: int) -> None:
        height, width = picture.shape[:2]
        fed = fed_size(height, width, size, "short-side", patch_size)
        patches = fed[0] * fed[1] // patch_size**2
        if patches > self.limits.max_patches:
            raise LabError(
                f"At resolution {size} this picture of {width} × {height} pixels would make {patches:,} "
                f"patches, more than the {self.limits.max_patches:,} allowed: "
                "choose a lower resolution or crop it."
            )


def _check_block(encoding: Encoding, block: int) -> None:
    if not 0 <= block < encoding.blocks:
        raise LabError(f"There is no block {block}: this model has blocks 0 to {encoding.blocks - 1}.")


@contextmanager
def _in_words(model: str) -> Iterator[None]:
    """Whatever goes wrong inside becomes a `LabError`; what a visitor need not know goes to the terminal."""
    try:
        yield
    except LabError:
        raise
    except ImageError as error:
        raise LabError(f"{error}.") from error
    except DownloadError as error:
        print(error, file=sys.stderr)
        raise LabError(
            f"{model} is not on this machine and could not be downloaded: connect to the internet and "
            "choose it again, or put its file in place by hand, as the terminal says."
        ) from error
    except WeightsError as error:
        print(error, file=sys.stderr)
        raise LabError(f"{model} cannot be loaded; the terminal says why.") from error
    except Exception as error:
        traceback.print_exc()
        raise LabError(f"{model} could not look at this picture; the terminal says why.") from error
