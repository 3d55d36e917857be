"""Words of messages: errors in one sentence, numbers with their noun."""

from collections.abc import Iterable, Sequence
from itertools import islice

from dino_model.runtime.files import printable


class SettingError(Exception):
    """An invalid setting. The message names it.

    Not a ValueError: tyro prints those of nested settings in boxes.
    """


class LostRank(RuntimeError):
    """Another process ended, or cannot be reached any more."""


EXPECTED = (SettingError, ValueError, RuntimeError, OSError)
"""Errors of inputs, settings, files and hardware; any other is a fault of the program."""


def sentence(error: BaseException) -> str:
    """Return an error as one sentence; an error of the system without its number."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"cannot use '{printable(str(error.filename))}': {error.strerror.lower()}"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot continue: {error.strerror.lower()}"
    return str(error)


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 image` or `1,200 images`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def list_names(names: Iterable[object], most: int = 3) -> str:
    """Join the first names: `a, b, c, …`."""
    first = [printable(str(name)) for name in islice(names, most + 1)]
    return ", ".join(first[:most]) + (", …" if len(first) > most else "")


def count_names(noun: str, fate: str, names: Sequence[str]) -> tuple[str, ...]:
    """Count and name what is left out: `3 folders left out: @eaDir, a/.cache, …`; nothing without names."""
    return (f"{pluralize(len(names), noun)} {fate}: {list_names(names)}",) if names else ()
