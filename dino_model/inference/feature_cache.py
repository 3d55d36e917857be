"""Cache features on disk, keyed by every setting that they depend on."""

import hashlib
import json
import os
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from dino_model.runtime import files


class CachedRows:
    """Rows of a tensor, too large to compute at once, in the file DIGEST.npy of a cache folder.

    Its key is in DIGEST.json. Both appear when all rows are written, and may be deleted at any time. An
    interruption keeps the rows written so far. Between `open` and `close` another process that computes the
    same rows waits.

    Args:
        folder: Created if missing.
        key: Names of the settings that the rows depend on, and their values as text.
        count: Number of rows.
    """

    def __init__(self, folder: Path, key: dict[str, str], count: int) -> None:
        self.key, self.count, self.done = key, count, 0
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
        self.path = folder / f"{digest}.npy"
        self._partial = self.path.with_suffix(".partial")
        self._lock = ExitStack()
        self.close = self._lock.close

    def open(self) -> int:
        """Wait for other writers of this file, then return how many rows are on disk."""
        self._lock.enter_context(files.file_lock(self.path.with_suffix(".lock"), wait=True))
        self.done = self.count if self.path.is_file() else self._rows_on_disk()
        return self.done

    def append(self, rows: Tensor | np.ndarray) -> None:
        """Write the next rows: [rows, ...]. Raises OSError if they cannot be written."""
        array = rows if isinstance(rows, np.ndarray) else rows.detach().contiguous().numpy()
        with self._partial.open("ab" if self.done else "wb") as file:
            if not self.done:
                header = np.lib.format.header_data_from_array_1_0(array)
                header |= {"shape": (self.count, *array.shape[1:])}
                np.lib.format.write_array_header_1_0(file, header)
            file.write(array.data)
        self.done += len(rows)

    def finish(self) -> None:
        """Complete the file."""
        if not self.path.is_file():
            files.write_json(self.path.with_suffix(".json"), self.key)
            self._partial.replace(self.path)

    def read(self) -> np.ndarray:
        """Return all rows, mapped from the file.

        Raises:
            ValueError: The file is missing, damaged, or holds another key.
        """
        try:
            if json.loads(self.path.with_suffix(".json").read_text(encoding="utf-8")) != self.key:
                raise ValueError("it holds another key")
            array: np.ndarray = np.load(self.path, mmap_mode="c")
            return array
        except (ValueError, EOFError, FileNotFoundError) as error:
            raise ValueError(f"{self.path} is no feature file of this program: delete it") from error

    def _rows_on_disk(self) -> int:
        """Number of whole rows in the partial file, which is cut behind them."""
        with suppress(FileNotFoundError, ValueError), self._partial.open("r+b") as file:
            np.lib.format.read_magic(file)
            (count, *shape), _, dtype = np.lib.format.read_array_header_1_0(file)
            start, row = file.tell(), int(np.prod(shape)) * dtype.itemsize
            rows = (self._partial.stat().st_size - start) // row
            if count == self.count:
                os.truncate(self._partial, start + rows * row)
                return int(rows)
        return 0


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
