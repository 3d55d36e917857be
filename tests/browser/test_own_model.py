"""A model that is typed into the menu of the header: a run of `python -m training pretrain`, and refusals."""

import functools
import http.server
import threading

import pytest

from benchmarks.serving import serving
from dino_model import photographs
from dino_model.models.export import write_transformers
from dino_model.models.load import load_model
from tests.browser.actions import MODEL, message
from tests.browser.conftest import LOCAL, serving_here
from tests.training.runs import pretrain

pytestmark = pytest.mark.slow
NAMES = ("sheep", "owl", "macaw", "kitten")


def choose(page, name: str) -> str:
    """Type a name into the model menu; return the text of the message that follows."""
    box = page.locator("#model input")
    box.click()
    box.fill(name)
    box.press("Enter")
    return message(page)


def test_run_of_the_trainer_opens_without_a_restart(open_page, tmp_path):
    images = tmp_path / "images.txt"
    images.write_text("\n".join(str(photographs.FOLDER / f"{name}.jpg") for name in NAMES))
    run = tmp_path / "run"
    assert pretrain(images, run) == 0
    with serving_here(model=MODEL, size=64) as address:
        page = open_page(address=address)
        assert f"Opened {run}: teacher of run, 2 blocks of 3 heads" in choose(page, str(run))
        page.wait_for_function("viewOf('explore').encoding.blocks === 2")
        assert page.evaluate("viewOf('explore').encoding.value.model") == str(run)
        assert "No file or folder" in choose(page, str(tmp_path / "nothing.pth"))
        assert page.locator("#model input").input_value() == str(run)


class Hub(http.server.SimpleHTTPRequestHandler):
    """The files of a folder at the addresses of the Hugging Face Hub."""

    def translate_path(self, path: str) -> str:
        return super().translate_path(path.replace("/resolve/main/", "/"))


def test_model_of_the_hub_is_downloaded_and_opened(open_page, tmp_path):
    repository = tmp_path / "hub" / "me" / "tiny"
    write_transformers(load_model("random:vit_tiny/16"), repository)
    handler = functools.partial(Hub, directory=str(tmp_path / "hub"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hub = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "DINO_CACHE": str(tmp_path / "cache")}
        with serving("--port", "0", "--size", "64", env=LOCAL | hub) as served:
            page = open_page(address=f"{served.address}/")
            assert "Opened hf:me/tiny" in choose(page, "hf:me/tiny")
            page.wait_for_function("viewOf('explore').encoding.value.model === 'hf:me/tiny'")
        server.shutdown()
    assert (tmp_path / "cache" / "hf" / "me" / "tiny" / "model.safetensors").is_file()
