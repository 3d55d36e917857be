"""Tensors on disk by what they were made from: the one cache of features, shared by all evaluations."""

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from dino_model import files

PART = 1024
"""Rows that are computed and kept at once: what an interruption costs at most."""
_DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64"}


class FeatureCache:
    """One safetensors file for each tensor; the key stands readable in its metadata.

    Files appear complete or not at all; any of them may be deleted at any time. What comes back is mapped
    from the file, so that it takes no more memory than is looked at.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def get(self, key: Mapping[str, str], compute: Callable[[], Tensor]) -> Tensor:
        """The tensor kept under `key`; computed and kept when there is none.

        Raises:
            ValueError: the file of this key is damaged, or tells another key.
            OSError: the folder cannot be written to, or the disk is full; nothing is left then.
        """
        path = self._path(key)
        if not path.exists():
            tensor = compute()
            _write(path, key, tensor.shape, tensor.dtype, [tensor])
        return _read(path, key)

    def rows(self, key: Mapping[str, str], count: int, compute: Callable[[range], Tensor]) -> Tensor:
        """`compute(range(count))` as kept under `key`, computed `PART` rows at a time.

        Each part stands on disk as soon as it is computed: an interruption costs one of them.

        Args:
            key: what the rows are made from.
            count: how many there are, at least 1.
            compute: numbers of rows -> [numbers, ...].

        Raises:
            ValueError, OSError: as `get`; or another number of rows in the file.
        """
        path = self._path(key)
        spans = [range(start, min(start + PART, count)) for start in range(0, count, PART)]
        if not path.exists() and len(spans) > 1:
            keys = [{**key, "rows": f"{span.start} to {span.stop} of {count}"} for span in spans]
            parts = [self.get(part, partial(compute, span)) for part, span in zip(keys, spans, strict=True)]
            _write(path, key, (count, *parts[0].shape[1:]), parts[0].dtype, parts)
            for part in keys:
                self._path(part).unlink(missing_ok=True)
        found = self.get(key, lambda: compute(spans[0]))
        if len(found) != count:
            raise ValueError(f"{path} holds {len(found):,} rows for {count:,} pictures: delete it")
        return found

    @staticmethod
    def write(path: Path, key: Mapping[str, str], features: Tensor) -> None:
        """Features as a file of its own name, whole or not at all."""
        _write(path, key, features.shape, features.dtype, [features])

    @staticmethod
    def read(path: Path, kind: str) -> tuple[Tensor, dict[str, str]]:
        """Features and key of a file of its own name, whose key has this `format`.

        Raises:
            ValueError: another file.
            OSError: none.
        """
        features, told = _open(path)
        if told.get("format") != kind:
            raise ValueError(f"{path} is no {kind}, but {told.get('format', 'another file')}")
        return features, told

    def _path(self, key: Mapping[str, str]) -> Path:
        digest = hashlib.sha256(json.dumps(dict(key), sort_keys=True).encode()).hexdigest()[:32]
        return self.folder / f"{digest}.safetensors"


def model_fingerprint(model: nn.Module) -> str:
    """A hash of every weight, and of the numbers and words that modules keep beside their weights.

    The latter tell apart models of equal weights that compute otherwise: heads, epsilon, position mode.
    """
    parts = hashlib.sha256()
    for name, module in model.named_modules():
        plain = {k: v for k, v in vars(module).items() if isinstance(v, str | int | float | tuple)}
        plain.pop("training", None)  # features are taken in evaluation mode
        parts.update(f"{name} {type(module).__name__} {sorted(plain.items())}".encode())
    for name, tensor in model.state_dict().items():
        parts.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        parts.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return parts.hexdigest()[:32]


def of_picture(
    folder: Path | None,
    look: Callable[[], np.ndarray],
    picture: np.ndarray,
    *,
    what: str,
    weights: str,
    view: str,
    computed: str,
) -> np.ndarray:
    """What a model says of one picture: kept in a folder, or just looked at where there is none.

    Args:
        folder: of the cache.
        look: asks the model.
        picture: uint8 [height, width, channels].
        what: which feature.
        weights: `model_fingerprint` of the model.
        view: how the picture was brought to it.
        computed: in which precision, where and by what.

    Raises:
        ValueError, OSError: as `FeatureCache.get`.
    """
    if folder is None:
        return look()
    content = hashlib.blake2b(np.ascontiguousarray(picture).data, digest_size=16).hexdigest()
    key = {
        "feature": what,
        "model": weights,
        "picture": f"{picture.shape} {content}",
        "view": view,
        "computed": computed,
    }
    kept: np.ndarray = FeatureCache(folder).get(key, lambda: torch.from_numpy(look())).numpy()
    return kept


def _write(
    path: Path, key: Mapping[str, str], shape: Iterable[int], dtype: torch.dtype, parts: Iterable[Tensor]
) -> None:
    """The rows of `parts`, one after the other, as one safetensors file, written part by part."""
    size = torch.empty(0, dtype=dtype).element_size() * int(np.prod(shape := tuple(shape)))
    told = {"dtype": _DTYPES[dtype], "shape": shape, "data_offsets": [0, size]}
    header = json.dumps({"__metadata__": dict(key), "features": told}).encode()
    header += b" " * (-len(header) % 8)
    with files.replacing(path) as beside, beside.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for part in parts:
            file.write(part.detach().contiguous().view(-1).view(torch.uint8).numpy().data)


def _open(path: Path) -> tuple[Tensor, dict[str, str]]:
    try:
        with safe_open(path, "pt") as file:
            return file.get_tensor("features"), file.metadata() or {}
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"{path} is no feature file of this program: delete it") from error


def _read(path: Path, key: Mapping[str, str]) -> Tensor:
    features, told = _open(path)
    if other := next((name for name in {**key, **told} if told.get(name) != key.get(name)), None):
        raise ValueError(
            f"{path} holds features of another {other} ({told.get(other, 'not told')}, expected"
            f" {key.get(other, 'none')}): delete it"
        )
    return features
