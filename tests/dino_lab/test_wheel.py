"""The wheel: what it adds to site-packages, and that the page starts from it where there is no checkout."""

import json
import os
import re
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from what git tracks, offline."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True
    )
    if listed.returncode:
        pytest.skip("the wheel is built from what git tracks, and this is no repository")
    for name in filter(None, listed.stdout.decode().split("\0")):
        if name.startswith(("app", "dino_", "segmentation", "training")) or "/" not in name:
            if not (ROOT / name).is_file():
                continue
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "-w", str(folder), str(source)], check=True, timeout=200)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like site-packages with nothing but the wheel in it."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_no_module_of_the_wheel_has_a_name_that_others_use(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        scripts = archive.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"dino_lab", "dino_model"}
    assert "dino-lab = dino_lab.__main__:main" in scripts


def test_wheel_has_every_module_of_the_packages(installed: Path):
    for package in ("app", "segmentation", "training", "dino_model"):
        where = installed / ("" if package == "dino_model" else "dino_lab/rooms")
        for path in (ROOT / package).rglob("*.py"):
            assert (where / path.relative_to(ROOT)).is_file(), path


@pytest.fixture
def page(installed: Path, tmp_path: Path) -> Iterator[str]:
    """The page as `dino-lab` starts it, far from the checkout."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", "dino_lab", "--port", "0", "--device", "cpu", "--no-downloads"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://\S+", line)
            assert found, line + (process.stderr.read() if process.stderr else "")
            yield found[0]
        finally:
            process.terminate()
            process.communicate(timeout=30)


def test_page_starts_from_the_wheel_and_looks_at_a_photograph(page: str):
    with urllib.request.urlopen(f"{page}/") as answer:
        document = answer.read().decode()
    static = re.search(r'src="(static/[^"]+)"', document)
    assert static
    with urllib.request.urlopen(f"{page}/{static[1]}") as answer:
        assert answer.status == 200
    body = json.dumps({"photo": "kitten", "model": "embedded", "size": 64}).encode()
    asked = urllib.request.Request(f"{page}/api/encode", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked) as answer:
        assert json.load(answer)["model"] == "embedded"


def test_commands_run_from_the_wheel(installed: Path, tmp_path: Path):
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    for room in ("segmentation", "training"):
        command = [sys.executable, "-P", "-m", "dino_lab", room, "--help"]
        told = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
        )
        assert told.returncode == 0, told.stderr
        assert "usage" in told.stdout.lower()
