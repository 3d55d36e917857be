"""Clips: decoding within the limits, tracking, and downloads."""

import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from app.limits import fairness
from app.limits.bounds import Limits
from app.limits.errors import LabError, NotHere
from app.store import clips
from app.store.backend import Backend, Clips
from app.store.clips import FILES, MAX_OBJECTS, from_runs
from app.store.images import ImageStore
from app.tabs import video
from dino_model.inference.predictor import AttentionPredictor
from segmentation.annotations import read_labels
from segmentation.datasets import open_davis
from segmentation.drawing import overlay_masks
from segmentation.example_clips import EXAMPLES, FRAMES, draw_masks
from segmentation.masks import bounding_box, decode
from segmentation.tracking import propagate_steps
from segmentation.video_input import VideoFile
from tests.app.conftest import MODEL, run, square_frames, write_video

SMALL = Limits(max_frames=6)
SIZE = (48, 64)


def test_read_returns_the_frames_of_a_video_and_of_animated_images(tmp_path):
    path = write_video(tmp_path / "square.webm", 5)
    clip = clips.read(path, SMALL, "clip")
    assert (len(clip.frames), clip.size, clip.fps, clip.note) == (5, SIZE, 10, "")
    for frame, decoded in zip(clip.decode(), VideoFile(path), strict=True):
        assert np.abs(frame.astype(int) - decoded).mean() < 4  # a JPEG of the decoded frame
    first, *others = [Image.fromarray(frame) for frame in square_frames(5, SIZE)]
    for name in ("square.gif", "square.webp", "square.png"):
        first.save(tmp_path / name, save_all=True, append_images=others, duration=50)
        clip = clips.read(tmp_path / name, SMALL, name)
        assert (len(clip.frames), clip.size, clip.fps) == (5, SIZE, 20)
    large = clips.read(write_video(tmp_path / "large.webm", 2, size=(1000, 2000)), SMALL, "large.webm")
    assert (large.size, large.sent_size) == ((427, 854), (1000, 2000))
    with pytest.raises(LabError, match=r"square\.webp has 5 frames, more than the 4 allowed"):
        clips.read(tmp_path / "square.webp", Limits(max_frames=1), "square.webp")
    first.save(tmp_path / "four.gif", save_all=True, append_images=others[:3], duration=50)
    assert len(clips.read(tmp_path / "four.gif", Limits(max_frames=1), "four.gif").frames) == 2
    largest = write_video(tmp_path / "largest.webm", 2, size=(1000, 1000))
    assert clips.read(largest, Limits(max_frame_megapixels=1), "").sent_size == (1000, 1000)
    largest.write_bytes(largest.read_bytes().ljust(1_000_001))
    with pytest.raises(LabError, match="is larger than the 1 MB allowed"):
        clips.read(largest, Limits(max_upload_mb=1), "largest.webm")


def test_read_long_video_decodes_only_the_frames_within_the_limits(tmp_path, monkeypatch):
    decoded, iterate = [], VideoFile.__iter__
    monkeypatch.setattr(
        VideoFile, "__iter__", lambda self: (decoded.append(1) or one for one in iterate(self))
    )
    cases = [("few.webm", 40, 10.0, SMALL, 6), ("slow.webm", 600, 1.0, Limits(max_clip_seconds=8), 8)]
    cases.append(("slowest.webm", 5, 1.0, Limits(max_clip_seconds=1), 2))
    for name, count, fps, limits, kept in cases:
        decoded.clear()
        clip = clips.read(write_video(tmp_path / name, count, fps), limits, name)
        assert len(clip.frames) == kept
        assert len(decoded) == kept + 1  # one more shows that there are more
        assert clip.note == f"Only the first {kept} of {count} frames are used: that is the limit."


