"""The options of `python -m app`."""

import os
import socket
import sys
from collections.abc import Iterator
from unittest.mock import Mock, patch

import pytest

from app.__main__ import Serve, free_port, main

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Restore the environment, into which `main` writes."""
    with patch.dict(os.environ):
        yield


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
        ("--frame-ancestors", "--frame-ancestors", ["a.example", "javascript:a", "https://a;b *"]),
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
