"""The options of `python -m app`, in a process of its own."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest

from app.__main__ import Serve, free_port, main
from benchmarks.serving import Served, serving

pytestmark = pytest.mark.slow

PASSWORD = "correct-horse"
AUTH = ("ada", PASSWORD)


def _small_page(folder: Path, *options: str) -> AbstractContextManager[Served]:
    """A page of a small untrained model, with `folder` as the system's temporary folder."""
    model = "--model random:vit_tiny/16 --size 64 --precision fp32 --device cpu --port 0"
    return serving(*model.split(), *options, env={"OMP_NUM_THREADS": "1", "TMPDIR": str(folder)})


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `main` writes into the environment does not outlive a test."""
    gradio = ("GRADIO_SHARE", "GRADIO_TEMP_DIR", "GRADIO_ANALYTICS_ENABLED")
    for name in (*gradio, "OMP_WAIT_POLICY", "OPENBLAS_NUM_THREADS", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
        if not os.environ[name]:
            monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int, Path]]:
    """Address, process and temporary folder of a server with password, root path and small limits."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "users").write_text(f"ada:{PASSWORD}\n")
    options = f"--auth {folder / 'users'} --root-path /dino --max-upload-mb 1 --no-downloads".split()
    with _small_page(folder, *options) as page:
        yield page.address, page.process.pid, folder
        assert page.process.poll() is None, page.log.read_text()
        with httpx.stream("GET", f"{page.address}/gradio_api/heartbeat/x", auth=AUTH):  # a page that is open
            page.process.terminate()
            page.process.wait(3)
        said = page.log.read_text()
    assert "Traceback" not in said
    assert "without a password" not in said
    assert not list(folder.glob("dino-lab-*")), "uploads stay behind when the server is ended"


def test_password_is_needed_for_page_files_and_endpoints(guarded):
    page, _, _ = guarded
    for path in ("/", "/config", "/gradio_api/info", "/lab/images/kitten.jpg", "/lab/arrays/a/blocks/0"):
        assert httpx.get(page + path).status_code == 401
        assert httpx.get(page + path, auth=("ada", "wrong")).status_code == 401
        assert httpx.get(page + path, auth=AUTH).status_code in (200, 404)


def test_page_answers_where_the_proxy_shows_it(guarded):
    page, _, _ = guarded
    for prefix in ("", "/dino"):
        for path in ("/", "/config", "/lab/images/kitten.jpg"):
            assert httpx.get(f"{page}{prefix}{path}", auth=AUTH).status_code == 200, (prefix, path)


def test_limits_of_the_options_hold(guarded):
    page, _, folder = guarded
    answer = httpx.post(f"{page}/gradio_api/upload", files={"files": bytes(1_500_000)}, auth=AUTH)
    assert answer.status_code == 413
    assert len(list(folder.glob("dino-lab-*"))) == 1
    config = httpx.get(f"{page}/config", auth=AUTH).text
    assert "downloads when chosen" not in config


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_list_of_processes_does_not_show_the_password(guarded):
    _, process, _ = guarded
    listed = Path(f"/proc/{process}/cmdline").read_bytes()
    assert b"--auth" in listed
    assert PASSWORD.encode() not in listed


@pytest.mark.skipif(sys.platform != "linux", reason="other systems answer at 127.0.0.1 alone")
def test_host_without_password_prints_a_warning(monkeypatch, capsys):
    monkeypatch.setattr(Serve, "launched", Mock())
    waiting = Mock(**{"Event.return_value.wait.side_effect": KeyboardInterrupt})
    monkeypatch.setattr("app.__main__.threading", waiting)
    with pytest.raises(KeyboardInterrupt):
        Serve(host="127.0.0.2", port=0).run()
    assert "127.0.0.2 can be reached without a password: --auth FILE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--auth", "ada:engine"], "--auth names no file"),
        (["--root-path", "dino"], "--root-path"),
        (["--max-upload-mb", "0"], "--max-upload-mb"),
        (["--max-waiting", "-1"], "--max-waiting"),
        (["--host", "0.0.0.0"], "--allowed-hosts"),
        (["--frame-ancestors", "course.example"], "--frame-ancestors"),
        (["--port", "99999"], "--port"),
    ],
)
def test_wrong_option_ends_in_one_sentence(arguments, message):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert str(end.value).startswith("error: ")
    assert message in str(end.value)
    assert "engine" not in str(end.value)  # what may be a password is not repeated


def test_taken_port_gives_the_next_free_one():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert port < free_port("127.0.0.1", port) <= port + 100
    assert free_port("127.0.0.1", 0) > 0
