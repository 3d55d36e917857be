"""Rules of the repository: layers, requirements, length of functions, licenses, targets in the README."""

import ast
import importlib.metadata
import re
import subprocess
import sys
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
    "notebooks": {"segmentation", "training", "dino_model"},
    "docs": {"notebooks", "app", "segmentation", "training", "dino_model"},
}
LONGEST_FUNCTION = 80  # lines
OPTIONAL = {"onnx", "pyarrow"}  # an error names it if it is missing
# Letters in brackets, so that this file does not match.
MACHINE_PATHS = re.compile(r"/w[o]rk/|/r[o]ot/|index-u[r]l|p[y]pi\.org|pytho[n]hosted")
TEXT_SUFFIXES = {".py", ".md", ".js", ".ts", ".css", ".html", ".toml", ".txt", ".json", ".cff", ".sh"}
TEXT_SUFFIXES |= {".sbatch", ".service", ".conf", ".yaml", ".yml", ".svg"}
TEXT_NAMES = {".gitignore", ".prettierignore", ".dockerignore", "Makefile", "Dockerfile", "LICENSE", "run"}


def sources(package: str) -> list[Path]:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files, f"no package {package}"
    return files


def imports(file: Path) -> set[str]:
    """Names of all modules that a file imports, anywhere in it, and of what it imports from them."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def imported_packages(package: str) -> set[str]:
    return {name.split(".")[0] for file in sources(package) for name in imports(file)}


def tracked_files() -> list[str]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [name for name in listing.stdout.split("\0") if (ROOT / name).is_file()]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_from_lower_layers_only(package):
    assert (imported_packages(package) & MAY_IMPORT.keys()) - {package} <= MAY_IMPORT[package]


@pytest.mark.parametrize("package", ["dino_model", "segmentation", "training", "app"])
def test_modules_import_each_other_without_a_circle(package):
    modules = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in sources(package)}
    top = {name: _top_level_imports(file) & modules.keys() for name, file in modules.items()}
    TopologicalSorter(top).prepare()  # raises CycleError


def _top_level_imports(file: Path) -> set[str]:
    """Imports that run when the module is imported, and type-only ones."""
    tree = ast.parse(file.read_text())
    blocks = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.If))]
    names: set[str] = set()
    for node in (node for block in blocks for node in block):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_imported_packages_are_required_and_requirements_are_pinned():
    required = requirements("requirements.txt")
    extra = {
        name: required | requirements(f"requirements-{name}.txt") for name in ("dev", "notebooks", "docs")
    }
    allowed = {"benchmarks": extra["dev"], "tools": extra["dev"], "notebooks": extra["notebooks"]}
    allowed["docs"] = extra["docs"]
    owners = importlib.metadata.packages_distributions()
    known = MAY_IMPORT.keys() | sys.stdlib_module_names | OPTIONAL
    known |= {file.stem for file in (ROOT / "docs").glob("*.py")}
    for package in MAY_IMPORT:
        for name in imported_packages(package) - known:
            distributions = {normalized(owner) for owner in owners.get(name, [name])}
            assert distributions & allowed.get(package, required), f"{package} imports {name}: not required"
    pinned = {
        normalized(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    assert set().union(*extra.values()) <= pinned


def requirements(name: str) -> set[str]:
    lines = (ROOT / name).read_text().splitlines()
    return {normalized(line) for line in lines if line and not line.startswith("#")}


def normalized(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-")


def test_functions_are_short():
    long = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1} lines"
        for package in MAY_IMPORT
        for file in sources(package)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= LONGEST_FUNCTION
    ]
    assert not long, "\n".join(long)


def test_no_file_names_a_path_of_one_machine():
    for name in tracked_files():
        content = (ROOT / name).read_bytes()
        if b"\0" not in content:
            found = MACHINE_PATHS.search(content.decode(errors="replace"))
            assert not found, f"{name}: {found}"


def test_third_party_lists_every_file_that_is_not_our_text_once():
    table = (ROOT / "THIRD_PARTY.md").read_text()
    patterns = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    files, used = tracked_files(), set()
    for name in files:
        matching = [pattern for pattern in patterns if matches(pattern, name)]
        used.update(matching)
        path = Path(name)
        is_text = "vendor/" not in name and (path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES)
        assert len(matching) == 1 or (is_text and not matching), f"{name}: rows {matching} in THIRD_PARTY.md"
    assert used == set(patterns), f"no file for {set(patterns) - used}"


def matches(pattern: str, name: str) -> bool:
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


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("dino_model --help", 0),
        ("dino_model list", 0),
        ("dino_model class-map --iterations five", 2),
        ("dino_model export embedded --format transformers --dtype fp16", 1),
        ("training pretrain --help", 0),
        ("training study --help", 0),
        ("training evaluate knn --help", 0),
        ("training pretrain --batch-size five", 2),
        ("segmentation voc --help", 0),
        ("app --help", 0),
    ],
)
def test_help_list_and_argument_errors_load_no_torch(command: str, code: int):
    script = (
        "import runpy, sys\n"
        "code, sys.argv = 0, sys.argv[1:]\n"
        "try: runpy.run_module(sys.argv[0], run_name='__main__')\n"
        "except SystemExit as end: code = end.code or 0\n"
        "heavy = {'torch', 'timm', 'gradio'} & set(sys.modules)\n"
        "print(code, sorted(heavy), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *command.split()], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stderr.splitlines()[-1] == f"{code} []"
