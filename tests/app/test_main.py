"""The options of `python -m app`."""

import os
import socket
import sys
from collections.abc import Iterator
from unittest.mock import MagicMock, Mock, patch

import pytest

from app.__main__ import Serve, free_port, main, share_heap

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Restore the environment, into which `main` writes."""
    with patch.dict(os.environ):
        yield


@pytest.mark.skipif(sys.platform != "linux", reason="other systems answer at 127.0.0.1 alone")
@pytest.mark.parametrize(
    ("host", "users", "warned"),
    [("127.0.0.2", "", True), ("127.0.0.2", "ada:engine", False), ("127.0.0.1", "", False)],
)
def test_host_without_password_prints_a_warning(monkeypatch, capsys, host, users, warned):
    monkeypatch.setenv("DINO_LAB_AUTH", users)
    monkeypatch.setattr(Serve, "launch_blocks", Mock())
    waiting = Mock(**{"Event.return_value.wait.side_effect": KeyboardInterrupt})
    monkeypatch.setattr("app.__main__.threading", waiting)
    monkeypatch.setattr("app.limits.bounds.temporary_folder", kept := MagicMock())
    with pytest.raises(KeyboardInterrupt):
        Serve(host=host, port=0).run()
    kept.assert_called_once_with(10**9)  # 1,000 MB
    assert (f"{host} can be reached without a password: --auth FILE" in capsys.readouterr().err) == warned


def test_ctrl_c_ends_with_code_130(monkeypatch):
    monkeypatch.setattr(Serve, "run", Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr("app.__main__.os._exit", Mock(side_effect=SystemExit))
    with pytest.raises(SystemExit):
        main([])
    os._exit.assert_called_once_with(130)


@pytest.mark.parametrize(
    ("option", "named", "values"),
    [
        ("--auth", "--auth names no file", ["ada:engine"]),
        ("--root-path", "--root-path", ["dino", "/../x", "/a//b", "http://a"]),
        ("--max-upload-mb", "--max-upload-mb", ["0"]),
        ("--host", "--allowed-hosts", ["0.0.0.0", "::", ""]),
        ("--frame-ancestors", "--frame-ancestors", ["a.example", "javascript:a", "https://a;b *"]),
        ("--proxies", "--proxies", ["nginx", "10.0.0.0/99"]),
        ("--port", "--port", ["65536", "-1"]),
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


def test_a_hundred_ports_are_tried_up_to_the_last(monkeypatch):
    """7860 is the port of docs/api.md; 65535 is the last one of TCP."""
    assert (Serve().port, Serve().size) == (7860, 224)
    monkeypatch.setattr(socket, "create_server", Mock(side_effect=OSError))
    for port, last in ((7860, 7959), (65500, 65535), (65535, 65535)):
        with pytest.raises(OSError, match=f"no free port from {port} to {last} on"):
            free_port("localhost", port)


def test_heap_is_shared_by_the_number_of_glibc(monkeypatch):
    library = Mock()
    monkeypatch.setattr("app.__main__.ctypes.CDLL", lambda _: library)
    share_heap()
    library.mallopt.assert_called_once_with(-8, 1)  # M_ARENA_MAX of malloc.h
