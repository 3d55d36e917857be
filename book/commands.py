"""Every command of the project: how it is typed, the dataclass behind it, and what its options say."""

import ast
import dataclasses
import inspect
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

from dino_model.errors import EXPECTED

OTHERS = {
    "app": "app.__main__.Serve",
    "dino_model class-map": "dino_model.class_map.command.DrawClassMap",
    "dino_model export": "dino_model.commands.Export",
    "dino_model list": "dino_model.commands.List",
    "dino_model show": "dino_model.commands.Show",
    "training doctor": "training.commands.doctor.Doctor",
    "training keep": "training.commands.keep.Keep",
    "training pretrain": "training.commands.arguments.Pretrain",
    "training study": "training.commands.study.StudyCommand",
    "training thin-log": "training.commands.thin_log.ThinLog",
}
"""What is typed after `python -m`, and the class that reads the rest; two packages have their own tables."""
PYTHON = ("python", "-m")


class CommandError(ValueError):
    """A line that is no command of this project."""


@dataclass(frozen=True)
class Option:
    """One option as `--help` has it."""

    flag: str
    """`--mass`, or the name of what stands without one."""
    kind: str
    """Type, or the choices."""
    default: str | None
    """As it is typed; None where it has to be given."""
    told: str
    """What the field's docstring says."""


@cache
def table() -> dict[str, str]:
    """Every command, as typed after `python -m`, with the place of its dataclass: `segmentation voc`, …"""
    from segmentation.__main__ import COMMANDS
    from training.commands.evaluate import PROTOCOLS

    found = dict(OTHERS)
    for name in COMMANDS:
        found[f"segmentation {name}"] = f"segmentation.commands.{name}.{name.capitalize()}"
    for name, (_, options, _) in PROTOCOLS.items():
        found[f"training evaluate {name}"] = f"{options.__module__}.{options.__name__}"
    return dict(sorted(found.items()))


def class_of(name: str) -> type[Any]:
    """The dataclass of a command in `table`."""
    module, _, chosen = table()[name].rpartition(".")
    found: type[Any] = getattr(import_module(module), chosen)
    return found


def parse(line: str) -> Any:
    """What a command line asks for, by the command's own parser; nothing runs.

    Raises:
        CommandError: no command of this project, or one that does not take these options.
    """
    words = shlex.split(line)
    if tuple(words[:2]) != PYTHON:
        raise CommandError(f"{line!r} does not begin with `python -m`")
    words = words[2:]
    for length in (4, 3, 2, 1):
        name = " ".join(words[:length])
        if name in table() and len(words) >= length:
            return _parsed(line, name, words[length:])
    if words[0].startswith("benchmarks."):
        return _parsed_by(line, _dataclass_run_by(import_module(words[0])), words[1:])
    raise CommandError(f"{line!r}: no such command; there are {', '.join(table())} and the benchmarks")


def _parsed(line: str, name: str, arguments: list[str]) -> Any:
    if name == "training pretrain":  # its defaults are a recipe's
        from training.commands import arguments as of_pretrain

        return _caught(line, lambda: of_pretrain.parse(arguments))
    return _parsed_by(line, class_of(name), arguments)


def _parsed_by(line: str, chosen: type[Any], arguments: list[str]) -> Any:
    return _caught(line, lambda: tyro.cli(chosen, args=arguments))


def _caught(line: str, reader: Any) -> Any:
    try:
        return reader()
    except (SystemExit, *EXPECTED) as error:
        raise CommandError(f"{line!r} is refused by its own parser: {error}") from None


def _dataclass_run_by(module: Any) -> type[Any]:
    """The dataclass of a benchmark: the one with `run` that its module defines."""
    own = [value for value in vars(module).values() if inspect.isclass(value) and hasattr(value, "run")]
    found: type[Any] = next(one for one in own if one.__module__ == module.__name__)
    return found


# --- what the options are


def options(chosen: type[Any], instance: Any = None) -> Iterator[Option]:
    """The options of a command, those of nested settings among them, in the order of its fields.

    Args:
        chosen: a dataclass; the meaning of a field is the docstring below it.
        instance: one of it, whose values are the defaults, where the class has none of its own.
    """
    hints = get_type_hints(chosen, include_extras=True)
    told = docstrings(chosen)
    for field in dataclasses.fields(chosen):
        default = _default(field, instance)
        if dataclasses.is_dataclass(default) and not isinstance(default, type):
            yield from options(type(default), default)
        else:
            flag = _flag(field.name, hints[field.name], default)
            shown = None if default is MISSING else _typed(default)
            yield Option(flag, _kind(hints[field.name]), shown, told.get(field.name, ""))


def docstrings(chosen: type[Any]) -> dict[str, str]:
    """The strings below the fields of a class and of those it inherits from, each in one line."""
    found: dict[str, str] = {}
    for one in reversed(chosen.__mro__):
        if not dataclasses.is_dataclass(one):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split())
    return found


def _default(field: dataclasses.Field[Any], instance: Any) -> Any:
    if instance is not None:
        return getattr(instance, field.name)
    return field.default if field.default_factory is MISSING else field.default_factory()


def _flag(name: str, hint: Any, default: Any) -> str:
    words = name.replace("_", "-")
    for extra in getattr(hint, "__metadata__", ()):
        if getattr(extra, "name", None):
            words = extra.name
        if "POSITIONAL" in str(extra).upper():
            return name.upper()
    return f"--{words}, --no-{words}" if isinstance(default, bool) else f"--{words}"


def _kind(hint: Any) -> str:
    """A type as a reader types it: `number`, `file or folder`, choices with bars between them."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _kind(inner[0])
    if origin is Literal:
        return " | ".join(map(str, inner))
    if origin is tuple:
        return " ".join(dict.fromkeys(_kind(one) for one in inner if one is not Ellipsis)) + " …"
    if inner:
        return " | ".join(dict.fromkeys(_kind(one) for one in inner if one is not type(None)))
    names = {"Path": "path", "str": "text", "int": "number", "float": "number", "bool": "yes or no"}
    return names.get(getattr(hint, "__name__", ""), getattr(hint, "__name__", str(hint)))


def _typed(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "–"
    return str(value)
