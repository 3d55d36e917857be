"""Segment in a real browser: what is found is the library's, and so are the scores; every file decodes."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask

from dino_model import photographs, quantities
from dino_model.predictor import AttentionPredictor
from segmentation import discovery
from segmentation.masks import best_head, component_at, enlarge, keep_mass_of_maps
from segmentation.metrics import jaccard

TAB = "document.querySelector('.segment').tab"
STAGE = "#segment .lab-stage"


@pytest.fixture(scope="module")
def predictor(lab) -> AttentionPredictor:
    """The library, looking at the example that the page opens with."""
    from dino_model import photographs

    library = AttentionPredictor(lab.model, size=lab.size, precision="fp32", device="cpu")
    library.set_image(photographs.picture("kitten"))
    return library


@pytest.fixture
def tab(page: Any) -> Any:
    """The page at this tab, with the example on its stage."""
    return _open_tab(page)


def _open_tab(page: Any) -> Any:
    page.get_by_role("tab", name="Segment").click()
    page.wait_for_selector(".segment[data-token]", timeout=60_000)
    page.locator("#segment").get_by_text("Draw", exact=True).click()
    return page


def _choose(page: Any, gallery: str, name: str) -> np.ndarray:
    """Choose a tile by its name; what is on the stage once its objects are here."""
    page.locator(f"#segment {gallery} .lab-tile").filter(has_text=name).click()
    return _shown(page)


def _shown(page: Any) -> np.ndarray:
    """Objects on the stage: [rows, columns]."""
    page.wait_for_function(f"() => {TAB}.view().labels")
    return _array(page, "view().labels")


def _drawn(page: Any) -> np.ndarray | None:
    """The visitor's mask: [height, width], or None while nothing is drawn."""
    return (
        _array(page, "brush.painting.labels").astype(bool)
        if page.evaluate(f"{TAB}.brush.painting.labels !== null")
        else None
    )


def _array(page: Any, labels: str) -> np.ndarray:
    """Labels that the tab's script holds, as bytes [rows, columns]."""
    values, rows, columns = page.evaluate(
        f"(({{ values, rows, columns }}) => [[...values], rows, columns])({TAB}.{labels})"
    )
    return np.array(values, np.uint8).reshape(rows, columns)


