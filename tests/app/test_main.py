"""The options of `python -m app`, in a process of its own."""

import base64
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock, patch

import httpx
import pytest

from app.__main__ import Serve, free_port, main
from benchmarks.serving import serving

pytestmark = pytest.mark.slow

PASSWORD = "correct-horse"
AUTH = ("ada", PASSWORD)


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Restore the environment, into which `main` writes."""
    with patch.dict(os.environ):
        yield


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, int, Path]]:
    """Client, process and temporary folder of a server with password, root path and small limits."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "users").write_text(f"ada:{PASSWORD}\n")
    options = "--model random:vit_tiny/16 --size 64 --precision fp32 --device cpu --port 0 "
    options += f"--auth {folder / 'users'} --root-path /dino --max-upload-mb 1 --no-downloads"
    options += " --allowed-hosts lab.example --frame-ancestors https://course.example:8000"
    with (
        serving(*options.split(), env={"OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}) as page,
        httpx.Client(base_url=page.address, timeout=60) as client,
    ):
        yield client, page.process.pid, folder
        assert page.process.poll() is None, page.log.read_text()
        with client.stream("GET", "/gradio_api/heartbeat/x", auth=AUTH):  # a page that is open
            page.process.terminate()
            page.process.wait(3)
        log = page.log.read_text()
    assert "Traceback" not in log
    assert "without a password" not in log
    assert not list(folder.glob("dino-lab-*")), "uploads stay behind when the server is ended"


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


@pytest.mark.skipif(sys.platform != "linux", reason="other systems answer at 127.0.0.1 alone")
def test_host_without_password_prints_a_warning(monkeypatch, capsys):
    monkeypatch.setattr(Serve, "launch_blocks", Mock())
    waiting = Mock(**{"Event.return_value.wait.side_effect": KeyboardInterrupt})
    monkeypatch.setattr("app.__main__.threading", waiting)
    with pytest.raises(KeyboardInterrupt):
        Serve(host="127.0.0.2", port=0).run()
    assert "127.0.0.2 can be reached without a password: --auth FILE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "named", "values"),
    [
        ("--auth", "--auth names no file", ["ada:engine"]),
        ("--root-path", "--root-path", ["dino", "/../x", "/a//b", "http://a"]),
        ("--max-upload-mb", "--max-upload-mb", ["0"]),
        ("--host", "--allowed-hosts", ["0.0.0.0", "::", ""]),
        (
            "--frame-ancestors",
            "--frame-ancestors",
            ["a.example", "https://", "javascript:a", "https://a;b *"],
        ),
        ("--proxies", "--proxies", ["nginx", "10.0.0.0/99"]),
        ("--port", "--port", ["99999", "-1"]),
    ],
)
def test_wrong_option_ends_in_one_sentence(option, named, values):
    for value in values:
        with pytest.raises(SystemExit) as end:
            main([option, value])
        assert str(end.value).startswith("error: ")
        assert named in str(end.value)
        assert "engine" not in str(end.value)  # what may be a password is not repeated


def test_taken_port_gives_the_next_free_one():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert port < free_port("127.0.0.1", port) <= port + 100
