"""The wheel: its content, and that page and commands start from it far from the checkout."""

import json
import os
import re
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PACKAGES = ("app", "dino_model", "segmentation", "training")


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    """Files in the packages and in the root folder that git tracks."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("the wheel is built from what git tracks, and this is no repository")
    names = listed.stdout.split("\0")
    return [n for n in names if (n.split("/")[0] in PACKAGES or "/" not in n) and (ROOT / n).is_file()]


@pytest.fixture(scope="module")
def installed(tracked: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the wheel in it, like site-packages; the wheel is built offline."""
    source, folder, site = (tmp_path_factory.mktemp(name) for name in ("source", "wheel", "site"))
    for name in tracked:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "-w", str(folder), str(source)], check=True, timeout=200)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def start(package: str, *words: str, site: Path, folder: Path) -> subprocess.Popen:
    environment = {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    command = [sys.executable, "-P", "-m", package, *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=os.environ | environment, **pipes)


def test_wheel_holds_every_file_of_the_four_packages_and_one_script(tracked: list[str], installed: Path):
    folders = {entry.name for entry in installed.iterdir() if entry.suffix != ".dist-info"}
    assert folders == set(PACKAGES)
    assert [name for name in tracked if "/" in name and not (installed / name).is_file()] == []
    (scripts,) = installed.glob("*.dist-info/entry_points.txt")
    assert "dino-lab = app.__main__:main" in scripts.read_text()


def test_page_of_the_wheel_computes_attention(installed: Path, tmp_path: Path):
    words = ["--port", "0", "--device", "cpu", "--no-downloads"]
    with start("app", *words, site=installed, folder=tmp_path) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://\S+", line)
            assert found, line
            with urllib.request.urlopen(f"{found[0]}/") as response:
                static = re.search(r"lab/static/[\w./-]+\.js", response.read().decode())
            assert static
            urllib.request.urlopen(f"{found[0]}/{static[0]}").close()
            body = json.dumps({"data": ["kitten", "embedded", 64, -1, None, None]}).encode()
            url, header = f"{found[0]}/gradio_api/run/attention", {"Content-Type": "application/json"}
            with urllib.request.urlopen(urllib.request.Request(url, body, header), timeout=100) as response:
                (attention,) = json.load(response)["data"]
        finally:
            process.kill()
    assert len(attention["maps"][0]) == attention["rows"]


@pytest.mark.parametrize("package", ["dino_model", "segmentation", "training"])
def test_commands_run_from_the_wheel(installed: Path, tmp_path: Path, package: str):
    with start(package, "--help", site=installed, folder=tmp_path) as process:
        printed, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    assert "usage" in printed.lower()
