"""How models come to be in memory: downloads that hang, break off or are unwanted, and weights in bounds."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from anyio.from_thread import BlockingPortal

from app import models as models_module
from app.errors import Busy, LabError, NotHere
from app.lab import Lab
from app.limits import Limits
from app.models import Models
from dino_model.backbones import BackboneConfig, create_backbone
from dino_model.download import DownloadError

MODEL = "random:vit_tiny/16"
SIZE = 4_000_000  # bytes of the file that is served


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Where the paper's models are fetched from: half of a file comes, the rest when `go` is set."""
    go, asked = threading.Event(), []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(SIZE))
            self.end_headers()
            try:
                self.wfile.write(bytes(SIZE // 2))
                go.wait(20)
                self.wfile.write(bytes(SIZE // 2))
            except OSError:
                asked.append("left")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        monkeypatch.setenv("DINO_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr("dino_model.weights.OFFICIAL_ADDRESS", f"http://127.0.0.1:{http.server_port}")
        yield SimpleNamespace(go=go, asked=asked, cache=tmp_path / "cache")
        go.set()
        http.shutdown()
        thread.join()


async def until(condition) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came so")


def _lab(**options: object) -> Lab:
    return Lab(Models(MODEL, **options), Limits(), 64, precision="fp32", device="cpu")


def test_download_that_hangs_holds_up_nobody_else(far, portal: BlockingPortal):
    lab, heard = _lab(), []

    async def two_visitors() -> None:
        hanging = asyncio.ensure_future(lab.engine.encode("kitten", "dino_vits16", 64, tell=heard.append))
        await until(lambda: heard and heard[-1].get("done", 0) >= SIZE // 2)
        encoding = await asyncio.wait_for(lab.engine.encode("kitten", MODEL, 64), 30)
        assert encoding.key.model == MODEL
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging

    portal.call(two_visitors)
    assert heard[-1] == {"state": "downloading", "model": "dino_vits16", "done": SIZE // 2, "total": SIZE}


def test_two_who_want_one_model_share_its_download_and_the_last_who_leaves_ends_it(
    far, portal: BlockingPortal
):
    models = Models(MODEL)

    async def two_visitors() -> None:
        heard: list[list[dict]] = [[], []]
        one, other = (asyncio.ensure_future(models.ready("dino_vits16", each.append)) for each in heard)
        await until(lambda: all(each and each[-1]["done"] >= SIZE // 2 for each in heard))
        one.cancel()
        await asyncio.sleep(0.6)
        assert not models._running["dino_vits16"].unwanted
        other.cancel()
        await until(lambda: models._running["dino_vits16"].unwanted)
        far.go.set()
        await until(models._running["dino_vits16"].ended.is_set)

    portal.call(two_visitors)
    assert len([path for path in far.asked if path != "left"]) == 1
    assert list(far.cache.iterdir()) == [], "nothing half-written stays"


def test_who_comes_after_an_unwanted_download_gets_a_new_one(far, portal: BlockingPortal):
    models = Models(MODEL)

    async def leave_and_come() -> None:
        heard: list[dict] = []
        leaving = asyncio.ensure_future(models.ready("dino_vits16", heard.append))
        await until(lambda: heard and heard[-1]["done"])
        leaving.cancel()
        await until(leaving.done)
        far.go.set()
        with pytest.raises(Busy, match="could not be downloaded"):  # all of it comes, and is no checkpoint
            await models.ready("dino_vits16", heard.append)

    portal.call(leave_and_come)
    assert len([path for path in far.asked if path != "left"]) == 2


def test_failed_download_is_told_without_an_address(monkeypatch, tmp_path, portal: BlockingPortal, capsys):
    monkeypatch.setenv("DINO_CACHE", str(tmp_path))
    monkeypatch.setattr("dino_model.weights.OFFICIAL_ADDRESS", "http://127.0.0.1:9")
    with pytest.raises(Busy, match=r"^dino_vits8 is not on this machine and could not be downloaded") as told:
        portal.call(Models(MODEL).ready, "dino_vits8")
    assert "/" not in str(told.value)
    assert str(tmp_path) in capsys.readouterr().err  # the terminal says where to put the file


def test_too_many_downloads_at_once_are_refused(far, portal: BlockingPortal, monkeypatch):
    monkeypatch.setattr(models_module, "DOWNLOADS_AT_ONCE", 1)
    models = Models(MODEL)

    async def two_models() -> None:
        heard: list[dict] = []
        first = asyncio.ensure_future(models.ready("dino_vits16", heard.append))
        await until(lambda: heard)
        with pytest.raises(Busy, match="Other models are being downloaded"):
            await models.ready("dino_vits8")
        first.cancel()

    portal.call(two_models)


def test_without_downloads_only_what_is_here_is_offered(tmp_path, monkeypatch):
    monkeypatch.setenv("DINO_CACHE", str(tmp_path))
    models = Models(MODEL, downloads=False)
    assert "dino_vits16" not in models.offered()
    assert {MODEL, "embedded", "random:embedded"} <= set(models.offered())
    with pytest.raises(NotHere):
        models.source("dino_vits16")
    with pytest.raises(DownloadError, match="--no-downloads"):
        Models("dino_vits16", downloads=False).load("dino_vits16")


def test_weights_are_bounded_by_their_bytes_and_take_their_encodings_along(encode):
    limits = Limits(max_weights_mb=25)
    lab = Lab(Models(MODEL, limits=limits), limits, 64, precision="fp32", device="cpu")
    first = encode("kitten", MODEL, 64, by=lab)  # 22 MB of weights
    assert encode("kitten", MODEL, 64, by=lab) is first
    encode("kitten", "random:embedded", 64, by=lab)
    assert lab.models._weights._weight <= 25_000_000
    assert lab.engine._looks.get(first.key) is None, "an encoding would hold the weights that were let go"
    again = encode("kitten", MODEL, 64, by=lab)
    assert (again.queries_keys(3)[0] == first.queries_keys(3)[0]).all()


# --- a folder that grows while the page is up


def save_weights(path: Path, seed: int) -> None:
    torch.manual_seed(seed)
    backbone = create_backbone(BackboneConfig("vit_tiny", patch_size=16, image_size=64, depth=2))
    torch.save(backbone.state_dict(), path)


def test_models_made_while_the_page_is_up_are_offered(tmp_path, monkeypatch):
    monkeypatch.setattr(models_module, "LIST_FRESH", 0)
    models = Models(MODEL, tmp_path)
    assert "later.pth" not in models.offered()
    save_weights(tmp_path / "later.pth", 0)
    assert "later.pth" in models.offered()
    assert models.source("later.pth").place == str(tmp_path / "later.pth")


def test_file_written_anew_is_another_model_and_old_tokens_say_so(tmp_path, encode, portal: BlockingPortal):
    save_weights(tmp_path / "mine.pth", 0)
    lab = _lab(folder=tmp_path)
    before = encode("kitten", "mine.pth", 64, by=lab)
    save_weights(tmp_path / "mine.pth", 1)
    with pytest.raises(NotHere, match="trained on meanwhile") as told:
        portal.call(lab.engine.encoding, before.key.token)
    assert told.value.unknown == "token"
    after = encode("kitten", "mine.pth", 64, by=lab)
    assert after.key.token != before.key.token
    assert (after.queries_keys(0)[0] != before.queries_keys(0)[0]).any()


def test_weights_that_do_not_load_are_one_sentence_without_a_path(tmp_path, portal: BlockingPortal, capsys):
    (tmp_path / "broken.pth").write_bytes(b"nothing")
    with pytest.raises(
        LabError, match=r"^The weights of broken\.pth cannot be loaded: choose another model\.$"
    ):
        portal.call(Models(MODEL, tmp_path).ready, "broken.pth")
    assert str(tmp_path) in capsys.readouterr().err
