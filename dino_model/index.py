"""Millions of names and numbers, mapped from one file that all processes share, and read as sequences.

A tuple of fourteen million strings takes more than a gigabyte, and again in every worker: counting references
writes to the pages they are on. To a mapped file nobody writes.
"""

import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from operator import eq
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from dino_model import files

T = TypeVar("T")
KINDS = {"U8": "<u1", "I32": "<i4", "I64": "<i8"}
"""NumPy's names of the numbers that an index holds, by those of the file."""


class Column(Sequence[T], ABC, Generic[T]):
    """A sequence of rows of arrays. Equal to any sequence of the same values; a slice of it is a tuple."""

    def __init__(self, length: int, rows: np.ndarray | None = None) -> None:
        """`rows` are numbers of rows among `length`; None: all, in their order."""
        self.length, self.rows = length, rows

    @abstractmethod
    def value(self, row: int) -> T:
        """What stands in a row."""

    @abstractmethod
    def take(self, numbers: np.ndarray) -> "Column[T]":
        """These elements, in this order."""

    def __len__(self) -> int:
        return self.length if self.rows is None else len(self.rows)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        """An element, or some of them."""
        numbers = range(len(self))[index]
        if isinstance(numbers, range):
            return tuple(self[i] for i in numbers)
        return self.value(numbers if self.rows is None else int(self.rows[numbers]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {len(self):,}"

    def _chosen(self, numbers: np.ndarray) -> np.ndarray:
        return numbers if self.rows is None else self.rows[numbers]


class Texts(Column[str]):
    """Strings, decoded when they are asked for."""

    def __init__(self, letters: np.ndarray, ends: np.ndarray, rows: np.ndarray | None = None) -> None:
        """UTF-8 of all, uint8 [bytes], and where each ends, int64 [n]."""
        super().__init__(len(ends), rows)
        self.letters, self.ends = letters, ends

    def value(self, row: int) -> str:
        """The string of a row."""
        start = int(self.ends[row - 1]) if row else 0
        return self.letters[start : int(self.ends[row])].tobytes().decode()

    def take(self, numbers: np.ndarray) -> "Texts":
        """These strings; nothing is copied."""
        return Texts(self.letters, self.ends, self._chosen(numbers))

    def __reduce__(self) -> tuple[Any, ...]:
        return Texts, (_sent(self.letters), _sent(self.ends), self.rows)


class Numbers(Column[Any]):
    """Whole numbers, or tuples of them."""

    def __init__(self, table: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Integers [n] or [n, numbers of a tuple]."""
        super().__init__(len(table), rows)
        self.table = table

    def value(self, row: int) -> Any:
        """The number, or the tuple, of a row."""
        found = self.table[row].tolist()
        return tuple(found) if isinstance(found, list) else found

    def take(self, numbers: np.ndarray) -> "Numbers":
        """These numbers; nothing is copied."""
        return Numbers(self.table, self._chosen(numbers))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All at once."""
        found = self.table if self.rows is None else self.table[self.rows]
        return np.array(found, dtype=dtype, copy=copy)

    def __reduce__(self) -> tuple[Any, ...]:
        return Numbers, (_sent(self.table), self.rows)


class _Parcel:
    """A mapped array on its way to another process, which maps the file itself."""

    def __init__(self, array: np.memmap) -> None:
        self.place = Path(str(array.filename)), array.offset, array.dtype.str, array.shape

    def __reduce__(self) -> tuple[Any, ...]:
        return _map, self.place


def _sent(array: np.ndarray) -> Any:
    return _Parcel(array) if isinstance(array, np.memmap) else array


def letters_of(texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """What `Texts` is made of: UTF-8 of all, uint8 [bytes], and where each ends, int64 [n]."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    return np.frombuffer(b"".join(encoded), np.uint8), ends


def keep(path: Path, arrays: Mapping[str, np.ndarray], told: Mapping[str, str]) -> None:
    """Write arrays, and what else is told of them, as a safetensors file: whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    with files.replacing(path) as beside:
        try:
            save_file(dict(arrays), beside, dict(told))
        except SafetensorError as error:  # as the library tells a full disk
            raise OSError(f"{path} cannot be written: {error}") from error


def mapped(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """What `keep` wrote; of the arrays is read what is looked at, and nothing can be written to them."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    told = header.pop("__metadata__", {})
    start = 8 + length
    return {
        name: _map(path, start + its["data_offsets"][0], KINDS[its["dtype"]], tuple(its["shape"]))
        for name, its in header.items()
    }, told


def _map(path: Path, offset: int, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.memmap(path, kind, "r", offset, shape) if np.prod(shape) else np.empty(shape, kind)
