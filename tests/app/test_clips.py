"""Clips: decoding within the limits, tracking, and downloads."""

import asyncio
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pycocotools.coco import COCO

from app import clips, fairness
from app.clips import FILES, MAX_OBJECTS, Clip, Following, begin, from_runs, steps
from app.errors import LabError, NotHere
from app.example_clips import EXAMPLES, FRAMES, example
from app.lab import Clips, Lab
from app.limits import Limits
from app.photos import ImageStore
from app.tabs import video
from dino_model.predictor import AttentionPredictor
from segmentation.datasets import open_davis, read_first_mask, read_labels
from segmentation.propagation import propagate_frames
from segmentation.video import VideoFile, VideoWriter
from tests.app.conftest import MODEL

SMALL = Limits(max_frames=6)
SIZE = (48, 64)


def frames(count: int, height: int = 48, width: int = 64) -> list[np.ndarray]:
    """Return frames with a bright square that moves to the right over noise."""
    noise = np.random.default_rng(0).integers(0, 90, (height, width, 3), dtype=np.uint8)
    found = [noise.copy() for _ in range(count)]
    for number, frame in enumerate(found):
        frame[12:28, 4 + 2 * number : 20 + 2 * number] = (250, 200, 60)
    return found


def first_mask() -> np.ndarray:
    mask = np.zeros(SIZE, np.uint8)
    mask[12:28, 4:20] = 1
    mask[32:48, 32:64] = 2
    return mask


def write_video(path: Path, count: int, fps: float = 10, size: tuple[int, int] = SIZE) -> Path:
    with VideoWriter(path, fps) as video:
        for frame in frames(count, *size):
            video.write(frame)
    return path


@pytest.fixture
def clip(tmp_path: Path) -> Clip:
    """Six frames of 64 × 48 pixels."""
    return clips.read(write_video(tmp_path / "square.webm", 6, 24), SMALL, "square.webm")


@pytest.fixture(scope="module")
def predictor() -> AttentionPredictor:
    return AttentionPredictor(MODEL, size=48, precision="fp32", device="cpu")


@pytest.fixture
def followed(predictor, clip) -> Following:
    following = begin("square", clip, first_mask(), predictor, MODEL, Limits())
    assert len(list(steps(following, first_mask(), predictor))) == 6
    return following


# --- decoding


def test_read_video_returns_its_frames(tmp_path):
    path = write_video(tmp_path / "square.webm", 5)
    clip = clips.read(path, SMALL, "clip")
    assert (len(clip.frames), clip.size, clip.fps, clip.note) == (5, SIZE, 10, "")
    for frame, decoded in zip(clip.decoded(), VideoFile(path), strict=True):
        assert np.abs(frame.astype(int) - decoded).mean() < 4  # a JPEG of the decoded frame


def test_read_long_video_decodes_only_the_frames_within_the_limits(tmp_path, monkeypatch):
    decoded, iterate = [], VideoFile.__iter__
    monkeypatch.setattr(
        VideoFile, "__iter__", lambda self: (decoded.append(1) or one for one in iterate(self))
    )
    cases = [("few.webm", 40, 10.0, SMALL, 6), ("slow.webm", 600, 1.0, Limits(max_clip_seconds=8), 8)]
    for name, count, fps, limits, kept in cases:
        decoded.clear()
        clip = clips.read(write_video(tmp_path / name, count, fps), limits, name)
        assert len(clip.frames) == kept
        assert len(decoded) == kept + 1  # one more shows that there are more
        assert clip.note == f"Only the first {kept} of {count} frames are used: that is the limit."


def test_read_animated_gif_returns_its_frames(tmp_path):
    first, *others = [Image.fromarray(frame) for frame in frames(4)]
    first.save(tmp_path / "square.gif", save_all=True, append_images=others, duration=50)
    clip = clips.read(tmp_path / "square.gif", SMALL, "square.gif")
    assert (len(clip.frames), clip.size, clip.fps) == (4, SIZE, 20)


def test_large_frames_are_reduced(tmp_path):
    clip = clips.read(write_video(tmp_path / "large.webm", 2, size=(1000, 2000)), SMALL, "large.webm")
    assert (clip.size, clip.sent_size) == ((427, 854), (1000, 2000))
    assert next(clip.decoded()).shape == (427, 854, 3)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_move(name):
    clip = example(name)
    first, *_, last = clip.decoded()
    assert first.shape == (*clip.size, 3)
    assert np.abs(first.astype(int) - last).mean() > 10


