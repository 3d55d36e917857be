"""Rules of the repository: layers, requirements, length of functions, licenses, targets in the README."""

import ast
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAY_IMPORT = {
    "dino_model": set(),
    "segmentation": {"dino_model"},
    "training": {"dino_model"},
    "app": {"segmentation", "training", "dino_model"},
    "benchmarks": {"app", "segmentation", "training", "dino_model"},
    "tools": {"benchmarks", "app", "segmentation", "training", "dino_model"},
    "notebooks": {"segmentation", "training", "dino_model"},
    "docs": {"notebooks", "app", "segmentation", "training", "dino_model"},
}
ROOMS = ("runtime", "data", "models", "inference")  # of dino_model, the lowest first
MAX_FUNCTION_LINES = 80
OPTIONAL = {"onnx", "pyarrow"}  # an error names it if it is missing
# Letters in brackets, so that this file does not match.
MACHINE_PATHS = re.compile(r"/w[o]rk/|/r[o]ot/|index-u[r]l|p[y]pi\.org|pytho[n]hosted")
TEXT_SUFFIXES = {".py", ".md", ".js", ".ts", ".css", ".html", ".toml", ".txt", ".json", ".cff", ".sh"}
TEXT_SUFFIXES |= {".c", ".sbatch", ".service", ".conf", ".yaml", ".yml", ".svg", ".ipynb"}
TEXT_NAMES = {".gitignore", ".prettierignore", ".dockerignore", "Makefile", "Dockerfile", "LICENSE", "run"}


def _trees(package: str) -> dict[Path, ast.Module]:
    trees = {file: ast.parse(file.read_text()) for file in sorted((ROOT / package).rglob("*.py"))}
    assert trees, f"no package {package}"
    return trees


