"""Complete a lesson: solutions in place of the three dots, and answers to its open exercises."""

import ast
import itertools
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from notebooks.execute import LESSONS, lessons, read

if TYPE_CHECKING:
    from nbformat import NotebookNode

ANSWERS = LESSONS / "answers"
"""A file for each lesson, in jupytext's percent format: cells that run after those of the lesson."""
SOLUTIONS = (LESSONS / "solutions.py").read_text(encoding="utf-8")


def solve(lesson: Path, notebook: "NotebookNode") -> None:
    """Complete the exercises in the cells of a lesson and append its answers.

    Raises:
        KeyError: An exercise has no solution.
    """
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source = solve_cell(cell.source)
    notebook.cells += read(ANSWERS / lesson.name).cells


def solve_cell(source: str) -> str:
    """Replace the three dots of a cell with solutions."""
    bodies, values = solutions_by_name(), solutions_by_number()

    def body(match: re.Match[str]) -> str:
        return match[1] + bodies[match[2]]

    def value(match: re.Match[str]) -> str:
        expression, reason = values[match[2]]
        return f"# {reason[0].upper()}{reason[1:]}\n{match[1]}{expression})"

    source = re.sub(r"(def (\w+)\((?:.(?!\ndef ))*?)    return \.\.\.\n", body, source, flags=re.DOTALL)
    return re.sub(r'(.*check\("([^"]+)", )\.\.\.\)', value, source)


def solution_of(number: str) -> str:
    """Return the solution of an exercise as code: a function's body, or an expression with its reason."""
    values = solutions_by_number()
    if number in values:
        expression, reason = values[number]
        return f"{expression}  # {reason}"
    for lesson in lessons((number[0].lower(),)):
        if match := re.search(rf'check\("{re.escape(number)}", (\w+)\)', lesson.read_text(encoding="utf-8")):
            return textwrap.dedent(solutions_by_name()[match[1]])
    raise KeyError(number)


def add_hints(text: str) -> str:
    """Add a folded hint and a folded solution to every checked exercise of a lesson in percent format."""
    from notebooks.checks import HINTS

    def folded(match: re.Match[str]) -> str:
        parts = {"Hint": HINTS[match[2]], "Solution": f"\n```python\n{solution_of(match[2])}\n```\n"}
        lines = [
            line
            for title, content in parts.items()
            for line in (
                "",
                f"<details><summary>{title}</summary>",
                "",
                *content.splitlines(),
                "",
                "</details>",
            )
        ]
        return match[1] + "".join(f"# {line}".rstrip() + "\n" for line in lines)

    return re.sub(r"(^# \*\*Exercise (\w\.\d) \(.*\n(?:#.*\n)*)", folded, text, flags=re.MULTILINE)


def solutions_by_name() -> dict[str, str]:
    """Return the body of each function, without its docstring."""
    lines = SOLUTIONS.splitlines(keepends=True)
    functions = [node for node in ast.parse(SOLUTIONS).body if isinstance(node, ast.FunctionDef)]
    return {node.name: "".join(lines[node.body[1].lineno - 1 : node.end_lineno]) for node in functions}


def solutions_by_number() -> dict[str, tuple[str, str]]:
    """Return exercise -> expression of a number, and the reason in the text below it."""
    nodes = ast.parse(SOLUTIONS).body
    found = {}
    for node, text in itertools.pairwise(nodes):
        match node, text:
            case ast.Assign(value=expression), ast.Expr(value=ast.Constant(value=str(reason))):
                number, _, reason = reason.partition(": ")
                found[number] = (ast.unparse(expression), " ".join(reason.split()))
    return found
