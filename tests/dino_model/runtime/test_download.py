import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from dino_model.runtime.download import DownloadError, PublishedFile

CONTENT = bytes(range(256)) * 5000


class Handler(BaseHTTPRequestHandler):
    """/whole sends everything, /cut breaks off in the middle, everything else is missing."""

    def do_GET(self) -> None:
        if self.path not in ("/whole", "/cut"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT if self.path == "/whole" else CONTENT[:1000])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    """Address of a server in this process."""
    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DINO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_fetch_twice_downloads_once(server: str, folder: Path, capsys: pytest.CaptureFixture):
    assert PublishedFile(f"{server}/whole", "model.pth", Path.read_bytes).fetch() == folder / "model.pth"
    assert (folder / "model.pth").read_bytes() == CONTENT
    assert "downloading model.pth: 100%" in capsys.readouterr().err
    PublishedFile("http://nowhere.invalid", "model.pth", Path.read_bytes).fetch()
    assert [file.name for file in folder.iterdir()] == ["model.pth"]


@pytest.mark.parametrize(
    ("page", "reason"),
    [("cut", "1,000 of 1,280,000 bytes|IncompleteRead"), ("gone", "HTTP Error 404|Not Found")],
)
def test_fetch_failed_leaves_nothing(server: str, folder: Path, page: str, reason: str):
    with pytest.raises(DownloadError, match=rf"(?s)({reason}).*put it at {folder / 'model.pth'}"):
        PublishedFile(f"{server}/{page}", "model.pth", Path.read_bytes).fetch()
    assert list(folder.iterdir()) == []


def test_fetch_into_folder_that_cannot_be_created_names_reason(folder: Path):
    folder.write_bytes(b"")
    with pytest.raises(DownloadError, match="could not download model"):
        PublishedFile("http://nowhere.invalid", "model.pth", Path.read_bytes).fetch()
