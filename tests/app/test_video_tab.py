"""What the tab Video and its endpoint answer, without a browser."""

import base64
import io
from collections.abc import Iterator

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient
from PIL import Image

from app import clips
from app.api import Api
from app.clips import EXAMPLES, Clip
from app.engine import LabError
from app.following import Held, propagate, shelf_of
from app.limits import Limits
from app.tabs import video
from segmentation.masks import decode, rle

MODEL = "random:vit_tiny/16"


@pytest.fixture(scope="module")
def clip() -> Clip:
    """The first four frames of an example."""
    whole = clips.example("coffee")
    return Clip("coffee", whole.frames[:4], whole.size, whole.sent_size, whole.fps)


@pytest.fixture(scope="module")
def first_mask(clip) -> np.ndarray:
    mask = np.zeros(clip.size, np.uint8)
    mask[40:160, 60:200] = 1
    return mask


@pytest.fixture
def token(engine, clip) -> str:
    return shelf_of(engine).put(clip)


@pytest.fixture(scope="module")
def client(engine) -> Iterator[TestClient]:
    """The tab's own routes."""
    app = FastAPI()
    app.include_router(video.clip_routes(engine))

    @app.exception_handler(LabError)
    def tell(request: object, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=422)

    with TestClient(app) as client:
        yield client


def _runs(mask: np.ndarray) -> list[int]:
    return [int(value) for label in mask.ravel() for value in (label, 1)]


def test_following_tells_how_far_it_came_after_every_frame(engine, token, first_mask):
    told = list(video.follow(engine, token, _runs(first_mask), MODEL, 64))
    assert [answer["progress"]["done"] for answer in told] == [1, 2, 3, 4]
    assert [answer["progress"]["state"] for answer in told] == ["running"] * 3 + ["done"]
    assert told[1]["progress"]["left"] > 0
    assert told[-1]["progress"]["left"] == 0


def test_cancel_keeps_what_is_done(engine, token, first_mask):
    steps = video.follow(engine, token, _runs(first_mask), MODEL, 64)
    next(steps), next(steps)
    told = video.stop(engine, token)["progress"]
    assert (told["state"], told["done"]) == ("cancelled", 2)
    list(steps)
    assert len(shelf_of(engine).get(token).done.masks) == 2


def test_another_clip_ends_what_is_followed_through_the_former(engine, token, clip, first_mask):
    steps = video.follow(engine, token, _runs(first_mask), MODEL, 64)
    next(steps)
    answer, newer = video.open_clip(engine, lambda: clip, MODEL, 64, token)
    assert newer != token
    assert answer["clip"]["token"] == newer
    assert list(steps) == []
    assert len(shelf_of(engine).get(token).done.masks) == 1


def test_what_cannot_be_followed_is_one_sentence(engine, token, first_mask):
    for clip_token, runs, model, said in [
        ("guessed", [], MODEL, "open it again."),
        (None, [], MODEL, "open it again."),
        (token, [0, 7], MODEL, "open the clip again."),
        (token, _runs(first_mask), "/etc/passwd", "choose one of"),
        (token, _runs(0 * first_mask), MODEL, "or paint it."),
    ]:
        (answer,) = video.follow(engine, clip_token, runs, model, 64)
        assert said in answer["error"]


def test_refused_clip_leaves_the_one_that_is_held(engine, token, tmp_path):
    (tmp_path / "broken.mp4").write_bytes(b"nothing")
    answer, held = video.open_clip(
        engine, lambda: clips.read(tmp_path / "broken.mp4", Limits()), MODEL, 64, token
    )
    assert held == token
    assert "no film" in answer["error"]


