"""List every command of the packages with its argument parser, for the command reference."""

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import tyro

from segmentation.__main__ import COMMANDS
from training.commands.evaluate import PROTOCOLS

CLASSES = {
    "app": "app.__main__.Serve",
    "dino_model class-map": "dino_model.class_map.command.DrawClassMap",
    "dino_model embed": "dino_model.commands.Embed",
    "dino_model export": "dino_model.commands.Export",
    "dino_model index": "dino_model.commands.Index",
    "dino_model list": "dino_model.commands.List",
    "dino_model search": "dino_model.commands.Search",
    "dino_model show": "dino_model.commands.Show",
    **{
        f"segmentation {name}": f"segmentation.commands.{name}.{name.capitalize()}"
        for name in COMMANDS
        if name != "head"
    },
    **{
        f"segmentation head {name}": f"segmentation.commands.head.{name.capitalize()}"
        for name in ("fit", "apply", "score", "curve")
    },
    "training pretrain": "training.commands.arguments.Pretrain",
    "training doctor": "training.commands.doctor.Doctor",
    "training study": "training.commands.study.StudyCommand",
    **{
        f"training evaluate {name}": f"{options.__module__}.{options.__name__}"
        for name, (_, options) in PROTOCOLS.items()
    },
}
"""Command as typed after `python -m`, and the dataclass of its options."""


def dataclass_of(command: str) -> type[Any]:
    """Return the dataclass from which a command line is generated.

    Raises:
        KeyError: If there is no such command.
    """
    module, _, name = CLASSES[command].rpartition(".")
    found: type[Any] = getattr(import_module(module), name)
    return found


def parser(command: str) -> Any:
    """Return the argument parser of a command.

    Raises:
        KeyError: If there is no such command.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return tyro.extras.get_parser(dataclass_of(command), prog=f"python -m {command}")


def __getattr__(name: str) -> object:
    """Provide `parser_<command>` functions, which sphinx_argparse_cli looks up by name."""
    commands = {f"parser_{command.replace(' ', '_').replace('-', '_')}": command for command in CLASSES}
    if name not in commands:
        raise AttributeError(name)
    return lambda: parser(commands[name])


def write_page(path: Path) -> None:
    """Write the Markdown page that lists every command, if it has changed."""
    parts = ["# Commands", "", "For users of the command line: every command with all of its options.", ""]
    for command in CLASSES:
        function = f"parser_{command.replace(' ', '_').replace('-', '_')}"
        parts += [
            "```{sphinx_argparse_cli}",
            ":module: commands",
            f":func: {function}",
            f":title: python -m {command}",
            ":group_title_prefix:",
            "```",
            "",
        ]
    text = "\n".join(parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
