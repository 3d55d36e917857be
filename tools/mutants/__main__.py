"""Run the tests on mutants: one-line faults that the tests must notice.

`tools/mutants/PACKAGE.toml` lists the faults of one package. `python -m tools.mutants [PACKAGE ...]` applies
each to a copy of the committed tree, runs its tests and reports which mutants survive. A mutant is

    [[mutant]]
    name = "teacher momentum falls instead of rising"
    file = "training/schedules.py"
    old = "text that occurs once"
    new = "text that replaces it"
    tests = ["tests/training/test_schedules.py"]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

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


def main() -> int:
    """Run the mutants of the named packages; exit with 1 if one survives."""
    packages = sorted(path.stem for path in TABLES.glob("*.toml"))
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=main.__doc__)
    parser.add_argument(
        "packages", nargs="*", choices=[*packages, []], help="packages to change (default: all)"
    )
    parser.add_argument("--timeout", type=int, default=300, help="seconds for the tests of one mutant")
    parser.add_argument("--json", type=Path, help="file for the outcome of every mutant")
    options = parser.parse_args()
    outcome: dict[str, dict[str, bool]] = {}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(tree)], check=True)
        os.environ.setdefault("DINO_DATA", str(ROOT.parent / "shared" / "data"))
        for package in options.packages or packages:
            outcome[package] = {}
            for mutant in read_mutants(package):
                killed = is_killed(mutant, tree, options.timeout)
                outcome[package][mutant.name] = killed
                print(f"{'killed  ' if killed else 'SURVIVED'}  {package}: {mutant.name}", flush=True)
    alive = sum(not killed for rows in outcome.values() for killed in rows.values())
    total = sum(map(len, outcome.values()))
    print(f"{total - alive} of {total} mutants killed")
    if options.json:
        options.json.write_text(json.dumps(outcome, indent=1) + "\n")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
