"""`python -m notebooks.grade FOLDER`: run the checks over submitted notebooks and write a CSV.

An answer is executed with the statements that it depends on, without the rest of its notebook, so no training
runs. Each submission has a process of its own. The process is no protection against malicious code.
"""

import ast
import contextlib
import csv
import faulthandler
import functools
import io
import json
import os
import signal
import subprocess
import symtable
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from dino_model.runtime.errors import sentence
from dino_model.runtime.files import printable, write_text
from dino_model.runtime.outputs import run_command
from notebooks.execute import LessonError, environment

SUFFIXES = {".ipynb", ".py"}
IMPORT_S = 120
"""Time for imports in a process, in addition to the time of its exercises."""
MEMORY_BYTES = 4 * 2**30
"""Memory that a process may use for its data on Linux. The imports use less than 1 GB."""
NOT_CHECKED = ("missing", "The notebook does not check it.")
CHECKS = "from notebooks.grade import run_checks; run_checks()"
WITHOUT_NETWORK = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--map-root-user")
"""Start a process without a network. Processes that it starts end with it."""


@dataclass(frozen=True)
class Grade:
    """Run the checks over all notebooks of a folder."""

    folder: Annotated[Path, tyro.conf.Positional]
    """Folder of the submissions: .ipynb or .py files, in subfolders, too."""
    output: Path = Path("grades.csv")
    """CSV file with a line for each exercise of each submission."""
    timeout: float = 60
    """Time limit of an exercise in seconds."""

    def run(self) -> None:
        """Grade the submissions, print a line for each, and write the file.

        Raises:
            LessonError: The folder has no notebooks.
        """
        files = sorted(
            file
            for file in self.folder.rglob("*")
            if file.suffix in SUFFIXES and ".ipynb_checkpoints" not in file.parts
        )
        if not files:
            raise LessonError(f"Found no .ipynb or .py file in {self.folder}.")
        print(network_of_submissions())
        text = io.StringIO()
        table = csv.writer(text)
        table.writerow(["submission", "exercise", "result", "message"])
        for file in files:
            name = printable(str(file.relative_to(self.folder)))
            results = grade_submission(file, self.timeout)
            table.writerows([name, number, *result] for number, result in results.items())
            correct = sum(result == "correct" for result, _ in results.values())
            others = [
                f"{number} {result}".strip() for number, (result, _) in results.items() if result != "correct"
            ]
            print(f"{name}: {correct} of {len(results)} correct", *others, sep=", ", flush=True)
            write_text(self.output, text.getvalue())
        print(f"{len(files)} submissions: {self.output}")


def grade_submission(file: Path, timeout: float) -> dict[str, tuple[str, str]]:
    """Return result and message for each exercise of the lesson of a notebook.

    Results are `correct`, `wrong`, `error`, `stopped` and `missing`.
    """
    from notebooks.checks import EXERCISES

    try:
        codes = answers_of(file)
    except (LessonError, SyntaxError) as error:
        return {"": ("error", sentence(error))}
    results: dict[str, tuple[str, str]] = {}
    while remaining := {number: code for number, code in codes.items() if number not in results}:
        found = run_process(remaining, timeout)
        first = next((number for number in remaining if number not in found), "")
        if first:
            found[first] = ("stopped", f"No result within {timeout:g} s, or the code ended its process.")
        results |= found
    lessons = {number.split(".")[0] for number in codes}
    expected = [number for number in EXERCISES if number.split(".")[0] in lessons]
    return {number: results.get(number, NOT_CHECKED) for number in expected}


# --- from a notebook to the code of its answers


def answers_of(file: Path) -> dict[str, str]:
    """Return exercise -> code of its answer and check.

    Raises:
        LessonError: The file is no notebook, or it checks no exercise.
        SyntaxError: A cell is not Python.
    """
    import jupytext
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        cells = jupytext.read(file).cells
    except Exception as error:  # of several parsers
        raise LessonError(f"Cannot read the notebook: {type(error).__name__}: {sentence(error)}") from None
    statements: list[ast.stmt] = []
    for number, cell in enumerate(cells):
        if cell.cell_type == "code":
            try:
                statements += ast.parse(TransformerManager().transform_cell(cell.source)).body
            except SyntaxError as error:
                reason = f"{error.msg} in line {error.lineno}"
                raise LessonError(f"Cell {number + 1} is not Python: {reason}.") from None
    places = {number: place for place, node in enumerate(statements) for number in checked_exercises(node)}
    if not places:
        raise LessonError("The notebook checks no exercise.")
    return {number: code_up_to(statements, place) for number, place in places.items()}


