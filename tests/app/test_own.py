"""What the script of a rail asks the server for: files are kept in memory, looked up, and deleted."""

import asyncio
import base64
import threading

import gradio as gr
import numpy as np
import pytest

from app.handlers.own import answer_refusals, own_functions
from app.limits import bounds
from app.limits.fairness import Canceled, in_thread
from app.store.engine import encode
from app.store.images import png
from app.values import jpeg
from tests.app.conftest import MODEL, run, write_video

NOBODY = gr.Request()


@pytest.fixture
def server(backend, tmp_path, monkeypatch):
    """The functions by name, and the folder of uploads as `server["folder"]`."""
    monkeypatch.setenv(bounds.VARIABLE, str(tmp_path))
    functions = {one.__name__: answer_refusals(one) for one in own_functions(backend)}
    return {name: lambda sent, one=one: run(one(sent, NOBODY)) for name, one in functions.items()}


def test_image_is_kept_in_memory_and_its_file_is_deleted(server, backend, tmp_path, pixels):
    path = tmp_path / "upload.png"
    path.write_bytes(png(255 - pixels))  # not `photo`, which other tests use
    name = server["keep"]({"kind": "image", "path": str(path), "title": "<b>my\ncat.png"})["name"]
    key, title = name.split("/")
    assert title == "<b>my cat.png"
    assert not path.exists()
    np.testing.assert_array_equal(backend.images.read(key), 255 - pixels)
    assert server["holds"]({"kind": "image", "name": name})
    assert server["forget"]({"kind": "image", "name": name}) == {}
    assert not server["holds"]({"kind": "image", "name": name})


def test_clip_is_kept_and_forgotten(server, tmp_path):
    path = write_video(tmp_path / "square.webm", 3)
    name = server["keep"]({"kind": "clip", "path": str(path), "title": "square.webm"})["name"]
    assert name.endswith("/square.webm")
    assert not path.exists()
    assert server["holds"]({"kind": "clip", "name": name})
    server["forget"]({"kind": "clip", "name": name})
    assert not server["holds"]({"kind": "clip", "name": name})


@pytest.mark.parametrize("name", ["keep", "holds", "forget", "frame"])
@pytest.mark.parametrize(
    "sent",
    [
        *(None, 5, [], {}, {"kind": "file", "name": "a", "path": "a", "title": "a"}),
        {
            "kind": "image",
            "name": 5,
            "path": "/etc/passwd",
            "title": "x",
            "image": "x",
            "model": MODEL,
            "block": 1,
        },
        {
            "kind": "image",
            "name": "a",
            "path": "/etc/passwd",
            "title": "x",
            "image": "",
            "model": "no",
            "block": 1,
        },
    ],
)
def test_nonsense_gets_a_sentence(server, name, sent):
    answer = server[name](sent)
    assert answer in (False, {}) or (answer["error"].endswith(".") and "root:" not in answer["error"])


def test_frame_of_the_camera_has_its_arrays_and_is_not_kept(server, backend, pixels):
    image = f"data:image/jpeg;base64,{base64.b64encode(jpeg(pixels)).decode()}"
    value = server["frame"]({"image": image, "model": MODEL, "block": 3})
    assert (value["rows"], value["columns"], value["source"]) == (14, 21, "camera")
    assert list(value["arrays"]) == ["blocks/2"]
    assert "There is no block 99" in server["frame"]({"image": image, "model": MODEL, "block": 99})["error"]


def test_encoding_of_a_client_that_leaves_ends_between_two_blocks(backend, photo):
    predictor, begun, free = backend.models.ready(MODEL), threading.Event(), threading.Event()
    blocks: list[int] = []

    def count(*_: object) -> None:
        blocks.append(1)
        begun.set()
        assert free.wait(10)

    key = backend.prepare(photo, MODEL, 80)[0]
    hooks = [block.register_forward_pre_hook(count) for block in predictor.model.backbone.blocks]

    async def leave() -> None:
        work = asyncio.ensure_future(
            in_thread(encode, key, predictor, backend.images.read(photo), backend.limits)
        )
        await in_thread(begun.wait)
        work.cancel()
        await asyncio.sleep(0.05)
        free.set()
        with pytest.raises((asyncio.CancelledError, Canceled)):
            await work

    try:
        run(leave())
    finally:
        for hook in hooks:
            hook.remove()
    assert len(blocks) == 1