def _stroke(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw with the pointer between two places, given as shares of width and height."""
    page.locator(STAGE).scroll_into_view_if_needed()
    box = page.locator(STAGE).bounding_box()
    points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)]
    page.mouse.move(*points[0])
    page.mouse.down()
    page.mouse.move(*points[1], steps=5)
    page.mouse.up()


def _open_mask(page: Any, path: Path) -> None:
    page.set_input_files("#segment input[name=file]", path)


def _scores(page: Any) -> list[list[str]]:
    """The table under the picture, row by row."""
    return [row.split("\t") for row in page.locator("#segment .lab-scores tbody").inner_text().splitlines()]


def _kept(page: Any, name: str) -> bytes:
    with page.expect_download() as download:
        page.locator(f"#segment [data-download='objects/{name}']").click()
    return Path(download.value.path()).read_bytes()


def test_kept_attention_of_every_head_is_the_librarys(tab, lab, predictor):
    maps = predictor.cls_attention()
    for mass in (60, 25):
        tab.locator("#segment input[name=mass]").fill(str(mass))
        for head, map_of_head in enumerate(maps):
            shown = _choose(tab, ".lab-heads", f"Head {head}")
            np.testing.assert_array_equal(shown, keep_mass_of_maps(map_of_head, mass / 100))
        mean = _choose(tab, ".lab-heads", "Mean")
        np.testing.assert_array_equal(mean, keep_mass_of_maps(maps.mean(axis=0), mass / 100))
    lab.screenshot(tab, "segment")


@pytest.mark.parametrize("method", ["LOST", "TokenCut", "Several"])
def test_objects_are_the_librarys(tab, lab, predictor, method):
    _, keys = predictor.queries_keys()
    features = discovery.key_features(keys, predictor.prefix_tokens, predictor.grid)
    found = {
        "LOST": lambda: [discovery.lost(features)],
        "TokenCut": lambda: [discovery.tokencut(features)],
        "Several": lambda: discovery.maskcut(features, 3),
    }[method]()
    expected = np.zeros(predictor.grid, np.uint8)
    for number, one in enumerate(found, 1):
        expected[one.mask] = number
    np.testing.assert_array_equal(_choose(tab, ".lab-methods", method), expected)
    rows = _scores(tab)
    for number, one in enumerate(found, 1):
        assert rows[number - 1][0] == f"Object {number}"
        assert float(rows[number - 1][1].removesuffix(" %")) == pytest.approx(100 * one.mask.mean(), abs=0.51)
    if method == "Several":
        lab.screenshot(tab, "segment-several")


@pytest.mark.parametrize("refined", [False, True], ids=["patches", "refined"])
def test_every_file_decodes_to_what_is_shown(tab, refined):
    if refined:
        tab.locator("#segment input[name=refined]").check()
        tab.wait_for_function(f"() => {TAB}.view().labels?.rows > {TAB}.encoding.rows")
    shown = _choose(tab, ".lab-methods", "Several")
    if refined:
        tab.wait_for_function(f"() => {TAB}.view().labels?.rows > {TAB}.encoding.rows")
        shown = _shown(tab)
    labels = np.array(Image.open(io.BytesIO(_kept(tab, "labels.png"))))
    np.testing.assert_array_equal(labels, enlarge(shown, labels.shape))
    records = json.loads(_kept(tab, "masks.json"))
    assert len(records) == labels.max()
    for number, record in enumerate(records, 1):
        np.testing.assert_array_equal(coco_mask.decode(record["segmentation"]), labels == number)
    overlay = Image.open(io.BytesIO(_kept(tab, "overlay.png")))
    assert overlay.size == labels.shape[::-1]


def test_drawn_mask_is_scored_by_the_librarys_jaccard_and_chooses_the_best_head(tab, lab, predictor):
    _stroke(tab, (0.3, 0.3), (0.6, 0.7))
    truth = _drawn(tab)
    assert 0.02 < truth.mean() < 0.3
    assert truth[int(0.5 * truth.shape[0]), int(0.45 * truth.shape[1])]
    kept = keep_mass_of_maps(predictor.cls_attention(), 0.6)  # [heads, rows, columns]
    scores = [jaccard(enlarge(one, truth.shape), truth) for one in kept]
    for head, score in enumerate(scores):
        _choose(tab, ".lab-heads", f"Head {head}")
        assert float(_scores(tab)[0][2]) == pytest.approx(float(score), abs=6e-4)
    np.testing.assert_array_equal(
        _choose(tab, ".lab-heads", "Best"), kept[best_head(enlarge(kept, truth.shape), truth)[0]]
    )
    assert tab.evaluate(f"{TAB}.chosenHead") == str(int(np.argmax(scores)))
    lab.screenshot(tab, "segment-drawn")


def test_opened_mask_is_scored_and_a_wrong_one_is_refused_in_words(tab, tmp_path, predictor):
    kept = keep_mass_of_maps(predictor.cls_attention(), 0.6)
    height, width = predictor.image_size
    file = tmp_path / "mask.png"
    Image.fromarray(enlarge(kept[1], (height, width)).astype(np.uint8) * 255).save(file)
    _open_mask(tab, file)
    tab.wait_for_function(f"() => {TAB}.brush.painting.labels")
    assert tab.evaluate(f"{TAB}.chosenHead") == "1"
    assert _scores(tab)[0][2] == "1.000"
    before = _drawn(tab)
    (tmp_path / "text.png").write_bytes(b"no picture")
    Image.new("L", (50, 400), 255).save(tmp_path / "tall.png")
    for name, words in (("text.png", "no picture that the browser can read"), ("tall.png", "another shape")):
        _open_mask(tab, tmp_path / name)
        alert = tab.locator("#messages").filter(has_text=words)
        alert.wait_for()
        assert alert.inner_text().endswith(".")
        np.testing.assert_array_equal(_drawn(tab), before)  # what was there stays


def test_keyboard_alone_draws_erases_and_takes_back(tab):
    tab.locator(STAGE).focus()
    for key in ("ArrowDown", "ArrowRight", "Enter"):
        tab.keyboard.press(key)
    once = _drawn(tab)
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    twice = _drawn(tab)
    assert twice.sum() > once.sum() > 0
    tab.keyboard.press("Control+z")
    np.testing.assert_array_equal(_drawn(tab), once)
    tab.locator("#segment input[name=tool]:checked").press("ArrowRight")  # from drawing to erasing
    tab.locator(STAGE).focus()
    for key in ("ArrowDown", "ArrowRight", "Enter"):
        tab.keyboard.press(key)
    assert _drawn(tab) is None


def test_undo_invert_and_clear(tab):
    _stroke(tab, (0.4, 0.4), (0.6, 0.4))
    drawn = _drawn(tab)
    tab.locator("#segment .lab-invert").click()
    np.testing.assert_array_equal(_drawn(tab), ~drawn)
    tab.locator("#segment .lab-clear").click()
    assert _drawn(tab) is None
    for expected in (~drawn, drawn):
        tab.locator("#segment .lab-undo").click()
        np.testing.assert_array_equal(_drawn(tab), expected)


def test_drawn_mask_stays_under_another_model_and_goes_with_the_picture(tab, lab):
    _stroke(tab, (0.4, 0.4), (0.6, 0.4))
    drawn = _drawn(tab)
    lab.pick(tab, "Model", "random:embedded", ".segment")
    np.testing.assert_array_equal(_drawn(tab), drawn)
    tab.reload()
    tab.wait_for_selector(".segment[data-token]", timeout=60_000)
    np.testing.assert_array_equal(_drawn(tab), drawn)  # a reload brings it back
    tab.evaluate("delete document.querySelector('.segment').dataset.token")
    tab.get_by_role("button", name="Komodo dragon").click()
    tab.wait_for_selector(".segment[data-token]", timeout=60_000)
    assert _drawn(tab) is None


def test_photograph_of_explore_is_that_of_every_tab(page, lab, picture):
    lab.send(page, picture("of_mine.png"))
    _open_tab(page)
    assert page.evaluate(f"{TAB}.encoding.name") == "of_mine.png"
    page.get_by_role("button", name="Sheep").click()
    page.wait_for_function(f"() => {TAB}.encoding.name === 'sheep'")
    page.get_by_role("button", name="of_mine.png").click()  # one's own stays one click away
    page.wait_for_function(f"() => {TAB}.encoding.name === 'of_mine.png'")


def test_single_pixel_is_a_picture_like_any_other(tab, tmp_path):
    Image.new("RGB", (1, 1), "white").save(tmp_path / "dot.png")
    tab.set_input_files("#header .lab-choose input", tmp_path / "dot.png")
    tab.wait_for_function(f"() => {TAB}.encoding.name === 'dot.png'")
    assert _shown(tab).shape == (14, 14)


def test_tab_is_right_on_a_phone(open_page, lab):
    page = _open_tab(open_page(390, 844, has_touch=True, is_mobile=True, color_scheme="dark"))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    touch = "(stage) => getComputedStyle(stage).touchAction"
    assert page.locator(STAGE).evaluate(touch) == "none"  # a finger draws
    page.locator("#segment .lab-tools").get_by_text("Click", exact=True).tap()
    assert page.locator(STAGE).evaluate(touch) != "none"  # it scrolls, and a tap takes the object
    page.locator(STAGE).tap()
    assert _drawn(page) is not None
    page.locator("#segment .lab-undo").tap()
    assert _drawn(page) is None
    page.locator("#segment").get_by_text("Draw", exact=True).tap()
    page.locator(STAGE).tap()
    page.wait_for_function(f"() => {TAB}.brush.painting.labels")
    lab.screenshot(page, "segment-phone-dark")
    settings, seen = page.locator("#segment .lab-settings"), "(form) => form.checkVisibility()"
    assert not settings.evaluate(seen)  # folded
    page.locator("#segment .lab-fold > summary").tap()
    assert settings.evaluate(seen)


# ---- a click


def _refined(picture: np.ndarray, patches: np.ndarray) -> np.ndarray:
    """The library's edges: Boolean [height, width]."""
    height, width = picture.shape[:2]
    radius = round(max(height / patches.shape[0], width / patches.shape[1]))
    return discovery.refine_edges(enlarge(patches, (height, width)), picture, radius) > 0.5


def _click_mask(predictor: AttentionPredictor, row: int, column: int) -> np.ndarray:
    """What a click takes, by the library: Boolean [rows, columns]."""
    token = predictor.prefix_tokens + row * predictor.grid[1] + column
    alike = quantities.likeness(predictor.queries_keys()[1], predictor.prefix_tokens, token)
    alike = alike[predictor.prefix_tokens :].reshape(predictor.grid).clip(0)
    return component_at(keep_mass_of_maps(alike, 0.9), row, column)


def _agreement(one: np.ndarray, other: np.ndarray) -> float:
    return float((one & other).sum() / (one | other).sum())


def test_click_takes_what_is_alike_with_the_edges_of_the_picture_and_alt_click_takes_away(
    open_page, lab, predictor
):
    page = open_page(query="?tab=segment", ready=".segment[data-token]")
    stage, picture = page.locator(STAGE), photographs.picture("kitten")
    box, (rows, columns) = stage.bounding_box(), predictor.grid
    row, column = rows // 2, columns // 3
    place = {"x": (column + 0.5) / columns * box["width"], "y": (row + 0.5) / rows * box["height"]}
    assert _drawn(page) is None
    stage.click(position=place)
    expected = _refined(picture, _click_mask(predictor, row, column))
    assert 0 < expected.mean() < 1
    assert _agreement(_drawn(page), expected) > 0.93  # 16 bits on the way, specks are taken off
    assert page.locator(STAGE + " .lab-paint").evaluate(
        "(canvas) => canvas.getContext('2d').getImageData(0, 0, 1, 1).data[3]"
    ) in (0, 175, 255)
    lab.screenshot(page, "click")
    other = {"x": 0.85 * box["width"], "y": 0.1 * box["height"]}
    stage.click(position=other)  # further clicks add
    both = _drawn(page)
    again = _refined(picture, _click_mask(predictor, int(0.1 * rows), int(0.85 * columns)))
    assert _agreement(both, expected | again) > 0.9
    stage.click(position=other, modifiers=["Alt"])
    assert _agreement(_drawn(page), expected & ~again) > 0.85
    page.locator("#segment .lab-undo").click()
    np.testing.assert_array_equal(_drawn(page), both)


def test_clicked_mask_is_kept_as_mask_as_cutout_and_as_coco(open_page):
    page = open_page(query="?tab=segment&photo=sheep", ready=".segment[data-token]")
    stage = page.locator(STAGE)
    box = stage.bounding_box()
    assert page.locator("[data-drawn='mask.png']").is_disabled()
    stage.click(position={"x": 0.5 * box["width"], "y": 0.5 * box["height"]})
    files = {}
    for file in ("mask.png", "cutout.png", "mask.json"):
        with page.expect_download() as waiting:
            page.locator(f"[data-drawn='{file}']").click()
        assert waiting.value.suggested_filename == f"sheep-{file}"
        files[file] = Path(waiting.value.path()).read_bytes()
    picture = photographs.picture("sheep")
    mask = np.array(Image.open(io.BytesIO(files["mask.png"])).convert("L"))
    assert mask.shape == picture.shape[:2]
    assert set(np.unique(mask)) == {0, 255}
    cutout = np.array(Image.open(io.BytesIO(files["cutout.png"])))
    np.testing.assert_array_equal(cutout[..., 3], mask)
    inside = mask == 255
    assert np.abs(cutout[inside][:, :3].astype(int) - picture[inside]).mean() < 3  # through a JPEG
    runs = json.loads(files["mask.json"])
    decoded = coco_mask.decode(coco_mask.frPyObjects(runs, *runs["size"]))
    np.testing.assert_array_equal(decoded, inside)