def test_frames_and_masks_are_behind_the_token(client, engine, token, clip, first_mask):
    assert client.get(f"/lab/clips/{token}/frames/3.jpg").content == clip.frames[3]
    assert client.get(f"/lab/clips/{token}/masks/0.png").status_code == 422  # nothing is followed
    list(video.follow(engine, token, _runs(first_mask), MODEL, 64))
    mask = client.get(f"/lab/clips/{token}/masks/0.png")
    assert "no-store" in mask.headers["cache-control"]
    np.testing.assert_array_equal(np.array(Image.open(io.BytesIO(mask.content))), first_mask)
    for path in ("frames/0.jpg", "masks/0.png", "davis.zip"):
        assert client.get(f"/lab/clips/guessed/{path}").status_code == 404


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("frames/99.jpg", 404),
        ("frames/-1.jpg", 404),
        ("frames/nan.jpg", 422),
        ("masks/99.png", 404),
        ("secret.zip", 404),
        ("overlay.webm", 200),
        ("davis.zip", 200),
        ("masks.json", 200),
    ],
)
def test_files_that_do_not_exist_are_told_without_a_trace(client, engine, token, first_mask, path, status):
    next(video.follow(engine, token, _runs(first_mask), MODEL, 64))
    answer = client.get(f"/lab/clips/{token}/{path}")
    assert answer.status_code == status
    assert b"Traceback" not in answer.content
    if status == 200:
        assert answer.headers["content-disposition"] == f'attachment; filename="coffee-{path}"'


def test_limits_are_told_with_the_figures_of_the_options():
    words = video.limits_in_words(
        Limits(max_upload_mb=11, max_frames=22, max_clip_seconds=33, max_frame_megapixels=44)
    )
    for figure in ("11 MB", "44 million pixels", "22 frames", "33 seconds", "854 pixels"):
        assert figure in words


def test_page_is_told_every_example(engine):
    facts = video.stage_facts(engine.limits)
    assert [example["name"] for example in facts["examples"]] == list(EXAMPLES)
    assert facts["first"] in EXAMPLES
    assert len(facts["colors"]) == facts["objects"] == len(facts["palette"]) - 1


# ---- the endpoint


@pytest.fixture(scope="module")
def animation(clip) -> str:
    """The clip as an animated PNG, base64."""
    buffer = io.BytesIO()
    frames = [Image.fromarray(picture) for picture in clip.pictures()]
    frames[0].save(buffer, "PNG", save_all=True, append_images=frames[1:], duration=100)
    return base64.b64encode(buffer.getvalue()).decode()


def test_endpoint_follows_masks_through_a_clip(engine, animation, clip, first_mask, tmp_path):
    answer = Api(engine).propagate(animation, [dict(rle(first_mask > 0))], MODEL, 64)
    assert [image["id"] for image in answer["images"]] == [1, 2, 3, 4]
    (tmp_path / "clip.png").write_bytes(base64.b64decode(animation))
    *_, expected = propagate(
        engine, Held(clips.read(tmp_path / "clip.png", engine.limits)), first_mask, MODEL, 64
    )
    for annotation in answer["annotations"]:
        found = decode(annotation["segmentation"])
        np.testing.assert_array_equal(found, expected.labels(annotation["image_id"] - 1) == 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"clip": "no base64!"}, "in base64"),
        ({"clip": base64.b64encode(b"nothing").decode()}, "no film"),
        ({"clip": None}, "in base64"),
        ({"masks": []}, "list of 1 to 8"),
        ({"masks": [{}] * 9}, "list of 1 to 8"),
        ({"masks": [{"size": [240, 352], "counts": "0"}]}, "run lengths"),
        ({"masks": [{"size": [2, 2], "counts": "04"}]}, "size"),
        ({"masks": [dict(rle(np.zeros((240, 352), bool)))]}, "Nothing is marked"),
        ({"model": "../run"}, "choose one of"),
        ({"size": float("nan")}, "whole number"),
        ({"size": 10**6}, "whole number"),
    ],
)
def test_endpoint_refuses_what_cannot_be(engine, animation, first_mask, change, said):
    asked = {"clip": animation, "masks": [dict(rle(first_mask > 0))], "model": MODEL, "size": 64} | change
    with pytest.raises(LabError, match=said):
        Api(engine).propagate(**asked)
