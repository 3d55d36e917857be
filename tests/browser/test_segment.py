"""Segment in a browser: objects and scores are those of the library; every file decodes to what is shown."""

import io
import json
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
from tests.browser.actions import download, labels, place, stroke

READY = "#segment .lab-view[data-token]"
STAGE = "#segment .lab-stage"
VIEW = "lab('segment')"


@pytest.fixture(scope="module")
def opened(open_shared: Any) -> Any:
    return open_shared(query="?tab=segment", ready=READY)


@pytest.fixture
def tab(opened: Any) -> Any:
    """The tab without a mask, ready for clicks."""
    opened.mouse.move(0, 0)
    opened.locator("#segment .lab-methods .lab-tile").first.click()
    opened.locator("#segment .lab-tools").get_by_text("Click", exact=True).click()
    opened.evaluate(f"{VIEW}.set({{ mass: 60, refined: false, head: 'best' }})")
    opened.locator("#segment .lab-clear").click()
    return opened


def _choose(page: Any, gallery: str, name: str) -> np.ndarray:
    page.locator(f"#segment {gallery} .lab-tile").filter(has_text=name).click()
    page.wait_for_function(f"() => {VIEW}.labels()")
    return labels(page, f"{VIEW}.labels()")


def _by_hand(page: Any) -> np.ndarray | None:
    drawn = page.evaluate(f"{VIEW}.painting.labels !== null")
    return labels(page, f"{VIEW}.painting.labels").astype(bool) if drawn else None


def _scores(page: Any) -> list[list[str]]:
    return [row.split("\t") for row in page.locator("#segment .lab-scores tbody").inner_text().splitlines()]


def _saved(page: Any, button: str) -> tuple[str, bytes]:
    return download(page, page.get_by_role("button", name=button))


def _agreement(one: np.ndarray, other: np.ndarray) -> float:
    return float((one & other).sum() / (one | other).sum())


def _clicked(predictor: AttentionPredictor, row: int, column: int) -> np.ndarray:
    """The mask of a click by the library: Boolean [height, width]."""
    picture = photographs.image("kitten")
    token = predictor.prefix_tokens + row * predictor.grid[1] + column
    alike = quantities.likeness(predictor.queries_keys()[1], predictor.prefix_tokens, token)
    alike = alike[predictor.prefix_tokens :].reshape(predictor.grid).clip(0)
    patches = component_at(keep_mass_of_maps(alike, 0.9), row, column)
    height, width = picture.shape[:2]
    radius = round(max(height / patches.shape[0], width / patches.shape[1]))
    return discovery.refine_edges(enlarge(patches, (height, width)), picture, radius) > 0.5


def test_click_adds_the_object_and_alt_click_subtracts(tab, predictor):
    stage, (rows, columns) = tab.locator(STAGE), predictor.grid
    row, column = rows // 2, columns // 3
    assert _by_hand(tab) is None
    stage.click(position=place(tab, STAGE, (column + 0.5) / columns, (row + 0.5) / rows))
    expected = _clicked(predictor, row, column)
    assert _agreement(_by_hand(tab), expected) > 0.93  # 16 bits on the way, specks are removed
    other = place(tab, STAGE, 0.85, 0.1)
    stage.click(position=other)
    both, again = _by_hand(tab), _clicked(predictor, int(0.1 * rows), int(0.85 * columns))
    assert _agreement(both, expected | again) > 0.9
    stage.click(position=other, modifiers=["Alt"])
    assert _agreement(_by_hand(tab), expected & ~again) > 0.85
    tab.locator("#segment .lab-undo").click()
    np.testing.assert_array_equal(_by_hand(tab), both)


def test_clicked_mask_is_saved_as_mask_cutout_and_coco(tab):
    tab.locator(STAGE).click()
    files = dict(_saved(tab, button) for button in ("Mask (PNG)", "Cut-out (PNG)", "Mask (COCO)"))
    assert set(files) == {"kitten-mask.png", "kitten-cutout.png", "kitten-mask.json"}
    mask = np.array(Image.open(io.BytesIO(files["kitten-mask.png"])).convert("L")) == 255
    assert mask.shape == photographs.image("kitten").shape[:2]
    cutout = np.array(Image.open(io.BytesIO(files["kitten-cutout.png"])))
    np.testing.assert_array_equal(cutout[..., 3] == 255, mask)
    told = json.loads(files["kitten-mask.json"])
    lengths = coco_mask.frPyObjects(told, *told["size"])
    np.testing.assert_array_equal(coco_mask.decode(lengths).astype(bool), mask)


