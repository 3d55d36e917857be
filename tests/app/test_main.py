"""The options of `python -m app` that stand between it and other machines, in a server of its own."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest

from app.__main__ import main
from benchmarks.serving import Served, serving
from dino_model.threads import PASSIVE_OMP

PASSWORD = "correct-horse"


def _small_page(folder: Path, *options: str) -> AbstractContextManager[Served]:
    """A page of a small untrained model; `folder` takes what it would leave in the system's."""
    model = "--model random:vit_tiny/16 --size 64 --precision fp32 --device cpu --port 0"
    return serving(*model.split(), *options, env={"OMP_NUM_THREADS": "1", "TMPDIR": str(folder)})


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said of threads before a test, and what `main` says does not outlive it."""
    for name in (*PASSIVE_OMP, "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "taken back after the test")
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_DISPLAY_ENV", "verbose")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int, Path]]:
    """Address, process and temporary folder of a server with password, root path and small limits."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "users").write_text(f"ada:{PASSWORD}\n")
    options = f"--auth {folder / 'users'} --root-path /dino --max-upload-mb 1 --no-downloads".split()
    with _small_page(folder, *options) as page:
        yield page.address, page.process.pid, folder
        assert page.process.poll() is None, page.log.read_text()
        with httpx.stream("GET", f"{page.address}/api/facts", auth=("ada", PASSWORD)):  # a page that is open
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


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 on this machine")
def test_page_is_reached_at_an_address_of_the_sixth_version(tmp_path):
    with _small_page(tmp_path, "--host", "::1") as page:
        assert page.address.startswith("http://[::1]:")
        assert httpx.get(page.address).status_code == 200


def test_what_visitors_send_lies_on_no_disk(guarded):
    address, _, folder = guarded
    before = sorted(folder.rglob("*"))
    for kind in ("photos", "clips"):
        httpx.post(f"{address}/api/{kind}", content=b"somebody's", auth=("ada", PASSWORD))
    assert sorted(folder.rglob("*")) == before


def test_password_is_asked_for_page_addresses_and_files(guarded):
    address, _, _ = guarded
    for path in ("/", "/dino/", "/static/x/page.css", "/api/facts", "/api/encodings/x"):
        assert httpx.get(address + path).status_code == 401
        assert httpx.get(address + path, auth=("ada", "wrong")).status_code == 401
        assert httpx.get(address + path, auth=("ada", PASSWORD)).status_code in (200, 404)


def test_page_answers_where_the_proxy_shows_it(guarded):
    address, _, _ = guarded
    for prefix in ("", "/dino"):
        assert httpx.get(f"{address}{prefix}/api/facts", auth=("ada", PASSWORD)).json()["version"]


def test_limits_of_the_options_hold(guarded):
    address, _, _ = guarded
    answer = httpx.post(f"{address}/api/photos", content=bytes(1_000_001), auth=("ada", PASSWORD))
    assert answer.status_code == 413
    told = httpx.get(f"{address}/api/facts", auth=("ada", PASSWORD)).json()
    assert told["limits"]["uploadBytes"] == 1_000_000
    assert not any(model["remote"] for model in told["models"]), "--no-downloads offers none"


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
        (["--root-path", "/api"], "--root-path"),
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


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere PyTorch has another OpenMP")
def test_kinds_of_work_leave_each_other_the_processor(tmp_path):
    with _small_page(tmp_path) as page:
        assert "GOMP_SPINCOUNT = '0'" in page.log.read_text()


def test_numpys_products_take_one_thread():
    with pytest.raises(SystemExit):
        main(["--auth", "ada:engine"])
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
