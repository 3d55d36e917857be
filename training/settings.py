"""Checks of settings; their errors name the option of the command line."""

from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from math import inf
from typing import Any, Literal, TypeVar

from dino_model.errors import SettingError

Settings = TypeVar("Settings")
OptimizerName = Literal["adamw", "muon", "sgd", "lars"]


def flag(name: str) -> str:
    """Command-line option of a setting: teacher_momentum -> --teacher-momentum."""
    return "--" + name.replace("_", "-")


def at_least(settings: object, **smallest: float) -> None:
    """Raise SettingError if a setting is below its minimum, infinite or NaN."""
    for name, least in smallest.items():
        value = getattr(settings, name)
        if not least <= value < inf:
            kind = "a number of at least" if isinstance(value, float) else "at least"
            raise SettingError(f"{flag(name)} is {value}, expected {kind} {least}")


def above(settings: object, low: float, *names: str) -> None:
    """Raise SettingError if a setting is not above `low`, infinite or NaN."""
    for name in names:
        value = getattr(settings, name)
        if not low < value < inf:
            raise SettingError(f"{flag(name)} is {value}, expected a number above {low:g}")


def between(settings: object, low: float, high: float, *names: str) -> None:
    """Raise SettingError if a setting is outside [low, high] or NaN."""
    for name in names:
        value = getattr(settings, name)
        if not low <= value <= high:
            raise SettingError(f"{flag(name)} is {value}, expected {low:g} to {high:g}")


def two_views(method: str, views: int) -> None:
    """Raise SettingError if the number of views is not two."""
    if views != 2:
        raise SettingError(f"--global-crops is {views}: {method} compares two views of a picture, pass 2")


def restored(default: Settings, found: Mapping[str, Any]) -> Settings:
    """Restore settings from `dataclasses.asdict` and JSON; missing values are those of `default`.

    Raises:
        SettingError: a name that is no setting.
    """
    values = {}
    for name, value in found.items():
        if not hasattr(default, name):
            raise SettingError(f"unknown setting {name!r} of {type(default).__name__}: of a newer version?")
        before = getattr(default, name)
        if is_dataclass(before) and isinstance(value, Mapping):
            value = restored(before, value)
        values[name] = tuple(value) if isinstance(value, list) else value
    return replace(default, **values)  # type: ignore[type-var]


def no_longer_than(epochs: int, settings: object, *names: str) -> None:
    """Raise SettingError if a phase in epochs is longer than training."""
    for name in names:
        value = getattr(settings, name)
        if value > epochs:
            raise SettingError(f"{flag(name)} {value} is longer than training of {epochs} epochs: shorten it")


def whole_batches(length: int, batch_size: int) -> None:
    """Raise SettingError if the length of a queue is no multiple of the batch size."""
    if length % batch_size:
        below = length // batch_size * batch_size
        choices = f"{below} or {below + batch_size}" if below else str(batch_size)
        raise SettingError(f"--queue is {length}, no multiple of the batch of {batch_size}: choose {choices}")