def refused(path: Path, limits: Limits = SMALL) -> str:
    with pytest.raises(LabError) as caught:
        clips.read(path, limits, path.name)
    sentence = str(caught.value)
    assert sentence.startswith(path.name)
    assert sentence.endswith(".")
    assert str(path.parent) not in sentence
    return sentence


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
        ("frames.zip", b"PK\x03\x04" + bytes(30), "not a known video format"),
    ],
)
def test_file_that_is_no_clip_is_refused(tmp_path, name, content, sentence):
    (tmp_path / name).write_bytes(content)
    assert sentence in refused(tmp_path / name)


def test_clip_of_one_frame_is_refused(tmp_path):
    assert "1 readable frame" in refused(write_video(tmp_path / "still.webm", 1))


def test_pixel_bomb_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    path = write_video(tmp_path / "huge.webm", 2, size=(1000, 1200))
    monkeypatch.setattr(clips, "VideoFile", lambda _: pytest.fail("it was decoded"))
    assert "1200 × 1000 pixels" in refused(path, Limits(max_frame_megapixels=1))


# --- memory


def test_clips_are_named_by_content_in_bounded_memory(tmp_path):
    limits = Limits(max_clips_mb=1, max_frames=6)
    memory = Clips(limits, ImageStore(limits))
    files = [write_video(tmp_path / f"{count}.webm", count) for count in (5, 6)]
    first, second = (memory.keep(file, "mine.webm") for file in files)
    assert memory.keep(files[1], "theirs.webm") == second != first
    assert len(memory.get(first).frames) == 5
    assert memory.get(first).name == "clip", "users do not see each other's names"
    for size in range(60, 200, 20):  # each clip is larger than the one before
        memory.keep(write_video(tmp_path / "more.webm", 6, size=(4 * size, 6 * size)), "")
    for token in (first, "guessed", ""):
        with pytest.raises(NotHere, match="open it again"):
            memory.get(token)
    assert len(memory.get("sheep").frames) == FRAMES, "an example is rendered again"


# --- tracking


def test_tracked_masks_match_library(predictor, clip, followed):
    expected = list(propagate_frames(clip.decoded(), first_mask(), predictor))
    assert len(followed.masks) == len(expected) == 6
    np.testing.assert_array_equal(list(followed.labels()), expected)


@pytest.mark.parametrize(
    ("mask", "sentence"),
    [
        (np.zeros(SIZE, np.uint8), "Nothing is marked"),
        (np.zeros((10, 10), np.uint8), "10 × 10 pixels"),
        (np.arange(48 * 64, dtype=np.uint8).reshape(SIZE) % 12, "11 objects"),
        (np.pad(np.full((2, 2), 1, np.uint8), ((0, 46), (0, 62))), "smaller than a patch"),
    ],
)
def test_begin_with_invalid_mask_is_refused(predictor, clip, mask, sentence):
    with pytest.raises(LabError, match=sentence):
        begin("square", clip, mask, predictor, MODEL, Limits())


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


# --- downloads


def test_overlay_webm_has_every_finished_frame_with_its_objects_tinted(clip, followed, tmp_path):
    (tmp_path / "overlay.webm").write_bytes(FILES["overlay.webm"](followed))
    film = list(VideoFile(tmp_path / "overlay.webm"))
    assert len(film) == 6
    assert film[0].shape[0] > 48  # a legend below
    changed = np.abs(film[0][:48].astype(int) - next(clip.decoded())).mean(axis=2)
    assert changed[first_mask() > 0].mean() > 3 * changed[first_mask() == 0].mean()


