"""The wheel: its content, and page and commands that start from it far from the checkout."""

import base64
import os
import re
import socket
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PASSWORD = "correct-horse"
AUTH = ("ada", PASSWORD)
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


def command(package: str, *words: str, site: Path, folder: Path) -> dict:
    """Arguments of `subprocess` for a package of the wheel."""
    environment = {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    words = (sys.executable, "-P", "-m", package, *words)
    return {"args": words, "cwd": folder, "env": os.environ | environment, "text": True}


@pytest.fixture(scope="module")
def guarded(
    installed: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[httpx.Client, int, Path]]:
    """Client, process and temporary folder of a server with password, root path and small limits."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "users").write_text(f"ada:{PASSWORD}\n")
    options = "--model random:vit_tiny/16 --size 64 --precision fp32 --device cpu --port 0 "
    options += f"--auth {folder / 'users'} --root-path /dino --max-upload-mb 1 --no-downloads"
    options += " --allowed-hosts lab.example --frame-ancestors https://course.example:8000"
    started, log = command("app", *options.split(), site=installed, folder=folder), folder / "log.txt"
    with (
        log.open("w") as errors,
        subprocess.Popen(**started, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found, log.read_text()
            with httpx.Client(base_url=found[0], timeout=60) as client:
                yield client, process.pid, folder
                assert process.poll() is None, log.read_text()
                with client.stream("GET", "/gradio_api/heartbeat/x", auth=AUTH):  # a page that is open
                    process.terminate()
                    process.wait(3)
        finally:
            process.kill()
    assert "Traceback" not in log.read_text()
    assert "without a password" not in log.read_text()
    assert not list(folder.glob("dino-lab-*")), "uploads stay behind when the server is ended"


def test_wheel_holds_every_file_of_the_four_packages_and_one_script(tracked: list[str], installed: Path):
    folders = {entry.name for entry in installed.iterdir() if entry.suffix != ".dist-info"}
    assert folders == set(PACKAGES)
    assert [name for name in tracked if "/" in name and not (installed / name).is_file()] == []
    (scripts,) = installed.glob("*.dist-info/entry_points.txt")
    assert "dino-lab = app.__main__:main" in scripts.read_text()


def test_page_of_the_wheel_computes_attention(guarded):
    client, *_ = guarded
    static = re.search(r"lab/static/[\w./-]+\.js", client.get("/", auth=AUTH).text)
    assert static
    for prefix in ("", "/dino"):  # the proxy may strip the path
        assert client.get(f"{prefix}/{static[0]}", auth=AUTH).status_code == 200
    body = {"data": ["kitten", "embedded", 64, -1, None, None]}
    (attention,) = client.post("/gradio_api/run/attention", json=body, auth=AUTH).json()["data"]
    assert len(attention["maps"][0]) == attention["rows"]


def test_password_is_needed_for_page_files_and_endpoints_and_not_listed(guarded):
    client, process, _ = guarded
    for path in ("/", "/config", "/gradio_api/info", "/lab/images/kitten.jpg", "/lab/arrays/a/blocks/0"):
        assert client.get(path).status_code == 401
        assert client.get(path, auth=("ada", "wrong")).status_code == 401
        assert client.get(path, auth=AUTH).status_code in (200, 404)
    if sys.platform == "linux":  # the list of processes
        assert PASSWORD.encode() not in Path(f"/proc/{process}/cmdline").read_bytes()


def test_page_answers_where_the_proxy_shows_it(guarded):
    client, _, folder = guarded
    for prefix in ("", "/dino"):
        for path in ("/", "/config", "/lab/images/kitten.jpg"):
            assert client.get(prefix + path, auth=AUTH).status_code == 200, (prefix, path)
    assert "downloads when chosen" not in client.get("/config", auth=AUTH).text
    assert len(list(folder.glob("dino-lab-*"))) == 1


def test_upload_that_is_cut_or_too_large_leaves_the_server_alive(guarded):
    client, *_ = guarded
    basic = base64.b64encode(":".join(AUTH).encode()).decode()
    for length in (900_000, 90_000_000):
        head = f"POST /gradio_api/upload HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {basic}\r\n"
        head += f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {length}\r\n\r\n--b\r\n"
        with socket.create_connection(("127.0.0.1", client.base_url.port), timeout=10) as line:
            line.sendall(head.encode() + bytes(100_000))
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for size in (1_500_000, 6_000_000):  # refused by Gradio, and by the guard
        answer = client.post("/gradio_api/upload", files={"files": bytes(size)}, auth=AUTH)
        assert answer.status_code == 413
    assert client.get("/config", auth=AUTH).status_code == 200


@pytest.mark.parametrize("package", ["dino_model", "segmentation", "training"])
def test_commands_run_from_the_wheel(installed: Path, tmp_path: Path, package: str):
    started = command(package, "--help", site=installed, folder=tmp_path)
    printed = subprocess.run(**started, capture_output=True, check=True, timeout=100).stdout
    assert "usage" in printed.lower()
