"""Numbers that are fixed when a module is imported: defaults of options, limits, tables, published scores.

No formula computes them, so no reference can check them. `numbers.json` makes a change of one deliberate:
`python -m tests.test_numbers` writes it anew.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_name("numbers.json")
NUMBER = (int, float)
PACKAGES = ("dino_model", "segmentation", "training", "app")
JAVASCRIPT = re.compile(
    r"^(?:(?:export )?const ([A-Z][A-Z_]*)|  (\w+)) = (.*?);(?: *//[^\n]*)?$", re.MULTILINE | re.DOTALL
)
"""Constants of a module and fields of its classes."""


def _has(node: ast.AST, kinds: tuple[type, ...] = NUMBER) -> bool:
    return any(isinstance(item, ast.Constant) and type(item.value) in kinds for item in ast.walk(node))


def _python(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and expressions with numbers of assignments, defaults and other statements."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _python(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [*node.args.defaults, *(default for default in node.args.kw_defaults if default)]
            parts = [ast.unparse(part) for part in [*given, *node.decorator_list] if _has(part)]
            if parts:
                yield f"{prefix}{node.name}()", ", ".join(parts)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            is_field = isinstance(node, ast.AnnAssign) and bool(prefix)  # such as an option
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            parts = [ast.unparse(node.annotation)] if is_field and _has(node.annotation) else []
            if node.value and _has(node.value, (*NUMBER, str, bool) if is_field else NUMBER):
                parts.append(ast.unparse(node.value))
            if parts:
                yield prefix + ", ".join(map(ast.unparse, targets)), ", ".join(parts)
        elif _has(node):
            yield f"{prefix}{type(node).__name__}", ast.unparse(node)


def numbers() -> dict[str, dict[str, str]]:
    """Collect expressions with numbers by file and name."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        found[str(path.relative_to(ROOT))] = dict(_python(ast.parse(path.read_text()).body))
    for path in sorted((ROOT / "app" / "static").rglob("*.js")):
        rows = JAVASCRIPT.findall(path.read_text())
        found[str(path.relative_to(ROOT))] = {
            constant or f".{name}": value for constant, name, value in rows if re.search(r"\d", value)
        }
    del found["app/static/views/palette.js"]  # of `tools.palette`
    return {
        path: {name: " ".join(value.split()) for name, value in rows.items()}
        for path, rows in found.items()
        if rows
    }


def test_numbers_of_the_product_are_those_of_the_table():
    assert numbers() == json.loads(FILE.read_text()), "python -m tests.test_numbers writes the table anew"


if __name__ == "__main__":
    lines = (f"{json.dumps(path)}: {json.dumps(rows)}" for path, rows in numbers().items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
