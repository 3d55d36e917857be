"""Columns of tables of millions of rows, mapped from a file that processes share."""

import os
from collections.abc import Iterator, Sequence
from operator import eq
from typing import Any

import numpy as np

ROWS_AT_ONCE = 65_536


class Column(Sequence[Any]):
    """A column of a table: strings or integers, equal to any sequence of the same values.

    A table of millions of rows is mapped from a file. Processes share it: a pickled column holds the path.
    """

    def __init__(self, table: np.ndarray | str, field: str, rows: np.ndarray | None = None) -> None:
        """`table` is a structured array or its file; `rows` are the numbers of the rows, None for all."""
        self.table: np.ndarray = np.load(table, mmap_mode="r") if isinstance(table, str) else table
        self.field, self.rows = field, rows

    def take(self, chosen: np.ndarray) -> "Column":
        """Return these elements, in this order, without copying the table."""
        return Column(self.table, self.field, chosen if self.rows is None else self.rows[chosen])

    def __len__(self) -> int:
        return len(self.table) if self.rows is None else len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        values = self.table[self.field][index if self.rows is None else self.rows[index]].tolist()
        return tuple(map(_plain, values)) if isinstance(index, slice) else _plain(values)

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), ROWS_AT_ONCE):
            yield from self[start : start + ROWS_AT_ONCE]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        table = str(self.table.filename) if isinstance(self.table, np.memmap) else self.table
        return Column, (table, self.field, self.rows)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return os.fsdecode(value)
    return tuple(value) if isinstance(value, list) else value


def take(values: Sequence[Any], chosen: np.ndarray) -> Sequence[Any]:
    """Return these elements, in this order."""
    return values.take(chosen) if isinstance(values, Column) else tuple(values[i] for i in chosen.tolist())
