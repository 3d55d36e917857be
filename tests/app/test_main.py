"""The options of `python -m app` that stand between it and other machines, in a server of its own."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest

from app.__main__ import main
from benchmarks.serving import Served, serving

PASSWORD = "correct-horse"


def _small_page(folder: Path, *options: str) -> AbstractContextManager[Served]:
    """A page of a small untrained model; `folder` takes what it would leave in the system's."""
    model = "--model random:vit_tiny/16 --size 64 --precision fp32 --device cpu --port 0"
    return serving(*model.split(), *options, env={"OMP_NUM_THREADS": "1", "TMPDIR": str(folder)})


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int, Path]]:
    """Address, process and temporary folder of a server with password, root path and small limits."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "users").write_text(f"ada:{PASSWORD}\n")
    options = ("--auth", str(folder / "users"), "--root-path", "/dino", "--max-upload-mb", "1")
    with _small_page(folder, *options) as page:
        yield page.address, page.process.pid, folder
        assert page.process.poll() is None, page.log.read_text()
        listening = f"{page.address}/gradio_api/heartbeat/a-page-that-is-open"
        with httpx.stream("GET", listening, auth=("ada", PASSWORD)) as heartbeat:
            next(heartbeat.iter_lines())
            page.process.terminate()
            page.process.wait(20)
        said = page.log.read_text()
    assert "Traceback" not in said
    assert "No password" not in said
    assert not list(folder.glob("dino-lab-*")), "what visitors sent stays behind when the server is ended"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems answer at 127.0.0.1 alone")
def test_other_machines_let_in_without_a_password_are_warned_of(tmp_path):
    with _small_page(tmp_path, "--host", "127.0.0.2") as page:
        assert "No password is asked of whoever reaches 127.0.0.2: --auth FILE" in page.log.read_text()
        assert httpx.get(page.address).status_code == 200


def test_what_visitors_send_lies_in_a_folder_of_the_servers_own(guarded):
    address, _, folder = guarded
    file = {"files": ("mine.png", b"somebody's", "image/png")}
    sent = httpx.post(f"{address}/gradio_api/upload", files=file, auth=("ada", PASSWORD))
    (own,) = folder.glob("dino-lab-*")
    assert sent.json()[0].startswith(str(own))
    assert own.stat().st_mode & 0o077 == 0


def test_password_is_asked_for_page_routes_and_files(guarded):
    address, _, _ = guarded
    for path in ("/", "/dino/", "/lab/static/page.css", "/config", "/lab/encodings/x/picture.jpg"):
        assert httpx.get(address + path).status_code == 401
        assert httpx.get(address + path, auth=("ada", "wrong")).status_code == 401
        assert httpx.get(address + path, auth=("ada", PASSWORD)).status_code in (200, 404)


def test_page_knows_where_the_proxy_shows_it(guarded):
    address, _, _ = guarded
    for prefix in ("", "/dino"):
        told = httpx.get(f"{address}{prefix}/config", auth=("ada", PASSWORD)).json()
        assert told["root"].endswith("/dino")


def test_limits_of_the_options_hold(guarded):
    address, _, _ = guarded
    answer = httpx.post(f"{address}/gradio_api/call/encode", content=bytes(3_000_000), auth=("ada", PASSWORD))
    assert answer.status_code == 413


def test_list_of_processes_does_not_tell_the_password(guarded):
    _, process, _ = guarded
    listed = Path(f"/proc/{process}/cmdline")
    if not listed.exists():
        pytest.skip("this system has no /proc to look into")
    assert b"--auth" in listed.read_bytes()
    assert PASSWORD.encode() not in listed.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--auth", "ada:engine"], "--auth names no file"),
        (["--root-path", "dino"], "--root-path"),
        (["--root-path", "/lab"], "--root-path"),
        (["--max-upload-mb", "0"], "--max-upload-mb"),
        (["--max-waiting", "-1"], "--max-waiting"),
    ],
)
def test_wrong_options_end_in_one_sentence(arguments, message):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert str(end.value).startswith("error: ")
    assert message in str(end.value)
    assert "engine" not in str(end.value)  # what may be a password is not repeated


def test_empty_file_of_users_is_refused(tmp_path):
    (tmp_path / "users").write_text("\n")
    with pytest.raises(SystemExit, match="empty"):
        main(["--auth", str(tmp_path / "users")])
