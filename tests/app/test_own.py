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


@pytest.mark.parametrize("kind", ["image", "clip"])
def test_file_is_kept_in_memory_then_deleted_from_disk_and_by_remove(server, backend, tmp_path, pixels, kind):
    if kind == "clip":
        path = write_video(tmp_path / "mine.webm", 3)
    else:
        path = tmp_path / "mine.png"
        path.write_bytes(png(255 - pixels))  # not `photo`, which other tests use
    name = server["keep"]({"kind": kind, "path": str(path), "title": "<b>my\nown"})["name"]
    key, title = name.split("/")
    assert title == "<b>my own"
    assert not path.exists()
    if kind == "image":
        np.testing.assert_array_equal(backend.images.read(key), 255 - pixels)
    assert server["holds"]({"kind": kind, "name": name})
    assert server["forget"]({"kind": kind, "name": name}) == {}
    assert not server["holds"]({"kind": kind, "name": name})


@pytest.mark.parametrize("name", ["keep", "holds", "forget", "frame"])
def test_nonsense_gets_a_sentence(server, name):
    fields = {"kind": "image", "name": "a", "path": "/etc/passwd", "title": "x", "image": "x", "block": 1}
    for sent in (None, 5, [], {}, fields | {"kind": "file"}, fields | {"name": 5, "model": MODEL}, fields):
        answer = server[name](sent)
        assert answer in (False, {}) or (answer["error"].endswith(".") and "root:" not in answer["error"])


def test_frame_of_the_camera_has_its_arrays_and_is_not_kept(server, backend, pixels):
    image = f"data:image/jpeg;base64,{base64.b64encode(jpeg(pixels)).decode()}"
    value = server["frame"]({"image": image, "model": MODEL, "block": 3})
    assert (value["rows"], value["columns"], value["source"]) == (14, 21, "camera")
    assert list(value["arrays"]) == ["blocks/2"]
    for block in (0, 13):
        refusal = server["frame"]({"image": image, "model": MODEL, "block": block})["error"]
        assert f"There is no block {block}: this model has 12" in refusal
    last = server["frame"]({"image": image, "model": MODEL, "block": 12})
    assert list(last["arrays"]) == ["blocks/11"]


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
