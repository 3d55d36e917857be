"""Rules of the repository: layers, requirements, length of functions, licenses, targets in the README."""

import ast
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterable
from fnmatch import fnmatch
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAY_IMPORT = {
    "dino_model": set(),
    "segmentation": {"dino_model"},
    "training": {"dino_model"},
    "app": {"segmentation", "training", "dino_model"},
    "benchmarks": {"app", "segmentation", "training", "dino_model"},
    "tools": {"benchmarks", "app", "segmentation", "training", "dino_model"},
    "notebooks": {"app", "segmentation", "training", "dino_model"},
    "docs": {"notebooks", "app", "segmentation", "training", "dino_model"},
}
ROOMS = ("runtime", "data", "models", "inference")  # of dino_model, the lowest first
MAX_FUNCTION_LINES = 80
OPTIONAL = {"onnx"}  # an error names it if it is missing
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
