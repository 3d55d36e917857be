"""Tracking as the tab Video calls it, without a browser."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app import fairness
from app.errors import LabError
from app.lab import Lab
from app.tabs import video
from segmentation.video import VideoWriter

MODEL = "random:vit_tiny/16"
RUNS = [value for _ in range(40) for value in (0, 30, 1, 60)] + [0, 20 * 90]  # a block at the right


@pytest.fixture(autouse=True)
def turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns of the test's own event loop."""
    monkeypatch.setattr(fairness, "MODEL", fairness.FairTurns("the model"))


@pytest.fixture
def clip(lab: Lab, tmp_path: Path) -> str:
    """Four frames of 90 × 60 pixels in the memory of the lab."""
    small = np.random.default_rng(2).integers(0, 256, (6, 9, 3), dtype=np.uint8)
    noise = np.array(Image.fromarray(small).resize((90, 60)))
    with VideoWriter(tmp_path / "mine.webm", 10) as video:
        for number in range(4):
            video.write(np.roll(noise, 9 * number, axis=1))
    return lab.clips.keep(tmp_path / "mine.webm", "mine.webm")


@pytest.fixture
def track(lab: Lab) -> Callable[..., list[dict[str, Any]]]:
    """Collects the answers of `tracked`, at most `most` of them."""

    def run(
        marking: Any, name: Any, model: Any = MODEL, size: Any = 64, most: int = 99
    ) -> list[dict[str, Any]]:
        async def collect() -> list[dict[str, Any]]:
            answers = []
            request = SimpleNamespace(client=SimpleNamespace(host="test"), session_hash="test")
            steps = video.tracked(SimpleNamespace(lab=lab), marking, name, model, size, request)
            async for answer in steps:
                answers.append(answer)
                if len(answers) == most:
                    await steps.aclose()
                    break
            return answers

        return asyncio.run(collect())

    return run


def marked(token: str, **changed: Any) -> dict[str, Any]:
    return {"clip": token, "run": 3, "runs": RUNS} | changed


def test_tracked_reports_progress_after_every_frame(lab, clip, track):
    answers = track(marked(clip), f"{clip}/mine.webm")
    assert [answer["done"] for answer in answers] == [1, 2, 3, 4]
    assert [answer["state"] for answer in answers] == ["running"] * 3 + ["done"]
    assert {answer["run"] for answer in answers} == {3}
    found = lab.clips.following(answers[0]["id"])
    first = next(found.labels())
    np.testing.assert_array_equal(first[:40, 30:], 1)
    assert first.sum() == 40 * 60


def test_stopped_tracking_keeps_finished_frames(lab, clip, track):
    answers = track(marked(clip), clip, most=2)
    assert len(lab.clips.following(answers[-1]["id"]).masks) == 2
    assert not fairness.MODEL._running


@pytest.mark.parametrize(
    ("marking", "name", "model", "size", "sentence"),
    [
        ({"clip": "guessed"}, "guessed", MODEL, 64, "open it again"),
        ({}, "sheep", MODEL, 64, "belong to another clip"),
        ({"runs": [0, 7]}, None, MODEL, 64, "does not fit this image"),
        ({"runs": [0.5, 7]}, None, MODEL, 64, "Invalid runs"),
        ({"runs": [0, 60 * 90]}, None, MODEL, 64, "or paint it"),
        ({"run": "3"}, None, MODEL, 64, "Invalid run"),
        ({}, None, "/etc/passwd", 64, "choose one of"),
        ({}, None, MODEL, 10**6, "resolution"),
        ({}, None, MODEL, True, "resolution"),
        ({}, 3, MODEL, 64, "named by text"),
    ],
)
def test_tracked_with_invalid_arguments_is_refused(clip, track, marking, name, model, size, sentence):
    with pytest.raises(LabError, match=sentence):
        track(marked(clip, **marking), clip if name is None else name, model, size)


def test_download_holds_the_frames_that_the_page_has_shown(lab, clip, track):
    identity = track(marked(clip), clip)[-1]["id"]
    shared = SimpleNamespace(lab=lab)
    for seen, held in ((2, 2), (99, 4)):
        name, content = video._file(shared, "davis.zip", {"id": identity, "done": seen, "name": "mine.webm"})
        assert name == "mine-davis.zip"
        assert (
            content.count(b"Annotations/480p/mine/0000") == 2 * held
        )  # once before the file, once in the index


@pytest.mark.parametrize(
    "seen",
    [
        None,
        {},
        {"id": "", "done": 0, "name": "a"},
        {"id": 3, "done": 1, "name": "a"},
        {"id": "guessed", "done": 1, "name": "a"},
    ],
)
def test_download_of_unknown_result_is_refused(lab, clip, seen):
    with pytest.raises(LabError):
        video._file(SimpleNamespace(lab=lab), "masks.json", seen)
