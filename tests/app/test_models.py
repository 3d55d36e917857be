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

from app.limits.bounds import Limits
from app.limits.errors import Busy, LabError, NotHere
from app.store import models as models_module
from app.store.models import Models, catalogue
from dino_model.models.backbones import BackboneConfig, create_backbone
from dino_model.runtime.download import DownloadError
from tests.app.conftest import MODEL, save_milestone, small_backend, write_run

SIZE = 4_000_000  # bytes of the file that is served


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A server of the paper's models: half of a file comes, the rest when `go` is set."""
    go, requests = threading.Event(), []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(SIZE))
            self.end_headers()
            self.wfile.write(bytes(SIZE // 2))
            go.wait(20)
            self.wfile.write(bytes(SIZE // 2))

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        monkeypatch.setenv("DINO_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(
            "dino_model.models.catalogue.OFFICIAL_ADDRESS", f"http://127.0.0.1:{http.server_port}"
        )
        yield SimpleNamespace(go=go, requests=requests, cache=tmp_path / "cache")
        go.set()
        http.shutdown()
        thread.join()


def until(condition) -> None:
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("the condition stayed false")


def test_hanging_download_blocks_no_other_model_and_reports_its_share(far, monkeypatch):
    backend, reports = small_backend(), []
    progress = lambda share, desc=None: reports.append((share, desc))  # noqa: E731
    monkeypatch.setattr(models_module.gr, "Progress", lambda: progress)
    with ThreadPoolExecutor(4) as pool:
        hanging = pool.submit(backend.encode, "kitten", "dino_vits16", 64)
        for name in ("dino_vitb16", "dino_vitb8", "dino_vits8_300ep"):  # four at once, as docs/api.md says
            pool.submit(backend.models.ready, name)
        until(lambda: len(far.requests) == 4 and (0.5, "Downloading dino_vits16, 2 MB") in reports)
        assert backend.encode("kitten", MODEL, 64).key.model == MODEL
        with pytest.raises(Busy, match="Other models are being downloaded"):
            backend.models.ready("dino_vits8")
        far.go.set()
        with pytest.raises(Busy, match="could not be downloaded"):  # all of it comes, and is no checkpoint
            hanging.result(60)
    assert list(far.cache.iterdir()) == [], "a partial file stays"


def test_two_requests_for_one_model_share_its_download(far, monkeypatch):
    for name in ("catalogue._read", "load.read_backbone"):  # accept the zeros that come
        monkeypatch.setattr(f"dino_model.models.{name}", lambda path: None)
    models = Models(MODEL)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(models.ready, "dino_vits16") for _ in range(2)]
        until(lambda: far.requests)
        far.go.set()
        assert all("cannot be loaded" in str(one.exception(60)) for one in both)
    assert len(far.requests) == 1


def test_failed_download_is_reported_without_an_address(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("DINO_CACHE", str(tmp_path))
    monkeypatch.setattr("dino_model.models.catalogue.OFFICIAL_ADDRESS", "http://127.0.0.1:9")
    with pytest.raises(Busy, match=r"^dino_vits8 is not on this machine and could not be [^/]*$"):
        Models(MODEL).ready("dino_vits8")
    assert str(tmp_path) in capsys.readouterr().err  # the terminal shows where to put the file


def test_without_downloads_only_local_models_are_offered(tmp_path, monkeypatch):
    monkeypatch.setenv("DINO_CACHE", str(tmp_path))
    models = Models(MODEL, downloads=False)
    with pytest.raises(NotHere):
        models.source("dino_vits16")
    with pytest.raises(DownloadError, match="--no-downloads"):
        Models("dino_vits16", downloads=False).load_first()
    assert "downloads when chosen" in catalogue()["dino_vits16"].label
    (tmp_path / "dino_deitsmall16_pretrain.pth").touch()
    assert "downloads" not in catalogue()["dino_vits16"].label
    assert "downloads when chosen" in catalogue()["dino_vits8"].label


def test_weights_are_bounded_by_their_bytes_and_take_their_encodings_along():
    backend = small_backend(limits=Limits(max_weights_mb=25))
    first = backend.encode("kitten", MODEL, 64)  # 22 MB of weights
    assert backend.encode("kitten", MODEL, 64) is first
    backend.encode("kitten", "random:embedded", 64)
    assert backend.models._predictors.weight <= 25_000_000
    assert backend._encodings.get(first.key) is None, "an encoding would hold the forgotten weights"
    again = backend.encode("kitten", MODEL, 64)
    assert (again.queries_keys(3)[0] == first.queries_keys(3)[0]).all()


def test_weights_that_do_not_load_are_one_sentence_without_a_path(tmp_path, capsys):
    (tmp_path / "broken.pth").write_bytes(b"nothing")
    with pytest.raises(LabError, match=r"^The weights of broken\.pth cannot be loaded: [^/]*\.$"):
        Models(MODEL, tmp_path).ready("broken.pth")
    assert str(tmp_path) in capsys.readouterr().err


def test_bare_checkpoint_needs_heads_and_the_first_model_takes_them(tmp_path, capsys):
    config = BackboneConfig("vit_tiny", 16, 64, width=80, depth=1, heads=5)
    torch.save(create_backbone(config).state_dict(), tmp_path / "bare.pth")
    with pytest.raises(
        LabError, match=r"bare\.pth does not say its number of attention heads: its width is 80"
    ):
        small_backend(folder=tmp_path).models.ready("bare.pth")
    models = Models(str(tmp_path / "bare.pth"), heads=5, device="cpu")
    models.load_first()
    assert models.ready("bare.pth").heads == 5


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("nothing.pth", "No file or folder 'nothing.pth'"), ("vit_smal", "Unknown model 'vit_smal'"),
     ("os:getcwd", "does not run own code"), (models_module.OTHER, "Type the path of a checkpoint")],
)  # fmt: skip
def test_name_that_is_no_model_is_refused_where_any_model_may_be_opened(name, sentence):
    with pytest.raises(LabError, match=sentence):
        Models(MODEL, any_model=True).ready(name)


def test_checkpoint_of_this_machine_opens_by_its_path_where_the_host_allows_it(tmp_path):
    file = str(save_milestone(write_run(tmp_path / "run"), 7))
    assert Models(MODEL, any_model=True, device="cpu").ready(file).blocks == 2
    with pytest.raises(NotHere, match="--any-model on"):
        Models(MODEL).ready(file)


def test_first_model_comes_first_by_name_and_models_without_attention_are_left_out(tmp_path):
    (tmp_path / "mine.pth").touch()
    name, choice = next(iter(catalogue(str(tmp_path / "mine.pth")).items()))
    assert (name, choice.source) == ("mine.pth", str(tmp_path / "mine.pth")), "the path stays on the server"
    assert list(catalogue("random:vit_tiny/16"))[:2] == ["random:vit_tiny/16", "embedded"]
    assert "dino_vits16" in catalogue()
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