def checked_exercises(statement: ast.stmt) -> Iterator[str]:
    """List the exercises that a statement checks."""
    from notebooks.checks import EXERCISES

    for node in ast.walk(statement):
        match node:
            case ast.Call(
                func=ast.Name(id="check") | ast.Attribute(attr="check"),
                args=[ast.Constant(value=str(number)), *_],
            ) if number in EXERCISES:
                yield number


def code_up_to(statements: list[ast.stmt], last: int) -> str:
    """Return a statement and the earlier statements that it depends on."""
    needed = {"*"} | names_of(statements[last])[1]
    kept = [statements[last]]
    for statement in reversed(statements[:last]):
        bound, used = names_of(statement)
        if bound & needed:
            kept.append(statement)
            needed |= used
    return "\n".join(ast.unparse(statement) for statement in reversed(kept))


@functools.cache
def names_of(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """Return the global names that a statement binds or changes, and those that it uses."""
    module = symtable.symtable(ast.unparse(statement), "cell", "exec")
    bound = {name.get_name() for name in module.get_symbols() if name.is_assigned() or name.is_imported()}
    used = {name.get_name() for name in module.get_symbols() if name.is_referenced()}
    tables = module.get_children()
    while tables:
        table = tables.pop()
        used |= {name.get_name() for name in table.get_symbols() if name.is_global()}
        tables += table.get_children()
    for node in executed_nodes(statement):
        match node:
            case ast.ImportFrom(names=[ast.alias(name="*")]):  # may bind any name
                bound.add("*")
            case ast.AugAssign(target=ast.Name(id=name)):
                used.add(name)
            case ast.Subscript(ctx=ast.Store()) | ast.Attribute(ctx=ast.Store()):
                bound |= owner_of(node)
            case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):  # such as answers.append(3)
                bound |= owner_of(method)
    return bound, used


def executed_nodes(statement: ast.AST) -> Iterator[ast.AST]:
    """List the nodes of a statement outside of functions."""
    yield statement
    if not isinstance(statement, ast.FunctionDef | ast.Lambda):
        for node in ast.iter_child_nodes(statement):
            yield from executed_nodes(node)


def owner_of(node: ast.expr) -> set[str]:
    """Return the name of the object that `name.part[0]` belongs to."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


# --- processes


@functools.cache
def prefix_without_network() -> tuple[str, ...]:
    """Return the words that start a process without a network, () if the system has none."""
    try:
        subprocess.run([*WITHOUT_NETWORK, "true"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ()
    return WITHOUT_NETWORK


def network_of_submissions() -> str:
    """Describe whether submissions can use the network."""
    if prefix_without_network():
        return "Submissions run without a network."
    return f"Submissions can use the network: `{' '.join(WITHOUT_NETWORK)}` does not work on this system."


def run_process(codes: dict[str, str], timeout: float) -> dict[str, tuple[str, str]]:
    """Execute answers in a process of their own, in an empty folder.

    The results are in a file, because processes that an answer starts would keep a pipe open.

    Returns:
        Exercise -> result and message, up to the first exercise that ends the process.
    """
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*prefix_without_network(), sys.executable, "-c", CHECKS],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=os.environ | environment(),
            start_new_session=True,
        )
        task = json.dumps({"codes": codes, "timeout": timeout}).encode()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(task, IMPORT_S + timeout * len(codes))
        stop(process)
        output.seek(0)
        return {number: (result, message) for number, result, message in map(json.loads, output)}


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and the processes of its group."""
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError):  # all have ended
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def run_checks() -> None:
    """Execute the answers in standard input, and write a line of JSON for each to standard output."""
    with contextlib.suppress(ImportError):  # Windows
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    task = json.load(sys.stdin)
    results = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    from notebooks import checks

    for number, code in task["codes"].items():
        faulthandler.dump_traceback_later(task["timeout"], exit=True, file=sys.stderr)
        results.write(json.dumps([number, *run_check(checks, number, code)]) + "\n")
        results.flush()
    faulthandler.cancel_dump_traceback_later()


def run_check(checks: Any, number: str, code: str) -> tuple[str, str]:
    """Execute the code of an answer and return its result and message."""
    complaints: list[str | None] = []

    def check(exercise: str, answer: Any) -> Any:
        if exercise != number:
            return checks.EXERCISES[exercise].solution
        complaints.append(checks.complaint(exercise, answer))
        return answer

    checks.check = check
    try:
        exec(code, {"__name__": "submission"})
    except BaseException as error:  # SystemExit, too
        return "error", f"{type(error).__name__}: {error}"
    if not complaints:
        return NOT_CHECKED
    if complaints[-1] is None:
        return "correct", ""
    return "missing" if complaints[-1] == checks.NO_ANSWER else "wrong", complaints[-1]


if __name__ == "__main__":
    sys.exit(run_command(tyro.cli(Grade, prog="python -m notebooks.grade").run))
