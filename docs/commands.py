"""List every command of the packages with its argument parser, for the command reference."""

import pkgutil
import warnings
from pathlib import Path
from typing import Any

import tyro

import dino_model.commands
import segmentation.commands
import training.commands
from app.__main__ import Serve
from training.commands.arguments import create_parser

PACKAGES = {
    "dino_model": dino_model.commands.COMMANDS,
    "segmentation": segmentation.commands.COMMANDS,
    "training": training.commands.COMMANDS,
}
CLASSES: dict[str, Any] = {"app": Serve} | {
    f"{package} {name}": pkgutil.resolve_name(place)
    for package, commands in PACKAGES.items()
    for name, place in commands.items()
}
"""Command as typed after `python -m`, and the dataclass of its options."""


def parser(command: str) -> Any:
    """Return the argument parser of a command.

    Raises:
        KeyError: If there is no such command.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        if command == "training pretrain":  # its options depend on method and recipe
            return create_parser()
        return tyro.extras.get_parser(CLASSES[command], prog=f"python -m {command}")


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