def test_kept_attention_of_every_head_is_the_librarys(tab, lab, predictor):
    maps = predictor.cls_attention()
    _choose(tab, ".lab-methods", "Attention")
    for mass in (60, 25):
        tab.evaluate(f"{VIEW}.set({{ mass: {mass} }})")
        for head, map_of_head in enumerate(maps):
            shown = _choose(tab, ".lab-heads", f"Head {head}")
            np.testing.assert_array_equal(shown, keep_mass_of_maps(map_of_head, mass / 100))
    lab.screenshot(tab, "segment")


@pytest.mark.parametrize("method", ["LOST", "TokenCut", "MaskCut"])
def test_objects_are_the_librarys(tab, lab, predictor, method):
    _, keys = predictor.queries_keys()
    features = discovery.key_features(keys, predictor.prefix_tokens, predictor.grid)
    found = {
        "LOST": lambda: [discovery.lost(features)],
        "TokenCut": lambda: [discovery.tokencut(features)],
        "MaskCut": lambda: discovery.maskcut(features, 3),
    }[method]()
    expected = np.zeros(predictor.grid, np.uint8)
    for number, one in enumerate(found, 1):
        expected[one.mask] = number
    np.testing.assert_array_equal(_choose(tab, ".lab-methods", method), expected)
    for number, one in enumerate(found, 1):
        name, share, _ = _scores(tab)[number - 1]
        assert name == f"Object {number}"
        assert float(share.removesuffix(" %")) == pytest.approx(100 * one.mask.mean(), abs=0.51)


@pytest.mark.parametrize("refined", [False, True], ids=["patches", "refined"])
def test_every_file_decodes_to_what_is_shown(tab, refined):
    shown = _choose(tab, ".lab-methods", "MaskCut")
    if refined:
        tab.evaluate(f"{VIEW}.set({{ refined: true }})")
        tab.wait_for_function(f"() => {VIEW}.labels()?.rows > {VIEW}.encoding.rows")
        shown = labels(tab, f"{VIEW}.labels()")
    name, content = _saved(tab, "Labels (PNG)")
    assert name == "kitten-maskcut-labels.png"
    saved = np.array(Image.open(io.BytesIO(content)))
    np.testing.assert_array_equal(saved, enlarge(shown, saved.shape))
    records = json.loads(_saved(tab, "Masks (COCO)")[1])
    assert len(records) == saved.max()
    for number, record in enumerate(records, 1):
        np.testing.assert_array_equal(coco_mask.decode(record["segmentation"]), saved == number)
    assert Image.open(io.BytesIO(_saved(tab, "Overlay (PNG)")[1])).size == saved.shape[::-1]


def test_drawn_mask_is_scored_and_chooses_the_best_head(tab, predictor):
    tab.locator("#segment").get_by_text("Draw", exact=True).click()
    stroke(tab, STAGE, (0.3, 0.3), (0.6, 0.7))
    truth = _by_hand(tab)
    _choose(tab, ".lab-methods", "Attention")
    kept = keep_mass_of_maps(predictor.cls_attention(), 0.6)
    scores = [float(jaccard(enlarge(one, truth.shape), truth)) for one in kept]
    for head, score in enumerate(scores):
        _choose(tab, ".lab-heads", f"Head {head}")
        assert float(_scores(tab)[0][2]) == pytest.approx(score, abs=6e-4)
    best = _choose(tab, ".lab-heads", "Best")
    np.testing.assert_array_equal(best, kept[best_head(enlarge(kept, truth.shape), truth)[0]])


def test_answer_about_another_image_is_dropped(tab):
    before = tab.evaluate(f"[...{VIEW}.found.keys()].length")
    tab.evaluate(
        f"""() => {{ const view = {VIEW};
        const found = {{ token: "other", key: "x", rows: 1, columns: 1, runs: [1, 1], seeds: [] }};
        const {{ props }} = view;
        view.props = {{ ...props, found }};
        view.receive();
        view.props = props; }}"""
    )
    assert tab.evaluate(f"[...{VIEW}.found.keys()].length") == before


def test_tab_is_right_on_a_dark_phone(open_page, lab):
    options: dict[str, Any] = {"has_touch": True, "is_mobile": True, "color_scheme": "dark"}
    page = open_page(390, 844, query="?tab=segment", ready=READY, **options)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    touch = "(stage) => getComputedStyle(stage).touchAction"
    assert page.locator(STAGE).evaluate(touch) != "none"  # a finger scrolls, and a tap takes the object
    page.locator(STAGE).tap()
    assert _by_hand(page) is not None
    page.locator("#segment").get_by_text("Draw", exact=True).tap()
    assert page.locator(STAGE).evaluate(touch) == "none"  # a finger draws
    lab.screenshot(page, "segment-phone-dark")
