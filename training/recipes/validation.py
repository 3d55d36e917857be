"""Checks of settings, without importing torch. Errors name the command-line option."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from math import inf
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

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
    expected = f"0 to the {epochs} epochs of training: lower it, or raise --epochs"
    _check(settings, names, lambda value: 0 <= value <= epochs, expected)


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

    Raises SettingError for a name that is no setting, and for a value of another type or no choice.
    """
    kind, values = type(default), {}
    hints = get_type_hints(kind)
    known = {field.name for field in fields(default)}  # type: ignore[arg-type]
    for name, value in stored.items():
        if name not in known:
            raise SettingError(
                f"unknown setting {name!r} of {kind.__name__}: choose {', '.join(sorted(known))}"
            )
        before = getattr(default, name)
        if is_dataclass(before) and isinstance(value, Mapping):
            value = restore_settings(before, value)
        else:
            value = tuple(value) if isinstance(value, list) else value
            _check_type(kind, name, value, hints[name])
        values[name] = value
    return replace(default, **values)  # type: ignore[type-var]


def check_choices(settings: object) -> None:
    """Raise SettingError for a setting, or one of the settings within, that is none of its choices."""
    kind = type(settings)
    hints = get_type_hints(kind)
    for field in fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, field.name)
        if is_dataclass(value):
            check_choices(value)
        elif get_origin(hints[field.name]) is Literal:
            _check_type(kind, field.name, value, hints[field.name])


def _check_type(kind: type, name: str, value: object, hint: Any) -> None:
    if not _fits(value, hint):
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        expected = " or ".join(map(str, choices)) or (hint.__name__ if type(hint) is type else hint)
        raise SettingError(f"setting {name} of {kind.__name__} is {value!r}, expected {expected}")


def _fits(value: object, hint: Any) -> bool:
    """Test if a value has the annotated type of a setting; an integer is a float, too."""
    args = get_args(hint)
    match get_origin(hint):
        case None:
            return type(value) is hint or (hint is float and type(value) is int)
        case kind if kind is Literal:
            return any(value == choice and type(value) is type(choice) for choice in args)
        case kind if kind in (Union, UnionType):
            return any(_fits(value, arg) for arg in args)
        case kind if kind is tuple and isinstance(value, tuple):
            items = args[:1] * len(value) if args[-1] is ... else args
            return len(items) == len(value) and all(map(_fits, value, items))
        case _:
            return False
