"""Files that the server writes of a view: a ZIP of images, animations, and what it refuses."""

import base64
import io
import zipfile

import av
import numpy as np
import pytest
from PIL import Image

from app.handlers.attention_maps import attention
from app.handlers.exports import export_file
from app.limits.errors import LabError
from app.store.images import png
from app.values import jpeg
from tests.app.conftest import run


def export(backend, request: object) -> tuple[list[tuple[int, int]], str, bytes]:
    """Return the reports of progress, and name and content of the file."""
    reports: list[tuple[int, int]] = []

    async def collect() -> tuple[str, bytes]:
        results = export_file(backend, request, "client", lambda *done: reports.append(done))
        return [result async for result in results][-1]

    return reports, *run(collect())


@pytest.fixture
def request_(encoding) -> dict:
    return {
        "token": encoding.key.token,
        "block": 11,
        "mass": 0.5,
        "query": "1,2",
        "show": "mean",
        "name": "x",
    }


def test_zip_has_maps_and_masks_of_the_shown_patch_and_names_what_is_left_out(
    backend, photo, encoding, request_
):
    ribbon = backend.images.keep(png(np.random.default_rng(0).integers(0, 255, (10, 6000, 3), np.uint8)))
    images = [f"{photo}/my cat.jpg", f"{ribbon}/ribbon.png", "forgotten/x.png"]
    reports, name, content = export(backend, request_ | {"file": "maps.zip", "images": images})
    assert name == "x-maps.zip"
    archive = zipfile.ZipFile(io.BytesIO(content))
    assert archive.namelist() == ["01-my-cat-maps.npz", "01-my-cat-mask.png", "left-out.txt"]
    first, second = archive.read("left-out.txt").decode().splitlines()
    assert first.startswith("ribbon.png: At resolution 64 an image of 6000 × 10")
    assert second.startswith("x.png: ")
    found = np.load(io.BytesIO(archive.read("01-my-cat-maps.npz")))["maps"]
    np.testing.assert_array_equal(found, attention(encoding, 11, (1, 2)))
    assert reports == [(0, 3), (1, 3), (2, 3)]
    _, _, content = export(backend, request_ | {"file": "maps.zip", "images": images[:1], "examples": True})
    assert len(zipfile.ZipFile(io.BytesIO(content)).namelist()) == 2 * (1 + 8)


@pytest.mark.parametrize("kind", ["gif", "mp4"])
def test_animation_has_the_frames_of_the_browser(backend, request_, kind):
    frames = [jpeg(np.full((48, 65, 3), level, np.uint8)) for level in (20, 120, 220)]
    sent = [f"data:image/jpeg;base64,{base64.b64encode(frame).decode()}" for frame in frames]
    wanted = {"file": f"animation.{kind}", "frames": sent, "seconds": 0.5}
    _, name, content = export(backend, request_ | wanted)
    assert name == f"x-animation.{kind}"
    if kind == "gif":
        image = Image.open(io.BytesIO(content))
        found = []
        for number in range(image.n_frames):
            image.seek(number)
            assert image.info["duration"] == 500
            found.append(np.array(image.convert("RGB")).mean())
    else:
        with av.open(io.BytesIO(content)) as video:
            found = [frame.to_ndarray(format="rgb24").mean() for frame in video.decode(video=0)]
    assert found == pytest.approx([20, 120, 220], abs=4)


@pytest.mark.parametrize(
    "change",
    [
        {"file": "../../etc/passwd"},
        {"file": "maps.zip"},
        {"file": "animation.gif"},
        {"file": "animation.gif", "frames": ["data:image/jpeg;base64,AAAA"]},
        {"file": "animation.mp4", "frames": [""] * 97},
        {"file": "figure.png", "scale": "other"},
        {"file": "figure.png", "token": 5},
    ],
)
def test_invalid_request_is_refused_in_a_sentence(backend, request_, change):
    with pytest.raises(LabError, match=r"\.$"):
        export(backend, request_ | change)


@pytest.mark.parametrize("request_", [None, {}, []])
def test_request_of_nothing_is_refused(backend, request_):
    with pytest.raises(LabError, match="Nothing is shown yet"):
        export(backend, request_)