def test_zip_is_a_davis_folder_from_which_the_library_computes_the_same(predictor, followed, tmp_path):
    content = FILES["davis.zip"](followed)
    zipfile.ZipFile(io.BytesIO(content)).extractall(tmp_path)
    (sequence,) = open_davis(tmp_path)
    assert sequence.name == "square"
    pictures = [cv2.imread(str(frame))[..., ::-1].copy() for frame in sequence.frames]
    tracked, first = list(followed.labels()), read_first_mask(sequence.masks[0], pictures[0].shape)
    for number, labels in enumerate(propagate_frames(pictures, first, predictor)):
        found = read_labels(tmp_path / "Annotations/480p/square" / f"{number:05d}.png")
        assert (found == labels).mean() > 0.99  # another JPEG decoder may round otherwise
        np.testing.assert_array_equal(found, tracked[number])


def test_coco_file_decodes_to_the_masks(followed, tmp_path):
    (tmp_path / "masks.json").write_bytes(FILES["masks.json"](followed))
    read = COCO(tmp_path / "masks.json")
    assert read.dataset["info"]["fps"] == 24
    for image, expected in zip(read.loadImgs(read.getImgIds()), followed.labels(), strict=True):
        labels = np.zeros((image["height"], image["width"]), np.uint8)
        for annotation in read.loadAnns(read.getAnnIds(imgIds=image["id"])):
            labels[read.annToMask(annotation) > 0] = annotation["category_id"]
        np.testing.assert_array_equal(labels, expected)


# --- the tab Video


@pytest.fixture
def token(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Six frames in the memory of the lab, and turns of the test's own event loop."""
    monkeypatch.setattr(fairness, "MODEL", fairness.FairTurns("the model"))
    return lab.clips.keep(write_video(tmp_path / "mine.webm", 6), "mine.webm")


@pytest.fixture
def track(lab: Lab) -> Callable[..., list[dict[str, Any]]]:
    """Collects the answers of `tracked`, at most `most` of them."""

    def run(
        marking: Any, name: Any, model: Any = MODEL, size: Any = 48, most: int = 99
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
    return {"clip": token, "run": 3, "runs": list(clips.runs_of(first_mask()))} | changed


def test_tracked_reports_progress_after_every_frame(lab, token, track):
    answers = track(marked(token), f"{token}/mine.webm")
    assert [answer["done"] for answer in answers] == [1, 2, 3, 4, 5, 6]
    assert [answer["state"] for answer in answers] == ["running"] * 5 + ["done"]
    assert {answer["run"] for answer in answers} == {3}
    found = lab.clips.following(answers[0]["id"])
    np.testing.assert_array_equal(next(found.labels()), first_mask())


def test_stopped_tracking_keeps_finished_frames(lab, token, track):
    answers = track(marked(token), token, most=2)
    assert len(lab.clips.following(answers[-1]["id"]).masks) == 2
    assert not fairness.MODEL._running


@pytest.mark.parametrize(
    ("marking", "name", "model", "size", "sentence"),
    [({"clip": "guessed"}, "guessed", MODEL, 48, "open it again"),
     ({}, "sheep", MODEL, 48, "belong to another clip"),
     ({"runs": [0, 7]}, None, MODEL, 48, "does not fit this image"),
     ({"runs": [0.5, 7]}, None, MODEL, 48, "Invalid runs"),
     ({"runs": [0, 48 * 64]}, None, MODEL, 48, "or paint it"),
     ({"run": "3"}, None, MODEL, 48, "Invalid run"),
     ({}, None, "/etc/passwd", 48, "choose one of"),
     ({}, None, MODEL, True, "resolution"),
     ({}, 3, MODEL, 48, "named by text")],
)  # fmt: skip
def test_tracked_with_invalid_arguments_is_refused(token, track, marking, name, model, size, sentence):
    with pytest.raises(LabError, match=sentence):
        track(marked(token, **marking), token if name is None else name, model, size)


def test_download_holds_the_frames_that_the_page_has_shown(lab, token, track):
    identity = track(marked(token), token)[-1]["id"]
    shared = SimpleNamespace(lab=lab)
    for seen, held in ((2, 2), (99, 6)):
        name, content = video._file(shared, "davis.zip", {"id": identity, "done": seen, "name": "mine.webm"})
        assert name == "mine-davis.zip"
        # A name is once before the file and once in the index.
        assert content.count(b"Annotations/480p/mine/0000") == 2 * held
    for wrong in (None, {"id": 3, "done": 1, "name": "a"}, {"id": "x", "done": 1, "name": "a"}):
        with pytest.raises(LabError):
            video._file(shared, "masks.json", wrong)
