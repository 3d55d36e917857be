"""The house keeps its rules: imports go down, no file names one machine, the README's commands answer."""

import ast
import importlib.metadata
import re
import runpy
import shlex
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOORS = {
    "dino_model": {"dino_model"},
    "segmentation": {"segmentation", "dino_model"},
    "training": {"training", "dino_model"},
    "app": {"app", "segmentation", "training", "dino_model"},
    "benchmarks": {"benchmarks", "app", "segmentation", "training", "dino_model"},
    "tools": {"tools", "segmentation", "training", "dino_model"},
    "notebooks": {"notebooks", "segmentation", "training", "dino_model"},
    "docs": {"notebooks", "app", "segmentation", "training", "dino_model"},
}
LONGEST_FUNCTION = 80  # lines
# Letters in brackets, so that this file does not find itself.
OF_ONE_MACHINE = re.compile(r"/w[o]rk/|/r[o]ot/|index-u[r]l|p[y]pi\.org|pytho[n]hosted")


def sources(package: str) -> list[Path]:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files, f"no package {package}"
    return files


def imported_modules(file: Path) -> set[str]:
    """Every module a file imports, anywhere in it; a relative import by its full name."""
    package = file.relative_to(ROOT).parent.parts
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            names.add(".".join((*base, *filter(None, [node.module]))))
    return names


def imported_packages(package: str) -> dict[str, Path]:
    """Top-level packages that `package` imports, each with a file that does."""
    return {module.split(".")[0]: file for file in sources(package) for module in imported_modules(file)}


@pytest.mark.parametrize("package", FLOORS)
def test_imports_go_down_never_up_or_sideways(package: str):
    wrong = {
        name: str(file.relative_to(ROOT))
        for name, file in imported_packages(package).items()
        if name in FLOORS and name not in FLOORS[package]
    }
    assert not wrong, f"{package} stands below or beside what it imports: {wrong}"


def test_every_package_imported_is_required_and_every_requirement_is_pinned():
    required = {normalised(line) for line in listed(ROOT / "requirements.txt")}
    for_tests, for_notebooks, for_docs = (
        required | {normalised(line) for line in listed(ROOT / f"requirements-{name}.txt")}
        for name in ("dev", "notebooks", "docs")
    )
    pinned = {normalised(line) for line in listed(ROOT / "constraints.txt") if "==" in line}
    owners = importlib.metadata.packages_distributions()
    missing = {
        name: str(file.relative_to(ROOT))
        for package in FLOORS
        for name, file in imported_packages(package).items()
        if name not in FLOORS
        and name not in sys.stdlib_module_names
        and not (ROOT / "docs" / f"{name}.py").is_file()
        and not {normalised(owner) for owner in owners.get(name, [name])}
        & {"benchmarks": for_tests, "notebooks": for_notebooks, "docs": for_docs}.get(package, required)
    }
    assert not missing, f"imported, but not in requirements.txt: {missing}"
    unpinned = (for_tests | for_notebooks | for_docs) - pinned
    assert not unpinned, f"no tested version in constraints.txt: {sorted(unpinned)}"


def listed(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if line and not line.startswith("#")]


def normalised(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-")


@pytest.mark.parametrize("package", FLOORS)
def test_no_function_is_too_long_to_read(package: str):
    long = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1} lines"
        for file in sources(package)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= LONGEST_FUNCTION
    ]
    assert not long, "\n".join(long)


def test_no_file_names_a_place_on_one_machine():
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("not a git checkout: which files belong to the project is not known")
    found = []
    for name in filter(None, listing.stdout.split("\0")):
        file = ROOT / name
        content = file.read_bytes() if file.is_file() else b""
        if b"\0" in content:
            continue
        for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
            if OF_ONE_MACHINE.search(line):
                found.append(f"{name}:{number} {line.strip()[:80]}")
    assert not found, "\n".join(found)


def test_the_wheel_carries_what_the_packages_read():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    for package, patterns in settings["package-data"].items():
        for pattern in patterns:
            assert list((ROOT / package).glob(pattern)), f"{package}/{pattern} matches no file"


# --- the commands, as the README gives them


def readme_lines() -> list[str]:
    """Command lines in the README's shell blocks, comments cut, continued lines joined."""
    blocks = re.findall(r"```(?:bash|sh)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.strip() and not line.startswith("#")]


def readme_commands() -> list[str]:
    return [
        line
        for line in readme_lines()
        if " -m " in f" {line}" and "-m pip" not in line and "-m venv" not in line
    ]


def answer_to_help(command: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Exit code of `python -m COMMAND --help`, in this process, with every connection refused."""

    def refuse(*_: object) -> None:
        raise AssertionError("--help opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(sys, "argv", [*command, "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    return int(end.value.code or 0)


@pytest.mark.filterwarnings("ignore:.*found in sys.modules after import:RuntimeWarning")
@pytest.mark.parametrize("line", readme_commands())
def test_every_command_in_the_readme_exists_with_its_options(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    words = shlex.split(line)
    module, *arguments = words[words.index("-m") + 1 :]
    if module in ("pytest", "ruff", "mypy"):
        return
    # What comes before the first option: one word, two for an evaluation, none for a page or a benchmark.
    words_of = {"app": 0, "benchmarks": 0, "training": 2 if arguments[:1] == ["evaluate"] else 1}
    subcommand = arguments[: words_of.get(module.split(".")[0], 1)]
    assert answer_to_help([module, *subcommand], monkeypatch) == 0
    shown = capsys.readouterr().out
    for option in (word.split("=")[0] for word in arguments if word.startswith("--")):
        assert option in shown, f"{module} {subcommand} has no {option}"


def test_every_target_in_the_readme_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {word for line in readme_lines() if line.startswith("make ") for word in line.split()[1:2]}
    assert named, "the README names no make target"
    assert named <= targets, f"no such target: {named - targets}"


@pytest.mark.parametrize("module", ["dino_model", "segmentation", "training", "app"])
def test_help_answers_from_a_cold_start_without_data_or_network(module: str, tmp_path: Path):
    answer = subprocess.run(
        [sys.executable, "-m", module, "--help"],
        cwd=ROOT,
        env={"PATH": "", "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert "usage" in answer.stdout.lower()


def test_scoring_masks_needs_no_model(tmp_path: Path):
    """The help of `score` took 5 s and 940 MB while it imported what every other command needs."""
    code = (
        "import sys; sys.argv = ['segmentation', 'score', '--help']\n"
        "from segmentation.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'timm', 'scipy', 'matplotlib', 'pycocotools'} & sys.modules.keys()))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert answer.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_link_in_a_page_leads_somewhere(page: str):
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text())
    gone = [link for link in links if "://" not in link and not (ROOT / link).exists()]
    assert not gone, f"{page} links to what is not there: {gone}"
