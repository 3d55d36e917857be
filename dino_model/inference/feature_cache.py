"""Cache features on disk, keyed by every setting that they depend on."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dino_model.models.load import LoadedModel, load_model
from dino_model.runtime import files


class CachedRows:
    """Rows of a tensor, too large to compute at once, in the file DIGEST.npy of a cache folder.

    Its key, the settings that the rows depend on, is in DIGEST.json. Both appear when all rows are written,
    and may be deleted at any time. An interruption keeps the rows that were marked as done. Between `open`
    and `close` another process that computes the same rows waits; the ranks of one process group write to one
    file, which all of them see.
    """

    def __init__(self, folder: Path, key: dict[str, str], count: int) -> None:
        self.key, self.count, self.done = key, count, 0
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
        self.path = folder / f"{digest}.npy"
        self._partial, self._marked = self.path.with_suffix(".partial"), self.path.with_suffix(".done")
        self._lock = ExitStack()
        self.close = self._lock.close

    def open(self) -> int:
        """Wait for other writers of this file, then return how many rows are on disk."""
        self._lock.enter_context(files.file_lock(self.path.with_suffix(".lock"), wait=True))
        self.done = self.count if self.path.is_file() else 0
        with suppress(FileNotFoundError, ValueError):
            self.done = int(self._marked.read_text()) if self._partial.is_file() else self.done
        return self.done

    def create(self, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        """Create the file for rows of a shape, unless an interrupted computation did."""
        if not self.done:
            np.lib.format.open_memmap(self._partial, "w+", dtype, (self.count, *shape))

    def write(self, start: int, rows: np.ndarray) -> None:
        """Write rows [rows, ...] from number `start` on. Raises OSError if they cannot be written."""
        np.load(self._partial, mmap_mode="r+")[start : start + len(rows)] = rows

    def mark(self, done: int) -> None:
        """Store that the first `done` rows are written; complete the file if these are all."""
        self.done = done
        self._marked.write_text(str(done))
        if done == self.count and not self.path.is_file():
            files.write_json(self.path.with_suffix(".json"), self.key)
            self._partial.replace(self.path)
            self._marked.unlink()

    def read(self) -> np.ndarray:
        """Return all rows, mapped from the file; ValueError if it is damaged or holds another key."""
        try:
            if json.loads(self.path.with_suffix(".json").read_text(encoding="utf-8")) != self.key:
                raise ValueError("it holds another key")
            array: np.ndarray = np.load(self.path, mmap_mode="c")
            return array
        except (ValueError, EOFError, FileNotFoundError) as error:
            raise ValueError(f"{self.path} is no feature file of this program: delete it") from error


def model_fingerprint(model: nn.Module) -> str:
    """Hash every weight, and the plain attributes of modules: heads, epsilon, position mode."""
    parts = hashlib.sha256()
    for name, module in model.named_modules():
        plain = {k: v for k, v in vars(module).items() if isinstance(v, str | int | float | tuple)}
        plain.pop("training", None)  # features are computed in evaluation mode
        parts.update(f"{name} {type(module).__name__} {sorted(plain.items())}".encode())
    return weights_fingerprint(model, parts)


def weights_fingerprint(model: nn.Module, parts: "hashlib._Hash | None" = None) -> str:
    """Hash every weight, after what `parts` has hashed."""
    parts = parts or hashlib.sha256()
    for name, tensor in model.state_dict().items():
        parts.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        parts.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return parts.hexdigest()[:32]


def load_same(file: Path, stored: str, weights: str, name: str | None, **checkpoint: Any) -> LoadedModel:
    """Load the model that the features of a file are from, by its stored name or by another one.

    Raises:
        WeightsError, DownloadError: As `load_model`.
        ValueError: The model has not the fingerprint `weights`.
    """
    model = load_model(name or stored, **checkpoint, named_by=None if name else file)
    if model_fingerprint(model.backbone) != weights:
        raise ValueError(
            f"{file} was fitted to other weights of {stored!r} than {model.name!r} has: pass that model with"
            " --model and --checkpoint-key, or write the file again"
        )
    return model
