"""Models on offer, downloads that hang, break off or are unwanted, and weights in bounded memory."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from app import models as models_module
from app.errors import Busy, LabError, NotHere
from app.limits import Limits
from app.models import Models, catalogue
from dino_model.backbones import BackboneConfig, create_backbone
from dino_model.download import DownloadError
from tests.app.conftest import MODEL, small_lab

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
        monkeypatch.setattr("dino_model.published.OFFICIAL_ADDRESS", f"http://127.0.0.1:{http.server_port}")
        yield SimpleNamespace(go=go, asked=asked, cache=tmp_path / "cache")
        go.set()
        http.shutdown()
        thread.join()


def until(condition) -> None:
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came so")


def test_hanging_download_blocks_no_other_model_and_reports_its_share(far, monkeypatch):
    lab, heard = small_lab(), []
    progress = lambda share, desc=None: heard.append((share, desc))  # noqa: E731
    monkeypatch.setattr(models_module.gr, "Progress", lambda: progress)
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(lab.encode, "kitten", "dino_vits16", 64)
        until(lambda: (0.5, "Downloading dino_vits16, 2 MB") in heard)
        assert lab.encode("kitten", MODEL, 64).key.model == MODEL
        far.go.set()
        with pytest.raises(Busy, match="could not be downloaded"):  # all of it comes, and is no checkpoint
            hanging.result(60)
    assert list(far.cache.iterdir()) == [], "nothing half-written stays"


def test_two_requests_for_one_model_share_its_download(far, monkeypatch):
    for module in ("published._read_backbone", "weights.read_backbone"):  # accept the zeros that come
        monkeypatch.setattr(f"dino_model.{module}", lambda path: None)
    models = Models(MODEL)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(models.ready, "dino_vits16") for _ in range(2)]
        until(lambda: far.asked)
        far.go.set()
        assert all("cannot be loaded" in str(one.exception(60)) for one in both)
    assert len(far.asked) == 1


def test_failed_download_is_told_without_an_address(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("DINO_CACHE", str(tmp_path))
    monkeypatch.setattr("dino_model.published.OFFICIAL_ADDRESS", "http://127.0.0.1:9")
    with pytest.raises(Busy, match=r"^dino_vits8 is not on this machine and could not be downloaded") as told:
        Models(MODEL).ready("dino_vits8")
    assert "/" not in str(told.value)
    assert str(tmp_path) in capsys.readouterr().err  # the terminal says where to put the file


def test_too_many_downloads_at_once_are_refused(far, monkeypatch):
    monkeypatch.setattr(models_module, "DOWNLOADS_AT_ONCE", 1)
    models = Models(MODEL)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(models.ready, "dino_vits16")
        until(lambda: far.asked)
        with pytest.raises(Busy, match="Other models are being downloaded"):
            models.ready("dino_vits8")
        far.go.set()
        first.exception(60)


def test_without_downloads_only_what_is_here_is_offered(tmp_path, monkeypatch):
    monkeypatch.setenv("DINO_CACHE", str(tmp_path))
    models = Models(MODEL, downloads=False)
    assert "dino_vits16" not in models.offered()
    with pytest.raises(NotHere):
        models.source("dino_vits16")
    with pytest.raises(DownloadError, match="--no-downloads"):
        Models("dino_vits16", downloads=False).load_first()


def test_weights_are_bounded_by_their_bytes_and_take_their_encodings_along(encode):
    lab = small_lab(limits=Limits(max_weights_mb=25))
    first = encode("kitten", MODEL, 64, by=lab)  # 22 MB of weights
    assert encode("kitten", MODEL, 64, by=lab) is first
    encode("kitten", "random:embedded", 64, by=lab)
    assert lab.models._predictors._weight <= 25_000_000
    assert lab._encodings.get(first.key) is None, "an encoding would hold the weights that were let go"
    again = encode("kitten", MODEL, 64, by=lab)
    assert (again.queries_keys(3)[0] == first.queries_keys(3)[0]).all()


# --- a folder that grows while the page is up


def save_weights(path: Path, seed: int) -> None:
    torch.manual_seed(seed)
    backbone = create_backbone(BackboneConfig("vit_tiny", patch_size=16, image_size=64, depth=2))
    torch.save(backbone.state_dict(), path)


def test_file_written_anew_is_another_model_and_old_tokens_say_so(tmp_path, encode):
    save_weights(tmp_path / "mine.pth", 0)
    lab = small_lab(folder=tmp_path)
    before = encode("kitten", "mine.pth", 64, by=lab)
    save_weights(tmp_path / "mine.pth", 1)
    with pytest.raises(NotHere, match="trained on meanwhile"):
        lab.encoding(before.key.token)
    after = encode("kitten", "mine.pth", 64, by=lab)
    assert after.key.token != before.key.token
    assert (after.queries_keys(0)[0] != before.queries_keys(0)[0]).any()


def test_weights_that_do_not_load_are_one_sentence_without_a_path(tmp_path, capsys):
    (tmp_path / "broken.pth").write_bytes(b"nothing")
    with pytest.raises(
        LabError, match=r"^The weights of broken\.pth cannot be loaded: choose another model\.$"
    ):
        Models(MODEL, tmp_path).ready("broken.pth")
    assert str(tmp_path) in capsys.readouterr().err


# --- the list


def test_first_model_comes_first_by_name_and_models_without_attention_are_left_out(tmp_path):
    (tmp_path / "mine.pth").touch()
    name, choice = next(iter(catalogue(str(tmp_path / "mine.pth")).items()))
    assert (name, choice.source) == ("mine.pth", str(tmp_path / "mine.pth")), "the path stays on the server"
    assert list(catalogue("random:vit_tiny/16"))[:2] == ["random:vit_tiny/16", "embedded"]
    assert "dino_vits16" in catalogue("random:embedded")
    assert "dino_resnet50" not in catalogue()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        catalogue("embedded", tmp_path / "nowhere")


def test_folder_offers_checkpoints_runs_and_their_steps_by_name_only(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "run").mkdir()
    for file in ("log.jsonl", "checkpoint.pt", "step-00000500.pt", "step-00001000.pt", "step-of-mine.pt"):
        (tmp_path / "run" / file).touch()
    for file in ("mine.safetensors", "notes.txt"):
        (tmp_path / file).touch()
    models = catalogue("embedded", tmp_path)
    offered = {name: choice for name, choice in models.items() if str(tmp_path) in choice.source}
    assert {name: Path(choice.source).name for name, choice in offered.items()} == {
        "mine.safetensors": "mine.safetensors",
        "run": "run",
        "run@500": "step-00000500.pt",
        "run@1000": "step-00001000.pt",
    }
    assert models["run@1000"].label == "run · step 1,000"
    assert not any(str(tmp_path) in name + choice.label for name, choice in models.items())


def test_weights_on_this_machine_are_not_announced_as_downloads(tmp_path, monkeypatch):
    monkeypatch.setenv("DINO_CACHE", str(tmp_path))
    assert "downloads when chosen" in catalogue()["dino_vits16"].label
    (tmp_path / "dino_deitsmall16_pretrain.pth").touch()
    assert "downloads" not in catalogue()["dino_vits16"].label
    assert "downloads when chosen" in catalogue()["dino_vits8"].label
