"""Files that the server writes of a view: figures, animations, and what it refuses."""

import base64
import io

import av
import numpy as np
import pytest
from PIL import Image

from app.handlers.exports import Animation, Figure, export_file
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
        {"scale": "other"},
        {"token": 5},
        {"token": "guessed"},
        {"shape": [3, 4, 7]},
        {"maps": "!"},
        {"maps": base64.b64encode(np.full((3, 4, 6), np.nan, "<f4").tobytes()).decode()},
    ],
)
def test_invalid_request_is_refused_in_a_sentence(backend, request_, change):
    with pytest.raises(LabError, match=r"\.$"):
        export_file(backend, request_ | change)


@pytest.mark.parametrize(
    ("field", "accepted", "refused"),
    [
        ("label", "x" * 100, "x" * 101),
        ("caption", "x" * 600, "x" * 601),
        ("shape", [1, 1, 1], [0, 1, 1]),
        ("shape", [1, 1, 1], [1, 1]),
        ("place", [0.0, 1.0], [-0.1, 1.0]),
        ("place", [0, 1], [0, 1, 1]),
    ],
)
def test_fields_of_a_figure_are_accepted_up_to_the_ends_of_their_ranges(request_, field, accepted, refused):
    assert getattr(Figure.of(request_ | {field: accepted}), field) == accepted
    with pytest.raises(LabError, match=f"Invalid {field}"):
        Figure.of(request_ | {field: refused})


def test_animation_has_up_to_96_frames_of_a_fiftieth_second_to_five():
    wanted = {"file": "animation.gif", "name": "x", "frames": [""], "seconds": 1}
    for field, accepted, refused in (
        ("frames", [""] * 96, [""] * 97),
        ("frames", [""], []),
        ("seconds", 0.02, 0.019),
        ("seconds", 5, 5.1),
    ):
        assert getattr(Animation.of(wanted | {field: accepted}), field) == accepted
        with pytest.raises(LabError, match=f"Invalid {field}"):
            Animation.of(wanted | {field: refused})


def test_figure_has_up_to_64_heads_and_the_patches_of_the_limits(backend, request_, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "app.handlers.exports.figures.map_figure", lambda *given, **how: drawn.append((given, how))
    )
    monkeypatch.setattr("app.handlers.exports.figures.figure_bytes", lambda *_: b"")
    for shape, accepted in (
        ((64, 1, 1), True),
        ((65, 1, 1), False),
        ((1, 30, 40), True),
        ((1, 1201, 1), False),
    ):
        maps = base64.b64encode(bytes(4 * int(np.prod(shape)))).decode()
        request = request_ | {"shape": list(shape), "maps": maps}
        if accepted:
            export_file(backend, request)
            (image, found), how = drawn[-1]
            assert found.shape == shape
            assert how["point"] == (0.25 * image.shape[0], 0.5 * image.shape[1])
        else:
            with pytest.raises(LabError, match="no maps of a model"):
                export_file(backend, request)


@pytest.mark.parametrize("request_", [None, {}, []])
def test_request_of_nothing_is_refused(backend, request_):
    with pytest.raises(LabError, match="Nothing is shown yet"):
        export_file(backend, request_)
