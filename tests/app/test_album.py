"""The ZIP with maps and masks of all images of the strip."""

import io
import zipfile

import gradio as gr
import numpy as np
import pytest

from app.album import album_zip
from app.attention_maps import attention
from app.errors import LabError
from app.images import png
from tests.app.conftest import run


def export(page, request: object) -> tuple[list[tuple[int, int]], zipfile.ZipFile]:
    """Progress, and the ZIP."""
    reports: list[tuple[int, int]] = []

    async def collect() -> bytes:
        results = album_zip(page, request, gr.Request(session_hash="a"), lambda *done: reports.append(done))
        return [content async for content in results][-1]

    return reports, zipfile.ZipFile(io.BytesIO(run(collect())))


def test_zip_has_maps_and_masks_of_every_image_and_names_those_left_out(page, photo, encoding, capsys):
    ribbon = page.backend.images.keep(png(np.random.default_rng(0).integers(0, 255, (10, 6000, 3), np.uint8)))
    album = f"{photo}/my cat.jpg\n{ribbon}/ribbon.png\nforgotten/x.png\nkitten"
    request = {
        "token": encoding.key.token,
        "album": album,
        "block": 11,
        "mass": 0.5,
        "query": "1,2",
        "name": "x",
    }
    reports, archive = export(page, request)
    names = [f"01-my-cat-{file}" for file in ("maps.npz", "mask.png")]
    names += [f"03-kitten-{file}" for file in ("maps.npz", "mask.png")]
    assert archive.namelist() == [*names, "left-out.txt"]
    assert (
        archive.read("left-out.txt").decode().startswith("ribbon.png: At resolution 64 an image of 6000 × 10")
    )
    np.testing.assert_array_equal(np.load(io.BytesIO(archive.read(names[0])))["maps"], attention(encoding))
    assert reports == [(0, 3), (1, 3), (2, 3)]


@pytest.mark.parametrize(
    "request_", [None, {}, {"token": 5, "album": ""}, {"token": "a", "album": "", "block": 0}]
)
def test_request_of_nothing_is_refused(page, request_):
    with pytest.raises(LabError):
        export(page, request_)
