"""Video in a real browser: objects are marked, tracked, shown and downloaded."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect
from pycocotools.coco import COCO

from app import example_clips
from segmentation.propagation import propagate_frames
from segmentation.video import VideoFile, VideoWriter
from tests.browser.actions import array, download, library, place, send

VIEW = "lab('film')"
UPLOAD = "[data-testid='Open a clip-upload-button']"
READY = "#film .lab-view[data-token]"


@pytest.fixture
def film(tmp_path: Path) -> Callable[..., Path]:
    """Writes a square that moves over noise: `film("a.webm", frames)`."""

    def write(name: str, count: int = 7, seed: int = 0) -> Path:
        noise = np.random.default_rng(seed).integers(0, 90, (96, 128, 3), dtype=np.uint8)
        with VideoWriter(tmp_path / name, 12) as video:
            for number in range(count):
                frame = noise.copy()
                frame[24:56, 8 + 4 * number : 40 + 4 * number] = (250, 200, 60)
                video.write(frame)
        return tmp_path / name

    return write


def _open(page: Any) -> Any:
    page.get_by_role("tab", name="Video").click()
    page.wait_for_selector(READY, timeout=60_000)
    return page


def _send(page: Any, path: Path) -> None:
    """Upload a clip and wait for its encoding, or for a sentence."""
    send(page, UPLOAD, "film", path)


@pytest.fixture
def video(page: Any, film: Callable[..., Path]) -> Any:
    """The tab with a clip of seven frames."""
    _send(_open(page), film("square.webm"))
    return page


def _labels(page: Any) -> np.ndarray:
    """Objects of the first frame, as the browser holds them."""
    painting = f"{VIEW}.painting"
    return array(page, f"{{ array: {painting}.values, shape: [{painting}.height, {painting}.width] }}")


def _shown(page: Any, number: int) -> np.ndarray:
    """Objects of a frame as they are drawn: the label whose color is closest, 0 where nothing is drawn."""
    page.locator(".film-time input").fill(str(number + 1))
    page.wait_for_selector(f"#film [data-frame='{number}']")
    image = f"{VIEW}.context.getImageData(0, 0, {VIEW}.clip.width, {VIEW}.clip.height).data"
    pixels = array(page, f"{{ array: {image}, shape: [{VIEW}.clip.height, {VIEW}.clip.width, 4] }}")
    colors = np.array(page.evaluate(f"{VIEW}.clip.colors"))
    distance = np.abs(pixels[..., None, :3].astype(int) - colors).sum(axis=-1)
    return np.where(pixels[..., 3] > 0, distance.argmin(axis=-1) + 1, 0).astype(np.uint8)


def _place(page: Any, x: float, y: float) -> dict[str, float]:
    return place(page, "#film .lab-stage", x, y)


def _choose(page: Any, tool: str) -> None:
    page.locator("#film .lab-tools").get_by_text(tool, exact=True).click()
    page.wait_for_selector(f"#film [data-tool={tool.lower()}]")


def _paint(page: Any) -> None:
    """Two strokes: the first object over the square, a second one below."""
    _choose(page, "Draw")
    page.locator("#film .lab-stage").click(position=_place(page, 0.2, 0.42))
    page.get_by_role("button", name="+ Object").click()
    page.locator("#film .lab-stage").click(position=_place(page, 0.7, 0.8))


def _track(page: Any) -> None:
    page.locator("#track").click()
    page.wait_for_selector("#film [data-state=done]", timeout=120_000)


def _downloaded(page: Any, button: str) -> bytes:
    return download(page, page.locator(f"#save-{button}"))[1]


def test_tab_opens_with_an_example_and_the_limits(page, lab):
    _open(page)
    assert page.locator(".film-time output").inner_text() == f"1 of {example_clips.FRAMES}"
    text = page.locator("#tabs").inner_text()
    for limit in ("25 MB", "9 million pixels", "120 frames", "10 seconds", "854 pixels"):
        assert limit in text
    lab.screenshot(page, "video")


def test_click_marks_an_object(page):
    _open(page)
    page.locator("#film .lab-stage").click(position=_place(page, 0.4, 0.3))
    assert _labels(page)[int(0.3 * 240), int(0.4 * 416)] == 1
    assert set(np.unique(_labels(page))) == {0, 1}


def test_downloads_hold_the_masks_that_were_shown(video, lab, tmp_path):
    _paint(video)
    first = _labels(video)
    assert set(np.unique(first)) == {0, 1, 2}
    _track(video)
    expect(video.locator(".film-status")).to_have_text("All 7 frames are finished.")
    shown = [_shown(video, number) for number in range(7)]
    np.testing.assert_array_equal(shown[0], first)
    lab.screenshot(video, "video-tracked")
    archive = zipfile.ZipFile(io.BytesIO(_downloaded(video, "davis")))
    pictures = []
    for number in range(7):
        mask = Image.open(archive.open(f"Annotations/480p/square/{number:05d}.png"))
        np.testing.assert_array_equal(np.array(mask), shown[number])
        pictures.append(np.array(Image.open(archive.open(f"JPEGImages/480p/square/{number:05d}.jpg"))))
    for number, labels in enumerate(propagate_frames(pictures, first, library(), batch=1)):
        np.testing.assert_array_equal(labels, shown[number])  # the library gives the same
    (tmp_path / "masks.json").write_bytes(_downloaded(video, "masks"))
    assert json.loads((tmp_path / "masks.json").read_text())["info"]["fps"] == 12
    coco = COCO(tmp_path / "masks.json")
    for annotation in coco.loadAnns(coco.getAnnIds()):
        inside = shown[annotation["image_id"] - 1] == annotation["category_id"]
        np.testing.assert_array_equal(coco.annToMask(annotation) > 0, inside)
    (tmp_path / "overlay.webm").write_bytes(_downloaded(video, "overlay"))
    assert len(list(VideoFile(tmp_path / "overlay.webm"))) == 7


def test_stop_keeps_finished_frames(page, film):
    _send(_open(page), film("long.webm", 60))
    _paint(page)
    page.locator("#track").click()
    stop = "document.querySelector('#stop-tracking').click()"  # by the page: the last frame may come earlier
    page.wait_for_function(f"() => {VIEW}.run?.done > 2 && ({stop}, true)", timeout=60_000)
    page.wait_for_selector("#film [data-state=stopped]", timeout=60_000)
    done = page.evaluate(f"{VIEW}.run.done")
    assert 2 < done < 60
    assert page.locator(".film-status").inner_text().startswith(f"Stopped: {done} of 60 frames")
    names = zipfile.ZipFile(io.BytesIO(_downloaded(page, "davis"))).namelist()
    assert sum(name.startswith("Annotations") for name in names) == done
    assert _shown(page, done - 1).any()
    assert not _shown(page, done).any()


def test_keyboard_paints_erases_and_undoes(video):
    video.locator("#film .lab-stage").focus()
    video.keyboard.press("b")
    expect(video.locator("#film input[value=draw]")).to_be_checked()
    for key in ("ArrowRight", "Space"):
        video.keyboard.press(key)
    painted = _labels(video)
    assert painted.any()
    video.keyboard.press("Control+z")
    assert not _labels(video).any()
    for key in ("Space", "e", "Space"):
        video.keyboard.press(key)
    assert _labels(video).sum() < painted.sum()


def test_removed_object_comes_back_by_undo(video):
    _paint(video)
    before = _labels(video)
    video.get_by_role("button", name="Remove object 1").click()
    assert set(np.unique(_labels(video))) == {0, 2}
    video.get_by_role("button", name="Undo").locator("visible=true").click()
    np.testing.assert_array_equal(_labels(video), before)


def test_play_goes_through_the_frames_and_pause_stops(video):
    video.get_by_role("button", name="Play").click()
    for number in (3, 6, 0):
        video.wait_for_selector(f"#film [data-frame='{number}']")
    video.get_by_role("button", name="Pause").click()
    assert video.evaluate(f"{VIEW}.player") == 0


@pytest.mark.parametrize(
    ("name", "content"), [("text.mp4", b"no clip"), ("cut.webm", b"\x1a\x45\xdf\xa3\x93\x42\x82\x84webm")]
)
def test_unreadable_clip_is_one_sentence_and_the_clip_stays(video, lab, tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    before = video.locator("#film .lab-view").get_attribute("data-clip")
    video.set_input_files(UPLOAD, tmp_path / name)
    sentence = lab.toast(video)
    assert name in sentence
    assert str(tmp_path) not in sentence
    assert video.locator("#film .lab-view").get_attribute("data-clip") == before
