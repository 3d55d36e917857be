"""A bounded memory: what was used least recently is forgotten first."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """Values by key, each with a weight; safe for several threads.

    Args:
        capacity: greatest sum of weights that is kept. The value put last is kept whatever it weighs.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._weight = 0
        self._lock = Lock()

    def get(self, key: Key) -> Value | None:
        """The value, now the one used last; None when it is not, or no longer, here."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: Key, value: Value, weight: int = 1) -> list[Value]:
        """Keep a value, replacing the key's former one, and forget others until the rest fits: these."""
        forgotten = []
        with self._lock:
            self._weight -= self._entries.pop(key, (None, 0))[1]
            self._entries[key] = (value, weight)
            self._weight += weight
            while self._weight > self.capacity and len(self._entries) > 1:
                _, (other, lighter) = self._entries.popitem(last=False)
                self._weight -= lighter
                forgotten.append(other)
        return forgotten

    def drop(self, which: Callable[[Value], bool]) -> None:
        """Forget every value of which `which` is true."""
        with self._lock:
            for key in [key for key, (value, _) in self._entries.items() if which(value)]:
                self._weight -= self._entries.pop(key)[1]
