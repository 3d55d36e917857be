"""Clips and what is followed through them, as a browser asks for it."""

import asyncio
import io
import json
import zipfile
from collections.abc import Iterator

import numpy as np
import pytest
from anyio.from_thread import BlockingPortal
from fastapi.testclient import TestClient
from PIL import Image

from app.example_clips import EXAMPLES
from app.lab import Lab
from app.limits import Limits

followed = limits_in_words = facts_of = None  # its tests move with the tab

MODEL = "random:vit_tiny/16"
LINES = {"Accept": "application/x-ndjson"}


@pytest.fixture(scope="module")
def sent() -> bytes:
    """Four frames of an example as an animated PNG."""
    frames = [Image.fromarray(np.roll(_noise(), 9 * number, axis=1)) for number in range(4)]
    buffer = io.BytesIO()
    frames[0].save(buffer, "PNG", save_all=True, append_images=frames[1:], duration=100)
    return buffer.getvalue()


def _noise() -> np.ndarray:
    small = np.random.default_rng(2).integers(0, 256, (6, 9, 3), dtype=np.uint8)
    return np.array(Image.fromarray(small).resize((90, 60)))


@pytest.fixture
def clip(client: TestClient, sent: bytes) -> dict:
    return client.post("/api/clips?name=mine.png", content=sent).json()


RUNS = [value for _ in range(40) for value in (0, 30, 1, 60)] + [0, 20 * 90]  # a block at the right


def _lines(client: TestClient, address: str, body: dict) -> list[dict]:
    with client.stream("POST", address, json=body, headers=LINES) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/x-ndjson"
        return [json.loads(line) for line in answer.iter_lines()]


def test_following_tells_how_far_it_came_after_every_frame(client, clip):
    told = _lines(client, f"/api/clips/{clip['clip']}/follow", {"runs": RUNS, "model": MODEL, "size": 64})
    told = [line for line in told if line["state"] in ("following", "done")]
    assert [line["done"] for line in told] == [0, 1, 2, 3, 4, 4]
    assert told[-1]["state"] == "done"
    assert len({line["following"] for line in told}) == 1
    asked = {"clip": clip["clip"], "model": MODEL, "size": 64, "frames": 4}
    assert all(asked.items() <= line.items() for line in told)
    assert told[2]["left"] > 0
    assert told[-1]["left"] == 0


def test_every_following_has_a_name_of_its_own(client, clip):
    body = {"runs": RUNS, "model": MODEL, "size": 64}
    names = [
        client.post(f"/api/clips/{clip['clip']}/follow", json=body).json()["following"] for _ in range(2)
    ]
    assert names[0] != names[1]
    assert [client.get(f"/api/followings/{name}").json()["state"] for name in names] == ["done", "done"]


def test_whoever_leaves_ends_it_and_what_was_done_stays(lab: Lab, clip: dict, portal: BlockingPortal):
    heard: list[dict] = []

    async def leave_after_two_frames() -> None:
        one = lab.clips.get(clip["clip"])
        first_mask = np.zeros(one.size, np.uint8)
        first_mask[:, 30:] = 1
        task = asyncio.ensure_future(
            followed(lab, clip["clip"], one, first_mask, MODEL, 64, tell=heard.append)
        )
        while not heard or heard[-1].get("done") != 2:
            await asyncio.sleep(0.002)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    portal.call(leave_after_two_frames)
    done = lab.clips.following(heard[-1]["following"])
    assert done.state == "stopped"
    assert 2 <= len(done.masks) < 4
    assert not lab.following._at_work, "the next clip may begin"


def test_others_use_the_model_between_two_frames(lab: Lab, clip: dict, portal: BlockingPortal):
    order: list[str] = []

    async def two_at_once() -> None:
        one = lab.clips.get(clip["clip"])
        first_mask = np.ones(one.size, np.uint8)
        first_mask[:30] = 0

        async def look() -> None:
            while not order:
                await asyncio.sleep(0.001)
            await lab.engine.encode("owl", MODEL, 32 + len(order))
            order.append("photograph")

        hear = lambda news: order.append("frame")  # noqa: E731
        await asyncio.gather(followed(lab, clip["clip"], one, first_mask, MODEL, 64, tell=hear), look())

    portal.call(two_at_once)
    assert "frame" in order[order.index("photograph") :]


def test_what_cannot_be_followed_is_one_sentence(client, clip):
    address = f"/api/clips/{clip['clip']}/follow"
    body = {"runs": RUNS, "model": MODEL, "size": 64}
    for where, changed, status, said in [
        ("/api/clips/guessed/follow", {}, 404, "open it again."),
        (address, {"runs": [0, 7]}, 422, "does not fit this picture"),
        (address, {"model": "/etc/passwd"}, 404, "choose one of"),
        (address, {"runs": [0, 60 * 90]}, 422, "or paint it."),
        (address, {"runs": "0,7"}, 422, "The runs must be"),
        (address, {"runs": [0.5, 7]}, 422, "must be"),
        (address, {"size": 10**6}, 422, "at most 2048"),
        (address, {"size": True}, 422, "must be"),
        (address, {"extra": 1}, 422, "does not take"),
    ]:
        answer = client.post(where, json=body | changed)
        assert answer.status_code == status
        assert said in answer.json()["error"]


