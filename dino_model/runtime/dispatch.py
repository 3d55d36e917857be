"""The command line of a package: `python -m PACKAGE COMMAND`."""

import pkgutil
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import tyro

from dino_model.runtime.outputs import run_command

Commands = Mapping[str, str]
"""Name of each command, of one or more words, and where it is: "module:Class" or "module:function"."""


def main(package: str, commands: Commands, words: Sequence[str]) -> int:
    """Run the command that words name; return the exit code, see `run_command`."""
    return run_command(lambda: dispatch(package, commands, words))


def dispatch(package: str, commands: Commands, words: Sequence[str]) -> int:
    """Parse the options of a command and run it; return its exit code, 2 for an unknown command.

    A command is a dataclass with a method `run`, or a function of the words after its name. It is imported
    when it is called, so that no other command waits for what it imports.
    """
    names = (" ".join(words[:count]) for count in range(len(words), 0, -1))
    name = next((name for name in names if name in commands), None)
    if name is not None:
        command, rest = pkgutil.resolve_name(commands[name]), words[len(name.split()) :]
        if not isinstance(command, type):
            return command(rest) or 0
        parsed: Any = tyro.cli(command, prog=f"python -m {package} {name}", args=rest)
        return parsed.run() or 0
    given = [*takewhile(lambda word: not word.startswith("-"), words)]
    group = {name: place for name, place in commands.items() if name.split()[0] in given[:1]}
    is_known = len(given) == bool(group)
    is_help = is_known and words[len(given) : len(given) + 1] in (["-h"], ["--help"])
    if not is_known:
        print(f"unknown command {' '.join(given)!r}\n", file=sys.stderr)
    print(usage(package, group or commands), file=sys.stdout if is_help else sys.stderr)
    return 0 if is_help else 2


def usage(package: str, commands: Commands) -> str:
    """List commands, each with the first line of its description."""
    width = max(map(len, commands))
    described = {name: pkgutil.resolve_name(place).__doc__ or "" for name, place in commands.items()}
    lines = (f"  {name:<{width}}  {text.splitlines()[0]}" for name, text in described.items())
    head = f"usage: python -m {package} COMMAND [options]\n"
    tail = f"\nUse `python -m {package} COMMAND --help` to list the options of a command."
    return "\n".join([head, *lines, tail])