@pytest.mark.parametrize(
    ("expected", "readable", "noted"), [(20, 18, False), (20, 17, True), (100, 95, False), (100, 94, True)]
)
def test_note_of_a_clip_without_its_end_names_the_frames_that_are_used(
    tmp_path, monkeypatch, expected, readable, noted
):
    class Cut:
        fps, frames = 25, square_frames(1, SIZE) * readable

        def __init__(self, path: Path) -> None:
            self.expected = expected

        def __iter__(self) -> Iterator[np.ndarray]:
            return iter(self.frames)

    monkeypatch.setattr(clips, "open_frames", Cut)
    clip = clips.read(write_video(tmp_path / "cut.webm", 2), Limits(), "cut.webm")
    sentence = (
        f"Only the first {readable} of {expected} frames can be decoded: the file is damaged or cut short."
    )
    assert clip.note == (sentence if noted else "")


@pytest.mark.parametrize("name", EXAMPLES)
def test_objects_of_examples_go_evenly_from_pose_to_pose(name):
    for time, labels in zip(np.linspace(0, 1, FRAMES), draw_masks(name), strict=True):
        height, width = labels.shape
        for number, actor in enumerate(EXAMPLES[name].actors, 1):
            moves = zip(actor.start, actor.end, strict=True)
            x, y, tall, _ = (first + time * (last - first) for first, last in moves)
            left, top, right, bottom = bounding_box(labels == number)
            center = (left + right) / 2 / width, (top + bottom) / 2 / height
            assert center == pytest.approx((x, y), abs=0.02)
            assert (bottom - top) / height == pytest.approx(tall, abs=0.06)  # higher where it is turned


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("empty.mp4", b"", "empty or not a known video format"),
        ("playlist.mp4", b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", "not a known video format"),
        ("concat.mp4", b"ffconcat version 1.0\nfile /etc/passwd\n", "not a known video format"),
        ("sound.avi", b"RIFF\x44\x03\0\0WAVEfmt " + bytes(800), "not a known video format"),
        ("cut.mp4", b"\0\0\0\x18ftypmp42" + bytes(40), "no frame that can be decoded"),
        ("cut.webm", b"\x1a\x45\xdf\xa3\x93\x42\x82\x84webm" + bytes(40), "no frame that can be decoded"),
        ("cut.gif", b"GIF89a" + bytes(3), "no frame that can be decoded"),
        ("still.webm", 1, "1 readable frame"),
    ],
)
def test_file_that_is_no_clip_is_refused(tmp_path, name, content, sentence):
    path = tmp_path / name
    path.write_bytes(content) if isinstance(content, bytes) else write_video(path, content)
    with pytest.raises(LabError, match=rf"^{name} .*{sentence}[^/]*\.$"):
        clips.read(path, SMALL, name)


def test_pixel_bomb_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    path = write_video(tmp_path / "huge.webm", 2, size=(1000, 1200))
    monkeypatch.setattr(clips, "open_frames", lambda _: pytest.fail("it was decoded"))
    with pytest.raises(LabError, match="1200 × 1000 pixels"):
        clips.read(path, Limits(max_frame_megapixels=1), "huge.webm")


def test_clips_are_named_by_content_in_bounded_memory(tmp_path):
    limits = Limits(max_clips_mb=1, max_frames=6)
    memory = Clips(limits, ImageStore(limits))
    files = [write_video(tmp_path / f"{count}.webm", count) for count in (5, 6)]
    first, second = (memory.keep(file.read_bytes(), "mine.webm") for file in files)
    assert memory.keep(files[1].read_bytes(), "theirs.webm") == second != first
    assert len(memory.get(first).frames) == 5
    assert memory.get(first).name == "clip", "users do not see each other's names"
    for size in (60, 80):  # the later clip is larger
        memory.keep(write_video(tmp_path / "more.webm", 6, size=(4 * size, 6 * size)).read_bytes(), "")
    for token in (first, "guessed", ""):
        with pytest.raises(NotHere, match="open it again"):
            memory.get(token)
    assert len(memory.get("sheep").frames) == FRAMES, "an example is rendered again"
    clip = clips.Clip("clip", (b"x" * 42_500,) * 4, (8, 8), (8, 8), 10)  # with masks 250,000 bytes
    names = [memory.put(clips.TrackedClip(clip, (1,))) for _ in range(2)]
    assert memory.tracked_clip(names[0]).clip is memory.tracked_clip(names[1]).clip  # half of 1 MB
    memory.put(clips.TrackedClip(clip, (1,)))
    with pytest.raises(NotHere, match="track the objects again"):
        memory.tracked_clip(names[0])
    assert memory.tracked_clip(names[1]).clip is clip


