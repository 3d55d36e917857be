"""Run the tests on mutants: one-line faults that the tests must notice.

`tools/mutants/PACKAGE.toml` lists the faults of one package. `python -m tools.mutants [PACKAGE ...]` applies
each to a copy of the committed tree, runs its tests and reports which mutants survive. Example of a mutant:

    [[mutant]]
    name = "teacher momentum falls instead of rising"
    file = "training/recipes/schedules.py"
    old = "text that occurs once"
    new = "text that replaces it"
    tests = ["tests/training/recipes/test_schedules.py"]
"""

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

import tyro
from tyro.conf import Positional

ROOT = Path(__file__).parents[2]
TABLES = Path(__file__).parent


class Mutant(NamedTuple):
    """A one-line fault and the tests that should notice it."""

    name: str
    file: str
    old: str
    new: str
    tests: list[str]


def read_mutants(package: str) -> list[Mutant]:
    """Read the mutants of one package."""
    table = tomllib.loads((TABLES / f"{package}.toml").read_text())
    return [Mutant(**row) for row in table["mutant"]]


def is_killed(mutant: Mutant, tree: Path, seconds: int) -> bool:
    """Apply a mutant to a tree, run its tests, restore the file.

    Args:
        mutant: The fault and its tests.
        tree: A checkout that may be changed.
        seconds: Time after which tests that still run count as having noticed the fault.

    Raises:
        ValueError: If the old text does not occur exactly once, or the tests cannot be collected.
    """
    path = tree / mutant.file
    original = path.read_text()
    if (count := original.count(mutant.old)) != 1:
        raise ValueError(f"{mutant.name}: {mutant.file} holds the old text {count} times, expected once.")
    path.write_text(original.replace(mutant.old, mutant.new))
    try:
        return any(_fails(command, tree, seconds) for command in _commands(mutant.tests))
    finally:
        path.write_text(original)


def _commands(tests: list[str]) -> list[list[str]]:
    node = [name for name in tests if name.endswith((".js", ".mjs"))]
    python = [name for name in tests if name not in node]
    commands = []
    if node:
        commands.append(["node", "--test", *node])
    if python:
        commands.append([sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *python])
    return commands


def _fails(command: list[str], tree: Path, seconds: int) -> bool:
    try:
        ended = subprocess.run(
            command, cwd=tree, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    if "pytest" in command and ended.returncode not in (0, 1, 2):  # 2: the mutant breaks an import
        raise ValueError(f"{' '.join(command[3:])} exited with {ended.returncode}:\n{ended.stdout[-2000:]}")
    return ended.returncode != 0


def main(packages: Positional[tuple[str, ...]] = (), timeout: int = 300) -> None:
    """Run the mutants of some packages; exit with 1 if one survives.

    Args:
        packages: Packages to change. Default: all.
        timeout: Seconds for the tests of one mutant.
    """
    alive = total = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(tree)], check=True)
        os.environ.setdefault("DINO_DATA", str(ROOT.parent / "shared" / "data"))
        for package in packages or sorted(path.stem for path in TABLES.glob("*.toml")):
            for mutant in read_mutants(package):
                killed = is_killed(mutant, tree, timeout)
                print(f"{'killed  ' if killed else 'SURVIVED'}  {package}: {mutant.name}", flush=True)
                alive, total = alive + (not killed), total + 1
    print(f"{total - alive} of {total} mutants killed")
    sys.exit(alive > 0)


if __name__ == "__main__":
    tyro.cli(main, prog="python -m tools.mutants")