def _imports(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names of imported modules, and of what is imported from them."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import of {node.module}"
            names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _imported_packages(package: str) -> set[str]:
    return {name.split(".")[0] for tree in _trees(package).values() for name in _imports(ast.walk(tree))}


def _tracked_files() -> list[str]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [name for name in listing.stdout.split("\0") if (ROOT / name).is_file()]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_from_lower_layers_only(package):
    assert (_imported_packages(package) & MAY_IMPORT.keys()) - {package} <= MAY_IMPORT[package]


@pytest.mark.parametrize(("level", "room"), [*enumerate(ROOMS)])
def test_rooms_of_dino_model_import_from_lower_rooms_only(level, room):
    trees = _trees(f"dino_model/{room}").values()
    names = {name for tree in trees for name in _imports(ast.walk(tree)) if name.startswith("dino_model.")}
    assert {name.split(".")[1] for name in names} <= set(ROOMS[: level + 1])


@pytest.mark.parametrize("package", ["dino_model", "segmentation", "training", "app"])
def test_modules_import_each_other_without_a_circle(package):
    graph = {}
    for file, tree in _trees(package).items():
        conditional = [node for block in tree.body if isinstance(block, ast.If) for node in block.body]
        graph[".".join(file.relative_to(ROOT).with_suffix("").parts)] = _imports(tree.body + conditional)
    TopologicalSorter({name: found & graph.keys() for name, found in graph.items()}).prepare()


def test_imported_packages_are_required_and_requirements_are_pinned():
    required = _requirements("requirements.txt")
    dev, notebooks, docs = (
        _requirements(f"requirements-{name}.txt") for name in ("dev", "notebooks", "docs")
    )
    extra = {"benchmarks": dev, "tools": dev, "notebooks": notebooks, "docs": docs}
    owners = importlib.metadata.packages_distributions()
    known = MAY_IMPORT.keys() | sys.stdlib_module_names | OPTIONAL
    known |= {file.stem for file in (ROOT / "docs").glob("*.py")}
    for package in MAY_IMPORT:
        allowed = required | extra.get(package, set())
        for name in _imported_packages(package) - known:
            distributions = {_normalized(owner) for owner in owners.get(name, [name])}
            assert distributions & allowed, f"{package} imports {name}: not required"
    assert required | dev | notebooks | docs <= _requirements("constraints.txt")


def _requirements(file: str) -> set[str]:
    lines = (ROOT / file).read_text().splitlines()
    return {_normalized(line) for line in lines if line and not line.startswith("#")}


def _normalized(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-")


def test_functions_are_short():
    long = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"
        for package in MAY_IMPORT
        for file, tree in _trees(package).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


PARTICIPLE = re.compile(r"_?[a-z]+(ed|ing)")
NOUNS = {"embed", "encoding", "framing", "labeling"}  # and a verb


def test_no_function_is_named_by_a_participle():
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"
        for package in PRODUCT
        for file, tree in _trees(package).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and PARTICIPLE.fullmatch(node.name)
        and node.name.strip("_") not in NOUNS
    ]
    assert not found, "\n".join(found)


CHOICES = {"method", "protocol", "family", "algorithm"}
"""Variables whose values are names in a table; `_choices` adds those of a Literal of three names or more."""
PRODUCT = ("dino_model", "segmentation", "training", "app")


def _names_in(node: ast.AST, aliases: Mapping[str, set[str]]) -> set[str]:
    """Return the strings of all Literals in an annotation, which may name another."""
    found = set[str]()
    for part in ast.walk(node):
        if isinstance(part, ast.Subscript) and _name_of(part.value) == "Literal":
            found |= {each.value for each in ast.walk(part.slice) if _is_text(each)}
        found |= aliases.get(_name_of(part) or "", set())
    return found


def _choices(trees: Iterable[ast.Module]) -> dict[str, set[str]]:
    """Return the values of every variable, argument and setting that is one of three or more strings."""
    nodes, aliases, choices = [node for tree in trees for node in ast.walk(tree)], {}, {}
    for node in nodes:
        if isinstance(node, ast.Assign) and (names := _names_in(node.value, {})):
            aliases[_name_of(node.targets[0]) or ""] = names
    for node in nodes:
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation:
            name = node.arg if isinstance(node, ast.arg) else _name_of(node.target)
            if len(names := _names_in(node.annotation, aliases)) > 2 and name != "name":
                choices[name] = choices.get(name, set()) | names
    return choices


def _name_of(node: ast.AST) -> str | None:
    """Return the name of a variable, an attribute or an item with a constant key."""
    match node:
        case (
            ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name)))
        ):
            return name
    return None


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _compared(test: ast.AST, choices: Mapping[str, set[str]]) -> str | None:
    """Return the choice that a condition compares with one of its values."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn):
            name = _name_of(node.left) or ""
            texts = {each.value for each in ast.walk(node.comparators[0]) if _is_text(each)}
            if texts and (name in CHOICES or texts <= choices.get(name, set())):
                return name
    return None


def _is_open(branch: Sequence[ast.AST], choice: str) -> bool:
    """Test if a branch ends in an error, nothing, a sentence, or in the compared value itself."""
    last: Any = branch[-1]
    value = last if isinstance(last, ast.expr) else getattr(last, "value", None)
    if isinstance(last, ast.Raise) or isinstance(value, ast.JoinedStr):
        return True
    if isinstance(value, ast.Constant):
        return not isinstance(value.value, str) or not re.fullmatch("[a-z0-9-]+", value.value)
    return value is not None and any(_name_of(node) == choice for node in ast.walk(value))


def _silent_defaults(tree: ast.Module, choices: Mapping[str, set[str]]) -> list[ast.AST]:
    """Return the code that treats an unknown name of a choice as one of the known ones."""
    return [node for node in ast.walk(tree) if _picks_silently(node, choices)]


def _picks_silently(node: ast.AST, choices: Mapping[str, set[str]]) -> bool:
    known = CHOICES | choices.keys()
    match node:
        case ast.match_case(pattern=ast.MatchAs(pattern=None, name=None), guard=None, body=body):
            return not _is_open(body, "")
        case ast.IfExp(test=test, body=first, orelse=last):
            choice = _compared(test, choices)
            return choice is not None and not (_is_open([first], choice) or _is_open([last], choice))
        case ast.If(test=test, orelse=[*body]) if body and not isinstance(body[0], ast.If):
            choice = _compared(test, choices)
            return choice is not None and not _is_open(body, choice)
        case ast.Call(func=ast.Attribute(attr="get"), args=[key, default]):
            is_key = _is_text(key) and key.value in known
            return (is_key and _is_text(default)) or (
                (choice := _name_of(key)) in known and not _is_open([default], choice or "")
            )
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=name), default]):
            return name in known and _is_text(default)
        case ast.BoolOp(op=ast.Or(), values=[first, *_, last]):
            return (
                (choice := _name_of(first)) in known and _is_text(last) and not _is_open([last], choice or "")
            )
        case ast.FunctionDef(body=body) | ast.If(body=body) | ast.For(body=body):
            return any(
                isinstance(step, ast.If)
                and not step.orelse
                and isinstance(step.body[-1], ast.Return)
                and isinstance(rest, ast.Return)
                and (choice := _compared(step.test, choices))
                and not (_is_open([rest], choice) or _is_open(step.body, choice))
                for step, rest in pairwise(body)
            )
    return False


def test_no_default_takes_the_place_of_an_unknown_name():
    trees = {file: tree for package in PRODUCT for file, tree in _trees(package).items()}
    choices = _choices(trees.values())
    assert {"teacher_output", "quantity", "ground_truth", "pool"} <= choices.keys()
    found = {file: _silent_defaults(tree, choices) for file, tree in trees.items()}
    assert not [f"{file.relative_to(ROOT)}:{node.lineno}" for file, nodes in found.items() for node in nodes]


@pytest.mark.parametrize(
    ("code", "is_silent"),
    [
        ("match m:\n case 'a': f()\n case _: g()", True),
        ("match m:\n case 'a': return 1\n case _: return 'tokencut'", True),
        ("match m:\n case 'a': f()\n case _: raise ValueError", False),
        ("x = f() if method == 'a' else g()", True),
        ("x = f() if 'a' == method else g()", False),  # ruff refuses it (SIM300)
        ("x = g() if c.method != 'a' else f()", True),
        ("x = f() if c['method'] in ('a', 'b') else g()", True),
        ("x = f() if pool == 'gem' and y else g()", True),
        ("x = f() if image.pool == 'P' else g()", False),  # not a value of this choice
        ("x = '' if pool == 'gem' else f'{pool}'", False),
        ("x = 'none' if pool == 'auto' else pool", False),
        ("if c.method == 'a': f()\nelif c.method == 'b': g()\nelse: h()", True),
        ("if method == 'a': f()\nelse: raise ValueError", False),
        ("if mode == 'a': f()\nelse: g()", False),
        ("def f(pool):\n if pool == 'gem': return g()\n return h()", True),
        ("def f(pool):\n if pool == 'gem': return g()\n raise ValueError", False),
        ("TABLE.get(pool, g)", True),
        ("TABLE.get(pool, pool)", False),
        ("TABLE.get(pool)", False),
        ("config.get('pool', 'gem')", True),
        ("getattr(config, 'method', 'dino')", True),
        ("x = method or 'dino'", True),
        ("x = method or 'no method'", False),
    ],
)
def test_lint_of_silent_defaults_finds_them(code, is_silent):
    choices = _choices([ast.parse("Pool = Literal['none', 'gem', 'auto']\npool: Pool = 'gem'")])
    assert bool(_silent_defaults(ast.parse(code), choices)) == is_silent


def test_no_file_names_a_path_of_one_machine():
    for name in _tracked_files():
        content = (ROOT / name).read_bytes()
        found = b"\0" not in content and MACHINE_PATHS.search(content.decode(errors="replace"))
        assert not found, f"{name}: {found}"


def test_third_party_lists_every_file_that_is_not_our_text_once():
    patterns = re.findall(r"^\| `([^`]+)` \|", (ROOT / "THIRD_PARTY.md").read_text(), re.MULTILINE)
    used = set()
    for name in _tracked_files():
        rows = [pattern for pattern in patterns if _matches(pattern, name)]
        used.update(rows)
        path = Path(name)
        is_text = "vendor/" not in name and (path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES)
        assert len(rows) == 1 or (is_text and not rows), f"{name}: rows {rows} in THIRD_PARTY.md"
    assert used == set(patterns), f"no file for {set(patterns) - used}"


def _matches(pattern: str, name: str) -> bool:
    """Match `*` within a part of a path, and `/**` at the end with everything in a folder."""
    if pattern.endswith("/**"):
        return name.startswith(pattern[:-2])
    parts, wanted = name.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatch, parts, wanted))


def test_make_targets_in_the_readme_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert named
    assert named <= targets