def test_refusal_in_a_stream_is_its_last_line(client, clip):
    told = _lines(
        client, f"/api/clips/{clip['clip']}/follow", {"runs": [0, 5400], "model": MODEL, "size": 64}
    )
    assert told[-1]["state"] == "error"
    assert told[-1]["status"] == 422
    assert "paint it" in told[-1]["error"]


def test_same_clip_has_one_name_and_its_own_name_stays_with_its_visitor(client, sent):
    first, second = (
        client.post(f"/api/clips?name={name}", content=sent).json()
        for name in ("mine.png", "secret party.png")
    )
    assert first["clip"] == second["clip"]
    assert (first["name"], second["name"]) == ("mine.png", "secret party.png")
    again = client.get(f"/api/clips/{first['clip']}")
    assert "secret" not in again.text
    assert again.json()["photo"] == first["photo"]


def test_first_frame_is_a_photograph_that_a_model_looks_at(client, clip):
    told = client.post("/api/encode", json={"photo": clip["photo"], "model": MODEL, "size": 64}).json()
    assert (told["height"], told["width"]) == (clip["height"], clip["width"]) == (60, 90)


@pytest.fixture(scope="module")
def done(client: TestClient, sent: bytes) -> Iterator[str]:
    clip = client.post("/api/clips?name=mine.png", content=sent).json()["clip"]
    body = {"runs": RUNS, "model": MODEL, "size": 64}
    return client.post(f"/api/clips/{clip}/follow", json=body).json()["following"]


def test_frames_and_masks_are_behind_their_names(client, clip, done, lab):
    one = lab.clips.get(clip["clip"])
    assert client.get(f"/api/clips/{clip['clip']}/frames/3.jpg").content == one.frames[3]
    mask = client.get(f"/api/followings/{done}/masks/0.png")
    assert "no-store" in mask.headers["cache-control"]
    found = np.array(Image.open(io.BytesIO(mask.content)))
    np.testing.assert_array_equal(found[:40, 30:], 1)
    assert found.sum() == 40 * 60
    for path in ("clips/guessed/frames/0.jpg", "followings/guessed/masks/0.png", "followings/guessed"):
        assert client.get(f"/api/{path}").status_code == 404


def test_files_hold_as_many_frames_as_were_seen_done(client, done):
    for asked, held in (("&frames=2", 2), ("&frames=99", 4), ("", 4)):
        answer = client.get(f"/api/followings/{done}/files/davis.zip?name=mine{asked}")
        names = zipfile.ZipFile(io.BytesIO(answer.content)).namelist()
        assert sum(name.startswith("Annotations") for name in names) == held


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("masks/99.png", 404),
        ("masks/-1.png", 404),
        ("masks/nan.png", 422),
        ("files/secret.zip", 404),
        ("files/davis.zip?frames=0", 422),
        ("files/davis.zip?frames=undefined", 422),
        ("files/overlay.webm?name=mine.png", 200),
        ("files/davis.zip?name=mine.png", 200),
        ("files/masks.json?name=mine.png", 200),
    ],
)
def test_files_that_do_not_exist_are_told_without_a_trace(client, done, path, status):
    answer = client.get(f"/api/followings/{done}/{path}")
    assert answer.status_code == status
    assert b"Traceback" not in answer.content
    if status == 200:
        file = path.removeprefix("files/").partition("?")[0]
        assert answer.headers["content-disposition"] == f'attachment; filename="mine-{file}"'


def test_limits_are_told_with_the_figures_of_the_options():
    words = limits_in_words(
        Limits(max_upload_mb=11, max_frames=22, max_clip_seconds=33, max_frame_megapixels=44)
    )
    for figure in ("11 MB", "44 million pixels", "22 frames", "33 seconds", "854 pixels"):
        assert figure in words


def test_page_is_told_every_example(lab, client):
    facts = facts_of(lab)
    assert [example["clip"] for example in facts["clips"]] == list(EXAMPLES)
    assert facts["start"]["clip"] in EXAMPLES
    assert len(facts["colors"]["clipObjects"]) == facts["limits"]["objects"]
    assert len(facts["colors"]["palette"]) == facts["limits"]["objects"] + 1
    for example in facts["clips"]:
        thumbnail = client.get(f"/api/clips/{example['clip']}/thumbnail.jpg")
        assert Image.open(io.BytesIO(thumbnail.content)).height in (95, 96)


def test_file_that_is_no_clip_is_refused_in_words(client):
    answer = client.post("/api/clips?name=<b>.mp4", content=b"nothing")
    assert answer.status_code == 422
    assert "no film that can be read" in answer.json()["error"]