@given(st.lists(st.tuples(st.integers(0, MAX_OBJECTS), st.integers(1, 9)), min_size=1))
def test_from_runs_decodes_in_reading_order(runs):
    labels = [label for label, length in runs for _ in range(length)]
    flat = [value for run in runs for value in run]
    assert from_runs(flat, (1, len(labels))).tolist() == [labels]


@pytest.mark.parametrize(
    "runs",
    [[0], [0, 3], [0, 5], [-1, 4], [0, -4, 0, 8], [9, 4], [], [0.0, 4], [True, 4], "04", None, {"0": 4}],
)
def test_from_runs_of_another_image_is_refused(runs):
    with pytest.raises(LabError, match="The mask does not fit this image"):
        from_runs(runs, (2, 2))


@pytest.fixture
def token(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Six frames in the memory of the lab, and turns of the test's own event loop."""
    monkeypatch.setattr(fairness, "MODEL", fairness.FairTurns("the model"))
    return backend.clips.keep(write_video(tmp_path / "mine.webm", 6).read_bytes(), "mine.webm")


def track(backend: Backend, *arguments: Any) -> list[dict[str, Any]]:
    """The answers of `tracked`."""

    async def collect() -> list[dict[str, Any]]:
        request = gr.Request(session_hash="test")
        return [
            answer
            async for answer in video.track_objects(SimpleNamespace(backend=backend), *arguments, request)
        ]

    return run(collect())


@pytest.fixture
def first_mask() -> np.ndarray:
    mask = np.zeros(SIZE, np.uint8)
    mask[12:28, 4:20] = 1
    mask[32:48, 32:64] = 2
    return mask


def marked(token: str, *masks: np.ndarray, frames: tuple[int, ...] = (0,), **changed: Any) -> dict[str, Any]:
    marks = [
        {"frame": frame, "runs": changed.pop("runs", list(clips.runs_of(mask))), "objects": [1, 2]}
        for frame, mask in zip(frames, masks, strict=True)
    ]
    return {"clip": token, "run": 3, "marks": marks} | changed


def test_marks_are_tracked_in_both_directions_as_in_the_library_and_downloads_hold_the_masks(
    backend, token, first_mask, tmp_path
):
    masks = {1: first_mask, 4: np.where(first_mask == 2, first_mask, 0).astype(np.uint8)}
    answers = track(backend, marked(token, *masks.values(), frames=(1, 4)), f"{token}/mine.webm", MODEL, 48)
    assert [answer["done"] for answer in answers] == [0, 1, 2, 2, 2, 3, 4, 5, 6]
    assert [answer["state"] for answer in answers] == ["running"] * 8 + ["done"]
    np.testing.assert_allclose([answer["progress"] for answer in answers], np.arange(1, 10) / 9)
    found = backend.clips.tracked_clip(answers[-1]["id"])
    predictor = AttentionPredictor(MODEL, size=48, precision="fp32", device="cpu")
    decided = {1: (1, 2), 4: (1, 2)}
    steps = list(propagate_steps(found.clip.decode, masks, predictor, batch=1, objects=decided))
    expected = [labels for labels in steps if labels is not None]
    np.testing.assert_array_equal(list(found.labels()), expected)
    assert (expected[0] > 0).any()  # before the first mark
    assert not (expected[4] == 1).any()  # the second mark ends the first object
    zipfile.ZipFile(io.BytesIO(FILES["davis.zip"](found))).extractall(tmp_path)
    (sequence,) = open_davis(tmp_path)
    np.testing.assert_array_equal([read_labels(path) for path in sequence.masks], expected)
    assert [path.read_bytes() for path in sequence.frames] == list(found.clip.frames)
    content = json.loads(FILES["masks.json"](found))
    names = [(image["id"], Path(image["file_name"]).name) for image in content["images"]]
    assert names == [(number, f"{number - 1:05}.jpg") for number in range(1, 7)]
    records = content["annotations"]
    assert [record["id"] for record in records] == list(range(1, len(records) + 1))
    for record in records:
        labels = expected[record["image_id"] - 1]
        np.testing.assert_array_equal(decode(record["segmentation"]), labels == record["category_id"])
    (tmp_path / "overlay.webm").write_bytes(FILES["overlay.webm"](found))
    frames = list(VideoFile(tmp_path / "overlay.webm"))
    assert len(frames) == 6
    assert frames[0].shape[0] > 48  # a legend below
    masks = np.stack([first_mask == label for label in (1, 2)])
    drawn = overlay_masks(list(found.clip.decode())[1], masks, colors=clips.COLORS[:2])
    for mask in masks:
        np.testing.assert_allclose(frames[1][:48][mask].mean(axis=0), drawn[mask].mean(axis=0), atol=30)


@pytest.mark.parametrize(
    ("marking", "name", "model", "size", "sentence"),
    [({"clip": "guessed"}, "guessed", MODEL, 48, "open it again"),
     ({}, "sheep", MODEL, 48, "belong to another clip"),
     ({"runs": [0, 7]}, None, MODEL, 48, "does not fit this image"),
     ({"runs": [0.5, 7]}, None, MODEL, 48, "Invalid marks"),
     ({"runs": [0, 48 * 64]}, None, MODEL, 48, "or paint it"),
     ({"runs": [0, 48 * 64 - 1, 1, 1]}, None, MODEL, 48, "smaller than a patch"),
     ({"run": "3"}, None, MODEL, 48, "Invalid run"),
     ({"marks": []}, None, MODEL, 48, "or paint it"),
     ({"frames": (6,)}, None, MODEL, 48, "mark the objects again"),
     ({"frames": (-1,)}, None, MODEL, 48, "Invalid "),
     ({}, None, "/etc/passwd", 48, "choose one of"),
     ({}, None, MODEL, True, "resolution"),
     ({}, 3, MODEL, 48, "named by text")],
)  # fmt: skip
def test_tracking_with_invalid_arguments_is_refused(
    backend, token, first_mask, marking, name, model, size, sentence
):
    with pytest.raises(LabError, match=sentence):
        track(backend, marked(token, first_mask, **marking), token if name is None else name, model, size)


def test_clip_for_the_view_has_its_title_and_colors(backend, token):
    page = SimpleNamespace(backend=backend)
    for name, title in (
        (f"{token}/mine.webm", "mine.webm"),
        (token, "clip"),
        ("sheep", EXAMPLES["sheep"].title),
    ):
        value = video._clip_value(page, name)
        assert (value["name"], value["frames"]) == (title, f"lab/clips/{name.split('/')[0]}")
        assert (len(value["colors"]), len(value["palette"])) == (
            8,
            9,
        )  # of up to eight objects and background
    found = video._clip_value(page, token)
    assert (found["count"], found["width"], found["height"], found["fps"]) == (6, 64, 48, 10)


@pytest.mark.parametrize(
    ("number", "accepted"), [(0, True), (5, True), (6, False), (-1, False), (True, False)]
)
def test_frame_of_the_clip_is_encoded(backend, page, token, number, accepted):
    context = nullcontext() if accepted else pytest.raises(LabError, match="no such frame")
    with context:
        shown = video._encode(page, number, token, MODEL, 48).props["encoding"]
        assert (shown["clip"], shown["frame"], shown["rows"], shown["columns"]) == (token, number, 3, 4)


def test_download_holds_the_frames_that_the_page_has_shown(backend, token, first_mask):
    identity = track(backend, marked(token, first_mask), token, MODEL, 48)[-1]["id"]
    page = SimpleNamespace(backend=backend)
    request = {"id": identity, "name": "mine.webm", "file": "davis.zip"}
    for seen, held in ((1, 1), (2, 2), (99, 6)):
        name, content = video._file(page, request | {"done": seen})
        assert name == "mine-davis.zip"
        # A name is once before the file and once in the index.
        assert content.count(b"Annotations/480p/mine/0000") == 2 * held
    wrong_ends = [request | {"done": done} for done in (0, -1)]
    for wrong in (
        *(None, request, *wrong_ends),
        *(request | {"done": 1, "id": 3}, request | {"done": 1, "file": "a.exe"}),
    ):
        with pytest.raises(LabError):
            video._file(page, wrong)
