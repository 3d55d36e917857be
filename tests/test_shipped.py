"""Nothing lies in the repository that `THIRD_PARTY.md` does not account for."""

import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OWN_TEXT = {".py", ".md", ".js", ".ts", ".css", ".html", ".toml", ".txt", ".json", ".cff", ".sh", ".sbatch"}
OWN_TEXT |= {".service", ".conf", ".yaml", ".yml", ".svg"}
OWN_NAMES = {".gitignore", ".prettierignore", ".dockerignore", "Makefile", "Dockerfile", "LICENSE", "run"}
ROW = re.compile(r"^\| `([^`]+)` \| [^|]+ \| [^|]+ \| ([^|]+) \|$")


def tracked() -> list[str]:
    found = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip("not a git checkout")
    return found.stdout.splitlines()


def rows() -> list[str]:
    lines = (ROOT / "THIRD_PARTY.md").read_text().splitlines()
    table = [line for line in lines if line.startswith("| `")]
    found = [ROW.match(line) for line in table]
    assert all(found), "every row names files, what, from where and licence"
    return [match[1] for match in found if match]


def names(pattern: str, path: str) -> bool:
    """Whether a row is about a file: `*` is a part of a name, `/**` at the end all in a folder."""
    if pattern.endswith("/**"):
        return path.startswith(pattern[:-2])
    parts, wanted = path.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatch, parts, wanted))


def is_own_text(path: str) -> bool:
    return "vendor/" not in path and (Path(path).suffix in OWN_TEXT or Path(path).name in OWN_NAMES)


def test_every_file_that_is_not_our_text_has_one_row():
    patterns = rows()
    for path in tracked():
        matching = [pattern for pattern in patterns if names(pattern, path)]
        assert len(matching) <= 1, f"{path} stands in THIRD_PARTY.md more than once: {matching}"
        assert matching or is_own_text(path), f"{path} is not accounted for: add a row to THIRD_PARTY.md"


def test_every_row_is_about_files_that_are_there():
    paths = tracked()
    for pattern in rows():
        assert any(names(pattern, path) for path in paths), f"no file {pattern}: take its row out"
