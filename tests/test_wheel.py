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

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PACKAGES = ("app", "dino_model", "segmentation", "training")


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
        if name.partition("/")[0] in PACKAGES or "/" not in name:
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


def test_wheel_holds_the_four_packages_and_one_script(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        scripts = archive.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == set(PACKAGES)
    assert "dino-lab = app.__main__:main" in scripts


@pytest.mark.parametrize("package", PACKAGES)
def test_wheel_has_every_module_and_data_file_of_a_package(installed: Path, package: str):
    listed = subprocess.run(
        ["git", "ls-files", package], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            assert (installed / name).is_file(), name


@pytest.fixture
def page(installed: Path, tmp_path: Path) -> Iterator[str]:
    """Address of the page of the unpacked wheel, far from the checkout."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(installed),
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(tmp_path),
    }
    command = [sys.executable, "-P", "-m", "app", "--port", "0", "--device", "cpu", "--no-downloads"]
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
            process.kill()
            process.communicate()


def test_page_of_the_wheel_answers_and_computes_attention(page: str):
    with urllib.request.urlopen(f"{page}/") as answer:
        assert answer.status == 200
        document = answer.read().decode()
    static = re.search(r"lab/static/[\w./-]+\.js", document)
    assert static
    with urllib.request.urlopen(f"{page}/{static[0]}") as answer:
        assert answer.status == 200
    body = json.dumps({"data": ["kitten", "embedded", 64, -1, None, None]}).encode()
    asked = urllib.request.Request(
        f"{page}/gradio_api/run/attention", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=100) as answer:
        (attention,) = json.load(answer)["data"]
    assert len(attention["maps"][0]) == attention["rows"]


@pytest.mark.parametrize("package", ["dino_model", "segmentation", "training"])
def test_commands_run_from_the_wheel(installed: Path, tmp_path: Path, package: str):
    told = subprocess.run(
        [sys.executable, "-P", "-m", package, "--help"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert "usage" in told.stdout.lower()
