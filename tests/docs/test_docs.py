"""Documents: links, quoted commands, the lecture, and the built site if there is one."""

import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from dino_model.errors import EXPECTED

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "docs"
MAX_SITE_BYTES = 32_000_000  # a page for every module of the API, and the slides
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
PAGES += [ROOT / "notebooks" / "README.md", ROOT / "dino_model" / "embedded" / "card.md"]

sys.path.insert(0, str(ROOT / "docs"))
import commands  # noqa: E402


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_document_links_to_existing_files(page: Path):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = [target.split("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)]
    generated = ("reference/",)
    missing = [
        target
        for target in targets
        if target and "://" not in target and not target.startswith(generated)
        and not (page.parent / target).exists()
    ]  # fmt: skip
    assert not missing


def quoted_commands() -> list[str]:
    """Command lines of the project in fenced blocks and in code spans of all documents."""
    found = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        blocks = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL)).splitlines()
        spans = re.findall(r"`(python -m [^`\n]+)`", text)
        found |= {line.split("  #")[0].strip() for line in (*blocks, *spans)}
    complete = (line for line in found if not re.search(r"…|\.\.\.|COMMAND|PROTOCOL|NAME|FILE|\\\|", line))
    modules = r"python -m (segmentation|training|dino_model|app) "
    return sorted(line for line in complete if re.match(modules, line) and "--help" not in line)


@pytest.mark.parametrize("line", quoted_commands())
def test_quoted_command_is_accepted_by_its_parser(line: str, capsys: pytest.CaptureFixture[str]):
    words = shlex.split(line)[2:]
    name = next(
        " ".join(words[:length]) for length in (3, 2, 1) if " ".join(words[:length]) in commands.CLASSES
    )
    arguments = words[len(name.split()) :]
    if not arguments or (
        {"small-data", "--channels"} & {*arguments} and name == "training pretrain"
    ):  # a mention; a recipe that reads the data
        return
    if name == "training pretrain":  # its options depend on recipe and method
        from training.commands.arguments import parse

        parse(arguments)
        return
    try:
        commands.tyro.cli(commands.CLASSES[name], args=arguments)
    except (SystemExit, *EXPECTED) as error:
        pytest.fail(f"{line}: {error} {capsys.readouterr().err}")


@pytest.mark.parametrize("name", [name for name in commands.CLASSES if name != "training pretrain"])
def test_every_option_of_a_command_has_help(name: str):
    silent = [action.option_strings for action in commands.parser(name)._actions if not action.help]
    assert not silent


HEAVY = {"torch", "timm", "gradio"}
HELP = """
import runpy, sys
for words in {commands!r}:
    sys.argv = [*words, "--help"]
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        assert not end.code, words
    assert not {heavy!r} & sys.modules.keys(), words
"""


@pytest.mark.parametrize("package", ["app", "dino_model", "segmentation", "training"])
def test_help_of_every_command_needs_no_network_or_torch(package: str, tmp_path: Path):
    named = [name.split() for name in commands.CLASSES if name.split()[0] == package]
    every = [[package], *(words for words in named if words[1:] != ["study"])]  # it computes with torch
    environment = {"PATH": "", "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    code = HELP.format(commands=every, heavy=HEAVY)
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert shown.stdout.lower().count("usage") >= len(every)


def test_lecture_has_twenty_slides_with_notes_for_45_minutes():
    slides = (ROOT / "docs" / "lecture.md").read_text(encoding="utf-8").split("\n## ")[1:]
    minutes = [re.search(r"\((\d+)\s+minutes?\)\n```", slide) for slide in slides]
    assert len(slides) == 20
    assert all("```{revealjs-notes}" in slide for slide in slides)
    assert sum(int(found[1]) for found in minutes if found) == 45


class Page(HTMLParser):
    """Anchors of a page, and the addresses that it loads and links to."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        for name in ("href", "src"):
            if name in given and not given[name].startswith(("data:", "mailto:", "javascript:")):
                (self.links if tag == "a" else self.loads).append(given[name])


def test_built_site_is_complete_offline_and_small():
    if not (SITE / "index.html").is_file():
        pytest.skip("build/docs is missing: `make docs` builds it")
    pages = {file: Page(file) for file in SITE.rglob("*.html")}
    broken = []
    for file, page in pages.items():
        broken += [f"{file.name} loads {address}" for address in page.loads if urlsplit(address).netloc]
        for address in page.links + page.loads:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if not target.exists():
                broken.append(f"{file.relative_to(SITE)} links to {address}: no such file")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                broken.append(f"{file.relative_to(SITE)} links to {address}: no such anchor")
    assert not broken, "\n".join(broken[:40])
    size = sum(file.stat().st_size for file in SITE.rglob("*") if file.is_file() and "try" not in file.parts)
    assert size <= MAX_SITE_BYTES
