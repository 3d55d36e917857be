"""Checks of settings, without importing torch. Errors name the command-line option."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass, replace
from math import inf
from typing import Any, Literal, TypeVar

from dino_model.runtime.errors import SettingError

Settings = TypeVar("Settings")
OptimizerName = Literal["adamw", "muon", "sgd", "lars"]


def flag(name: str) -> str:
    """Command-line option of a setting: teacher_momentum -> --teacher-momentum."""
    return "--" + name.replace("_", "-")


def at_least(settings: object, **smallest: float) -> None:
    """Raise SettingError if a setting is below its minimum, infinite or NaN."""
    for name, minimum in smallest.items():
        value = getattr(settings, name)
        if not minimum <= value < inf:
            kind = "a number of at least" if isinstance(value, float) else "at least"
            raise SettingError(f"{flag(name)} is {value}, expected {kind} {minimum}")


def positive(settings: object, *names: str) -> None:
    """Raise SettingError if a setting is not above 0, infinite or NaN."""
    _check(settings, names, lambda value: 0 < value < inf, "a number above 0")


def shares(settings: object, *names: str) -> None:
    """Raise SettingError if a setting is outside [0, 1] or NaN."""
    _check(settings, names, lambda value: 0 <= value <= 1, "0 to 1")


def no_longer_than(epochs: int, settings: object, *names: str) -> None:
    """Raise SettingError if a phase in epochs is negative or longer than training."""
    _check(settings, names, lambda value: 0 <= value <= epochs, f"0 to the {epochs} epochs of training")


def _check(settings: object, names: Iterable[str], accept: Callable[[float], bool], expected: str) -> None:
    for name in names:
        if not accept(value := getattr(settings, name)):
            raise SettingError(f"{flag(name)} is {value}, expected {expected}")


def multiple_of(name: str, value: int, unit: int, of: str) -> None:
    """Raise SettingError if a value is no multiple of a unit, which `of` names."""
    if value % unit:
        below = value // unit * unit
        choices = f"{below} or {below + unit}" if below else str(unit)
        raise SettingError(f"{flag(name)} is {value}, no multiple of {of} of {unit}: choose {choices}")


def restore_settings(default: Settings, stored: Mapping[str, Any]) -> Settings:
    """Restore settings from `dataclasses.asdict` and JSON; missing values are those of `default`.

    Raises SettingError for a name that is no setting.
    """
    values = {}
    for name, value in stored.items():
        if not hasattr(default, name):
            raise SettingError(f"unknown setting {name!r} of {type(default).__name__}: of another version?")
        before = getattr(default, name)
        if is_dataclass(before) and isinstance(value, Mapping):
            value = restore_settings(before, value)
        values[name] = tuple(value) if isinstance(value, list) else value
    return replace(default, **values)  # type: ignore[type-var]
