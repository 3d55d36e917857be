"""Shared by the tests of weights: an empty cache, and no network."""

from pathlib import Path

import huggingface_hub
import pytest


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, where whoever asks the network ends in an OSError."""
    monkeypatch.setenv("DINO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: None)

    def refuse(*_: object) -> None:
        raise OSError("no network in tests")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    return tmp_path / "cache"
