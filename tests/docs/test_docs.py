"""Documents: links, quoted commands, help, the lecture, and the built site if there is one."""

import importlib
import re
import shlex
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from dino_model.runtime.errors import EXPECTED
from tests.training.runs import noise
from training.commands.arguments import parse

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "docs"
MAX_SITE_BYTES = 32_000_000  # a page for every module of the API, and the slides
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
PAGES += [ROOT / "notebooks" / "README.md", *(ROOT / "dino_model").glob("*/card.md")]
PAGES += [ROOT / "tests" / "oracles" / "README.md", *(ROOT / "deploy").glob("*/README.md")]
PAGES += [*(ROOT / "notebooks").glob("[0-9a-z]_*.py")]  # their text quotes commands and links to documents

sys.path.insert(0, str(ROOT / "docs"))
import commands  # noqa: E402


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_document_links_to_existing_files(page: Path):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = {target.split("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)}
    local = [one for one in targets if "://" not in one and not one.startswith("reference/")]  # built later
    assert not [target for target in local if not (page.parent / target).exists()]


STANDARD = re.compile(
    r"python -m (venv|pip|http\.server) |(\.venv/bin/)?pip (install|download) |npm ci$|curl -s |source "
)
"""Commands that are not of this project."""
PLACEHOLDERS = {"PROTOCOL": "knn", "COMMAND": "knn"}


def quoted_commands() -> list[tuple[str, bool]]:
    """List the command lines of all documents, and whether each is complete, not only a name."""
    found: dict[str, bool] = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        text = re.sub(r"python -c '[^']*'", "", text)  # programs
        blocks = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL)).splitlines()
        blocks += re.findall(r"^\$ (.*)", text, re.MULTILINE)  # of ```console, with output
        spans = re.findall(r"`((?:python -m|make) [^`\n]+)`", text)
        for line in (*blocks, *spans):
            command = re.split(r"\s+#", line)[0].strip().replace(".venv/bin/python", "python")
            is_complete = line in blocks or page.name == "paper-map.md"
            if command and "…" not in command and "\\|" not in command:
                found[command] = found.get(command, False) or is_complete
    return sorted((line, is_complete) for line, is_complete in found.items() if not STANDARD.match(line))


