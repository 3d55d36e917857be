"""Files that the server writes of a view: figures, animations, and what it refuses."""

import base64
import io

import av
import numpy as np
import pytest
from PIL import Image

from app.handlers.exports import export_file
from app.limits.errors import LabError
from app.values import jpeg


@pytest.fixture
def request_(encoding) -> dict:
    """A figure of three heads, as the browser sends it."""
    maps = np.random.default_rng(0).random((3, 4, 6), np.float32)
    return {
        "file": "figure.png",
        "token": encoding.key.token,
        "name": "my x.jpg",
        "maps": base64.b64encode(maps.tobytes()).decode(),
        "shape": [3, 4, 6],
        "label": "q",
        "caption": "c",
        "place": [0.5, 0.25],
    }


def test_figure_is_for_print_and_draws_the_maps_that_were_sent(backend, request_):
    name, content = export_file(backend, request_)
    drawn = Image.open(io.BytesIO(content))
    assert (name, drawn.width, round(drawn.info["dpi"][0])) == ("my-x-figure.png", 2100, 300)
    assert export_file(backend, request_ | {"file": "figure.pdf"})[1].startswith(b"%PDF")
    other = base64.b64encode(np.ones((3, 4, 6), "<f4").tobytes()).decode()
    changes = ({"maps": other}, {"scale": "own"}, {"place": None}, {"caption": "d"})
    assert all(export_file(backend, request_ | change)[1] != content for change in changes)


@pytest.mark.parametrize("kind", ["gif", "mp4"])
def test_animation_has_the_frames_of_the_browser(backend, kind):
    frames = [jpeg(np.full((48, 65, 3), level, np.uint8)) for level in (20, 120, 220)]
    sent = [f"data:image/jpeg;base64,{base64.b64encode(frame).decode()}" for frame in frames]
    wanted = {"file": f"animation.{kind}", "name": "x", "frames": sent, "seconds": 2.01}
    name, content = export_file(backend, wanted)
    assert name == f"x-animation.{kind}"
    if kind == "gif":
        image = Image.open(io.BytesIO(content))
        found = []
        for number in range(image.n_frames):
            image.seek(number)
            assert image.info["duration"] == 2010
            found.append(np.array(image.convert("RGB")).mean())
    else:
        with av.open(io.BytesIO(content)) as video:
            assert float(video.streams.video[0].average_rate) == pytest.approx(1 / 2.01, rel=1e-3)
            found = [frame.to_ndarray(format="rgb24").mean() for frame in video.decode(video=0)]
    assert found == pytest.approx([20, 120, 220], abs=4)


@pytest.mark.parametrize(
    "change",
    [
        {"file": "../../etc/passwd"},
        {"file": "animation.gif"},
        {"file": "animation.gif", "frames": ["data:image/jpeg;base64,AAAA"], "seconds": 0.5},
        {"file": "animation.mp4", "frames": [""] * 97, "seconds": 0.5},
        {"scale": "other"},
        {"token": 5},
        {"token": "guessed"},
        {"shape": [3, 4, 7]},
        {"shape": [-1, 4, 6]},
        {"shape": [72, 1, 1]},
        {"maps": "!"},
        {"maps": base64.b64encode(np.full((3, 4, 6), np.nan, "<f4").tobytes()).decode()},
        {"place": [0.5, 1.5]},
        {"place": [0.5]},
    ],
)
def test_invalid_request_is_refused_in_a_sentence(backend, request_, change):
    with pytest.raises(LabError, match=r"\.$"):
        export_file(backend, request_ | change)


@pytest.mark.parametrize("request_", [None, {}, []])
def test_request_of_nothing_is_refused(backend, request_):
    with pytest.raises(LabError, match="Nothing is shown yet"):
        export_file(backend, request_)
