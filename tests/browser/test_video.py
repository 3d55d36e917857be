"""Video in a browser: objects are marked, tracked, shown and downloaded."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect
from pycocotools import mask as coco_mask

from segmentation import example_clips
from segmentation.video_input import VideoFile
from tests.app.conftest import write_video
from tests.browser import actions

VIEW = "viewOf('tracking')"
STAGE = "#tracking .lab-stage"
UPLOAD = ".rail:not(#rail) input[type=file]"
CLIP = (12, (96, 128))  # frames per second, and size


@pytest.fixture
def page(open_page):
    """The tab with its example."""
    return open_page(query="?tab=video", ready="#tracking .lab-view[data-token]")


@pytest.fixture
def video(page, tmp_path: Path):
    """The tab with a clip of seven frames."""
    actions.send(page, UPLOAD, "tracking", write_video(tmp_path / "square.webm", 7, *CLIP))
    return page


def _labels(page) -> np.ndarray:
    """Objects of the first frame, as the browser holds them."""
    painting = f"{VIEW}.painting"
    return actions.array(
        page, f"{{ array: {painting}.values, shape: [{painting}.height, {painting}.width] }}"
    )


def _shown(page, number: int) -> np.ndarray:
    """Objects of a frame as they are drawn: the label whose color is closest, 0 where nothing is drawn."""
    page.locator(".clip-time input").fill(str(number + 1))
    page.wait_for_selector(f"#tracking [data-frame='{number}']")
    image = f"{VIEW}.context.getImageData(0, 0, {VIEW}.clip.width, {VIEW}.clip.height).data"
    pixels = actions.array(page, f"{{ array: {image}, shape: [{VIEW}.clip.height, {VIEW}.clip.width, 4] }}")
    colors = np.array(page.evaluate(f"{VIEW}.clip.colors"))
    distance = np.abs(pixels[..., None, :3].astype(int) - colors).sum(axis=-1)
    return np.where(pixels[..., 3] > 0, distance.argmin(axis=-1) + 1, 0).astype(np.uint8)


def _click(page, x: float, y: float) -> None:
    page.locator(STAGE).click(position=actions.place(page, STAGE, x, y))


def _paint(page) -> None:
    """Two strokes: the first object over the square, a second one below."""
    page.locator("#tracking .lab-tools").get_by_text("Draw", exact=True).click()
    _click(page, 0.2, 0.42)
    page.get_by_role("button", name="+ Object").click()
    _click(page, 0.7, 0.8)


def _downloaded(page, file: str) -> bytes:
    return actions.export(page, "tracking", file)[1]


def test_tab_opens_with_an_example_and_a_click_marks_an_object(page):
    assert page.locator(".clip-time output").inner_text() == f"1 of {example_clips.FRAMES}"
    text = page.locator("body").inner_text()
    for limit in ("25 MB", "9 million pixels", "120 frames", "10 seconds", "854 pixels"):
        assert limit in text
    _click(page, 0.4, 0.3)
    labels = _labels(page)
    assert labels[int(0.3 * 240), int(0.4 * 416)] == 1
    assert set(np.unique(labels)) == {0, 1}


def test_downloads_hold_the_masks_that_were_shown(video, tmp_path):
    _paint(video)
    first = _labels(video)
    assert set(np.unique(first)) == {0, 1, 2}
    video.locator("#track").click()
    video.wait_for_selector("#tracking [data-state=done]")
    expect(video.locator("#tracking .lab-bottom [role=status]")).to_have_text("All 7 frames are finished.")
    shown = [_shown(video, number) for number in range(7)]
    archive = zipfile.ZipFile(io.BytesIO(_downloaded(video, "davis.zip")))
    for number in range(7):
        mask = archive.read(f"Annotations/480p/square/{number:05d}.png")
        np.testing.assert_array_equal(actions.image(mask), shown[number])
    coco = json.loads(_downloaded(video, "masks.json"))
    assert coco["info"]["fps"] == 12
    for annotation in coco["annotations"]:
        inside = shown[annotation["image_id"] - 1] == annotation["category_id"]
        np.testing.assert_array_equal(coco_mask.decode(annotation["segmentation"]), inside)
    assert len(coco["annotations"]) == sum(len(np.unique(labels)) - 1 for labels in shown)
    (tmp_path / "overlay.webm").write_bytes(_downloaded(video, "overlay.webm"))
    assert len(list(VideoFile(tmp_path / "overlay.webm"))) == 7


def test_stop_keeps_finished_frames(page, tmp_path):
    actions.send(page, UPLOAD, "tracking", write_video(tmp_path / "long.webm", 60, *CLIP))
    _paint(page)
    page.locator("#track").click()
    stop = "document.querySelector('#stop-tracking').click()"  # by the page: the last frame may come earlier
    actions.wait(page, f"{VIEW}.run?.done > 2 && ({stop}, true)")
    page.wait_for_selector("#tracking [data-state=stopped]")
    done = page.evaluate(f"{VIEW}.run.done")
    assert 2 < done < 60
    assert (
        page.locator("#tracking .lab-bottom [role=status]")
        .inner_text()
        .startswith(f"Stopped: {done} of 60 frames")
    )
    names = zipfile.ZipFile(io.BytesIO(_downloaded(page, "davis.zip"))).namelist()
    assert sum(name.startswith("Annotations") for name in names) == done
    assert _shown(page, done - 1).any()
    assert not _shown(page, done).any()