def options_of(module: str) -> Any:
    """Return what a module passes to tyro: a dataclass or a function."""
    file = ROOT.joinpath(*module.split("."))
    file = file / "__main__.py" if file.is_dir() else file.with_suffix(".py")
    name = re.search(r"tyro\.cli\((\w+)", file.read_text(encoding="utf-8"))
    assert name, f"{file} is no command"
    return getattr(importlib.import_module(module), name[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Images for recipes that depend on them."""
    images = noise(tmp_path_factory.mktemp("images"), 8, 2, 40, 40)
    (images / "class0" / "names.txt").write_text("0.png\n")
    return images


@pytest.mark.parametrize(("line", "is_complete"), quoted_commands())
def test_quoted_command_is_accepted_by_its_parser(line: str, is_complete: bool, folder: Path, capsys):
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(line)]
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert all("=" in word or word in targets for word in words[1:]), line
        return
    assert words[:2] == ["python", "-m"], line
    names = (" ".join(words[2 : 2 + length]) for length in (3, 2, 1))
    name = next((name for name in names if name in commands.CLASSES), "")
    arguments = words[2 + len(name.split()) :]
    try:
        if words[2] in {"dino_model", "segmentation", "training"} and not name:
            assert not arguments or arguments == ["--help"], line
        elif "--help" in arguments or not (is_complete or arguments):
            return
        elif name == "training pretrain":  # its options depend on method and recipe, and small-data on images
            files = {
                "FILE": "embedded",
                "test.txt": str(folder / "class0" / "names.txt"),
                "IMAGES": str(folder),
            }
            given = [
                str(folder) if word.endswith(("/", ".tar")) else files.get(word, word) for word in arguments
            ]
            parse(" ".join(given).replace("--channels 6", "").split())
        elif name:
            commands.tyro.cli(commands.CLASSES[name], args=arguments)
        elif words[2] != "benchmarks.NAME":
            options = options_of(words[2])
            if is_complete or words[3:]:
                commands.tyro.cli(options, args=words[3:])
    except (SystemExit, *EXPECTED) as error:
        pytest.fail(f"{line}: {error} {capsys.readouterr().err}")


@pytest.mark.parametrize("name", commands.CLASSES)
def test_every_option_of_a_command_has_help(name: str):
    assert all(action.help for action in commands.parser(name)._actions)


LIGHT = """
import runpy, sys
for code, words in {cases!r}:
    print(end="\f")
    sys.argv = words
    try:
        ended = runpy.run_module(words[0], run_name="__main__", alter_sys=True) and 0
    except SystemExit as end:
        ended = end.code or 0
    assert ended == code, words
    assert not {{"torch", "timm", "gradio"}} & sys.modules.keys(), words
"""
ERRORS = {
    "dino_model": [
        (2, "class-map --iterations five"),
        (1, "export embedded --output folder --dtype fp16"),
    ],
    "training": [(2, "pretrain --batch-size five")],
}


@pytest.mark.parametrize("package", ["app", "dino_model", "segmentation", "training"])
def test_help_equals_the_reference_and_needs_no_network_or_torch(package: str, tmp_path: Path):
    names = [name.split() for name in commands.CLASSES if name.split()[0] == package]
    cases = [(0, [*words, "--help"]) for words in ([package], *names)]
    cases += [(code, [package, *line.split()]) for code, line in ERRORS.get(package, [])]
    cases += [(0, [package, "list"])] * (package == "dino_model")
    environment = {"PATH": "", "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", LIGHT.format(cases=cases)]
    shown = subprocess.check_output(command, cwd=ROOT, env=environment, text=True)
    helps = shown.split("\f")[2:]  # after the help of the package
    for words, help_ in zip(names, helps, strict=False):
        documented = {
            option for action in commands.parser(" ".join(words))._actions for option in action.option_strings
        }
        assert _options(help_) == documented - {"-h", "--help"}, words


def _options(help_: str) -> set[str]:
    """Return the options at the beginnings of lines, `--resume, --no-resume` in one line."""
    lines = re.findall(r"^\W{1,2}((?:--[\w-][\w.-]*(?:, )?)+)", help_, re.MULTILINE)
    return {option for line in lines for option in line.split(", ") if option}


def test_lecture_has_twenty_slides_with_notes_for_45_minutes():
    slides = (ROOT / "docs" / "lecture.md").read_text(encoding="utf-8").split("\n## ")[1:]
    minutes = [re.search(r"\((\d+)\s+minutes?\)\n```", slide) for slide in slides]
    assert len(slides) == 20
    assert all("```{revealjs-notes}" in slide for slide in slides)
    assert sum(int(found[1]) for found in minutes if found) == 45


def test_slides_of_studies_have_the_values_of_the_page_of_studies():
    lecture, studies = ((ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("lecture", "studies"))
    slides = [slide for slide in lecture.split("\n## ") if "figures/study-" in slide]
    values = {value for slide in slides for value in re.findall(r"\d+\.\d+", slide)}
    assert len(slides) == 2
    assert values <= {*re.findall(r"\d+\.\d+", studies)}, values


def test_built_site_is_complete_offline_and_small():
    if not (SITE / "index.html").is_file():
        pytest.skip("build/docs is missing: `make docs` builds it")
    pages = {}
    for file in SITE.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        pages[file] = re.sub(r"(<script\b[^>]*>).*?</script>", r"\1", text, flags=re.DOTALL)
    found = {file: re.findall(r'\s(?:id|name)="([^"]+)"', text) for file, text in pages.items()}
    anchors = {file: set(map(unescape, names)) for file, names in found.items()}
    broken = []
    for file, text in pages.items():
        for tag, address in re.findall(r'<(\w+)[^>]*?\s(?:href|src)="([^"]*)"', text):
            parts = urlsplit(unescape(address))
            if parts.netloc and tag != "a":
                broken.append(f"{file.relative_to(SITE)} loads {address}")
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            known = anchors.get(target, {unquote(parts.fragment)})
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in known):
                broken.append(f"{file.relative_to(SITE)} links to {address}")
    assert not broken, "\n".join(broken[:40])
    size = sum(file.stat().st_size for file in SITE.rglob("*") if file.is_file() and "try" not in file.parts)
    assert size <= MAX_SITE_BYTES
