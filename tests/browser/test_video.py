"""Video in a real browser: objects are marked, followed, looked at and kept."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO
from scipy import ndimage

from app import example_clips
from dino_model.predictor import AttentionPredictor
from segmentation.discovery import refine_edges
from segmentation.masks import component_at, enlarge, keep_mass_of_maps
from segmentation.propagation import propagate_frames
from segmentation.video import VideoFile, VideoWriter

FILM = "document.querySelector('.video').tab"


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


def _open_tab(page: Any) -> Any:
    """The tab Video with its first example."""
    page.get_by_role("tab", name="Video").click()
    page.wait_for_selector(".video[data-encoding]", timeout=60_000)
    return page


def _send(page: Any, path: Path) -> None:
    """Upload a clip and wait for what comes of it: its encoding, or a sentence."""
    page.evaluate("delete document.querySelector('.video').dataset.encoding; page.lab.messages.clear()")
    page.set_input_files("#header .lab-choose input", path)
    page.wait_for_function(
        """() => document.querySelector(".video").dataset.encoding
          || !document.querySelector("#messages").hidden""",
        timeout=60_000,
    )


@pytest.fixture
def video(page: Any, film: Callable[..., Path]) -> Any:
    """The tab with a clip of seven frames."""
    _send(_open_tab(page), film("square.webm"))
    return page


def _labels(page: Any) -> np.ndarray:
    """Objects of the first frame, as the browser holds them."""
    values, width, height = page.evaluate(
        f"(() => {{ const {{ painting }} = {FILM};"
        " return [[...painting.values], painting.width, painting.height]; })()"
    )
    return np.array(values, np.uint8).reshape(height, width)


def _shown(page: Any, number: int) -> np.ndarray:
    """Objects of a frame as they are drawn: the label whose colour lies there, 0 where none does."""
    page.locator(".video-scrub").fill(str(number + 1))
    page.wait_for_function(f"() => document.querySelector('.video').dataset.frame === '{number}'")
    data, width, height = page.evaluate(
        f"(() => {{ const {{ context, painting: {{ width, height }} }} = {FILM}.brush;"
        " return [[...context.getImageData(0, 0, width, height).data], width, height]; })()"
    )
    pixels = np.array(data, np.uint8).reshape(height, width, 4)
    colors = np.array(page.evaluate("page.lab.facts.colors.clipObjects"))
    distance = np.abs(pixels[..., None, :3].astype(int) - colors).sum(axis=-1)  # [height, width, colors]
    return np.where(pixels[..., 3] > 0, distance.argmin(axis=-1) + 1, 0).astype(np.uint8)


def _place(page: Any, x: float, y: float) -> dict[str, float]:
    """A point of the stage, from shares of its width and height."""
    box = page.locator("#video .lab-stage").bounding_box()
    return {"x": x * box["width"], "y": y * box["height"]}


def _choose(page: Any, tool: str) -> None:
    page.locator(".video .lab-switch").get_by_text(tool, exact=True).click()


def _look_closer(page: Any, resolution: str) -> None:
    """Choose another resolution and wait until the first frame is encoded at it."""
    page.evaluate("delete document.querySelector('.video').dataset.encoding")
    page.locator("#size").select_option(resolution)
    page.wait_for_selector(".video[data-encoding]", timeout=60_000)


def _paint(page: Any) -> None:
    """Two strokes: the first object over the square, a second one below."""
    _choose(page, "Paint")
    stage = page.locator("#video .lab-stage")
    stage.click(position=_place(page, 0.2, 0.42))
    page.get_by_role("button", name="+ Object").click()
    stage.click(position=_place(page, 0.7, 0.8))


def _follow(page: Any) -> None:
    page.get_by_role("button", name="Follow through").click()
    page.wait_for_selector(".video[data-state=done]", timeout=120_000)


def _kept(page: Any, name: str) -> bytes:
    with page.expect_download() as download:
        page.locator(f".video [data-download='{name}']").click()
    return Path(download.value.path()).read_bytes()


def test_tab_opens_with_an_example_and_tells_the_limits(page, lab):
    _open_tab(page)
    assert page.locator(".video-place").inner_text() == f"1 of {example_clips.FRAMES}"
    limits = page.locator("#header").inner_text()
    for figure in ("25 MB", "9 million pixels", "120 frames", "10 seconds", "854 pixels"):
        assert figure in limits
    assert page.get_by_role("button", name="Follow through").is_disabled()
    lab.screenshot(page, "video")


def _without_specks(mask: np.ndarray) -> np.ndarray:
    """Parts of either kind that are smaller than an 800th of the picture become what is around them."""
    for kind in (True, False):
        parts, count = ndimage.label(mask == kind)
        for part in range(1, count + 1):
            if (parts == part).sum() < mask.size / 800:
                mask = np.where(parts == part, not kind, mask)
    return mask


def test_click_marks_the_patches_whose_keys_are_alike(page, lab):
    _open_tab(page)
    page.locator("#video .lab-stage").click(position=_place(page, 0.4, 0.3))
    picture = example_clips.example("sheep").picture(0)
    predictor = AttentionPredictor(lab.model, size=lab.size, precision="fp32", device="cpu")
    predictor.set_image(picture)
    rows, columns = predictor.grid
    keys = predictor.queries_keys()[1][:, predictor.prefix_tokens :].astype(np.float32)  # [heads, patches, d]
    keys = keys.transpose(1, 0, 2).reshape(rows * columns, -1)
    keys -= keys.mean(axis=0)
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    row, column = int(0.3 * rows), int(0.4 * columns)
    alike = (keys @ keys[row * columns + column]).clip(0).reshape(rows, columns)
    kept = component_at(keep_mass_of_maps(alike, 0.9), row, column)
    expected = enlarge(kept, picture.shape[:2])
    radius = round(max(picture.shape[0] / rows, picture.shape[1] / columns))
    expected = _without_specks(refine_edges(expected, picture, radius) > 0.5)
    found = _labels(page) > 0
    agreement = (found & expected).sum() / (found | expected).sum()
    assert agreement > 0.95  # 16 bits on the way


def test_frames_are_followed_and_every_file_decodes_to_what_was_shown(video, lab, tmp_path):
    _paint(video)
    first = _labels(video)
    assert set(np.unique(first)) == {0, 1, 2}
    _follow(video)
    assert video.locator(".video-told").inner_text() == "All 7 frames are followed."
    shown = [_shown(video, number) for number in range(7)]
    np.testing.assert_array_equal(shown[0], first)
    lab.screenshot(video, "video-followed")

    archive = zipfile.ZipFile(io.BytesIO(_kept(video, "davis.zip")))
    pictures = []
    for number in range(7):
        mask = Image.open(archive.open(f"Annotations/480p/square/{number:05d}.png"))
        np.testing.assert_array_equal(np.array(mask), shown[number])
        pictures.append(np.array(Image.open(archive.open(f"JPEGImages/480p/square/{number:05d}.jpg"))))
    predictor = AttentionPredictor(lab.model, size=lab.size, precision="fp32", device="cpu")
    for number, labels in enumerate(propagate_frames(pictures, first, predictor, batch=1)):
        np.testing.assert_array_equal(labels, shown[number])  # the library says the same

    (tmp_path / "masks.json").write_bytes(_kept(video, "masks.json"))
    assert json.loads((tmp_path / "masks.json").read_text())["info"]["fps"] == 12
    coco = COCO(tmp_path / "masks.json")
    for annotation in coco.loadAnns(coco.getAnnIds()):
        inside = shown[annotation["image_id"] - 1] == annotation["category_id"]
        np.testing.assert_array_equal(coco.annToMask(annotation) > 0, inside)
    (tmp_path / "overlay.webm").write_bytes(_kept(video, "overlay.webm"))
    assert len(list(VideoFile(tmp_path / "overlay.webm"))) == 7


def test_film_that_is_kept_plays_in_the_browser(video):
    _paint(video)
    _follow(video)
    address = video.evaluate(f"'api/followings/' + {FILM}.run.following + '/files/overlay.webm'")
    length = video.evaluate(
        """async (address) => {
          const film = document.createElement("video");
          film.src = address;
          await new Promise((done, failed) => { film.oncanplay = done; film.onerror = failed; });
          return [film.videoWidth, film.duration];
        }""",
        address,
    )
    assert length == [128, pytest.approx(7 / 12, abs=0.1)]


def test_cancel_keeps_what_is_done(page, film, lab):
    frames = 60
    _send(_open_tab(page), film("long.webm", frames))
    _look_closer(page, "480")  # so that following takes its time
    _paint(page)
    page.get_by_role("button", name="Follow through").click()
    # Clicked by the page itself: from here, the last frame might be done before the click arrives.
    cancel = "document.querySelector('.video-cancel').click()"
    page.wait_for_function(f"() => {FILM}.run?.done > 2 && ({cancel}, true)", timeout=60_000)
    page.wait_for_selector(".video[data-state=cancelled]", timeout=60_000)
    done = page.evaluate(f"{FILM}.run.done")
    assert 2 < done < frames
    assert page.locator(".video-told").inner_text().startswith(f"Stopped: {done} of {frames} frames")
    # The server may have done more while the page's word was on its way: the page asks for what it saw.
    with page.expect_request("**/files/davis.zip?*") as asked:
        names = zipfile.ZipFile(io.BytesIO(_kept(page, "davis.zip"))).namelist()
    assert asked.value.url.endswith(f"&frames={done}")
    assert sum(name.startswith("Annotations") for name in names) == done
    assert _shown(page, done - 1).any()
    assert not _shown(page, done).any()
    assert page.get_by_role("button", name="Follow through").is_enabled()


def test_two_people_do_not_see_each_others_clips(open_page, film):
    one, other = _open_tab(open_page()), _open_tab(open_page())
    _send(one, film("mine.webm", 6, seed=1))
    _send(other, film("theirs.webm", 8, seed=2))
    for page in (one, other):
        _paint(page)
        page.get_by_role("button", name="Follow through").click()
    for page, name, frames in ((one, "mine", 6), (other, "theirs", 8)):
        page.wait_for_selector(".video[data-state=done]", timeout=120_000)
        assert page.evaluate(f"[{FILM}.clip.name, {FILM}.clip.frames, {FILM}.run.done]") == [
            f"{name}.webm",
            frames,
            frames,
        ]
    tokens = [page.evaluate(f"{FILM}.clip.clip") for page in (one, other)]
    assert tokens[0] != tokens[1]


def test_keyboard_alone_paints_chooses_and_takes_back(video):
    stage = video.locator("#video .lab-stage")
    stage.focus()
    video.keyboard.press("b")
    video.keyboard.press("ArrowRight")
    video.keyboard.press("Space")
    painted = _labels(video)
    assert painted.any()
    for keys, expected in [
        (["ArrowDown"] * 5 + ["Space"], "more"),
        (["Control+z"], "painted"),
        (["Control+z"], "none"),
        (["Control+Shift+Z"], "painted"),
        (["e", "ArrowUp", "ArrowUp", "ArrowUp", "ArrowUp", "ArrowUp", "Space"], "none"),
    ]:
        for key in keys:
            video.keyboard.press(key)
        labels = _labels(video)
        if expected == "more":
            assert labels.sum() > painted.sum()
        else:
            np.testing.assert_array_equal(labels, painted if expected == "painted" else 0 * painted)


def test_object_that_is_removed_is_gone_and_comes_back(video):
    _paint(video)
    before = _labels(video)
    video.get_by_role("button", name="Remove object 1").click()
    assert set(np.unique(_labels(video))) == {0, 2}
    video.locator(".video-undo").click()
    np.testing.assert_array_equal(_labels(video), before)


def test_play_walks_through_the_frames_and_pause_stops(video):
    video.get_by_role("button", name="Play").click()
    for number in (3, 6, 0):  # and begins anew
        video.wait_for_function(f"() => document.querySelector('.video').dataset.frame === '{number}'")
    video.get_by_role("button", name="Pause").click()
    assert video.evaluate(f"{FILM}.player") == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.mp4", b""),
        ("text.mp4", b"no film"),
        ("cut.webm", b"\x1a\x45\xdf\xa3\x93\x42\x82\x84webm"),
        ("bad.zip", b"PK\x03\x04"),
    ],
)
def test_what_is_no_clip_is_one_sentence_and_the_clip_stays(video, tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    before = video.locator(".video").get_attribute("data-clip")
    _send(video, tmp_path / name)
    sentence = video.locator("#messages").inner_text()
    assert sentence.endswith(".")
    assert "/" not in sentence
    assert video.locator(".video").get_attribute("data-clip") == before


def test_markup_in_a_name_stays_text(page, film):
    path = film("<img src=x onerror=alert(1)>.webm")
    _send(_open_tab(page), path)
    assert page.locator(".video img[src=x]").count() == 0
    assert page.locator("#header img[src=x]").count() == 0
    assert page.get_by_role("button", name="onerror").count() == 1  # the name is told, as text


def test_narrow_dark_page_is_worked_by_touch(open_page, film, lab):
    page = _open_tab(open_page(390, 844, color_scheme="dark", has_touch=True, is_mobile=True))
    _send(page, film("phone.webm"))
    _choose(page, "Paint")
    page.locator("#video .lab-stage").tap(position=_place(page, 0.2, 0.42))
    assert _labels(page).any()
    _follow(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert _shown(page, 6).any()
    lab.screenshot(page, "video-phone-dark")
