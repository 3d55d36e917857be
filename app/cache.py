"""A cache bounded by weight: the least recently used entries are removed first."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """Values by key, each with a weight; safe for several threads.

    Args:
        capacity: Largest sum of weights. The newest value stays even if it alone is heavier.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._weight = 0
        self._lock = Lock()

    def get(self, key: Key) -> Value | None:
        """Return the value of a key and mark it as used; None if the cache does not have it."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: Key, value: Value, weight: int = 1) -> list[Value]:
        """Add or replace a value; return the values that were removed to make room."""
        forgotten = []
        with self._lock:
            self._weight += weight - self._entries.pop(key, (None, 0))[1]
            self._entries[key] = (value, weight)
            while self._weight > self.capacity and len(self._entries) > 1:
                _, (other, lighter) = self._entries.popitem(last=False)
                self._weight -= lighter
                forgotten.append(other)
        return forgotten

    def pop(self, key: Key) -> None:
        """Remove the value of a key, if there is one."""
        with self._lock:
            self._weight -= self._entries.pop(key, (None, 0))[1]

    def drop(self, which: Callable[[Value], bool]) -> None:
        """Remove every value for which `which` returns True."""
        with self._lock:
            for key in [key for key, (value, _) in self._entries.items() if which(value)]:
                self._weight -= self._entries.pop(key)[1]
