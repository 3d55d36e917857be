"""Segment in a browser: objects and scores of the package, and files that decode to what is shown."""

import json

import numpy as np
import pytest
from pycocotools import mask as coco_mask

from dino_model import photographs
from dino_model.inference.classifier import read_classifier
from dino_model.inference.predictor import AttentionPredictor
from segmentation import discovery, edges
from segmentation.heads import PatchTask
from segmentation.masks import component_at, enlarge, keep_mass_of_maps
from segmentation.metrics import jaccard
from tests.app.conftest import library_maps
from tests.browser import actions
from tests.browser.actions import export, image, labels

STAGE = "#segment .lab-stage"
VIEW = "viewOf('segment')"


@pytest.fixture
def tab(open_shared):
    """The tab without a mask, ready for clicks."""
    page = open_shared(query="?tab=segment&method=attention", ready="#segment [data-method=attention]")
    page.mouse.move(0, 0)
    page.locator("#segment-aside .lab-methods .lab-tile").first.click()
    page.locator("#segment .lab-tools").get_by_text("+ Click", exact=True).click()
    page.evaluate(f"{VIEW}.set({{ mass: 60, refined: false }})")
    page.locator("#segment .lab-clear").click()
    assert page.evaluate(f"{VIEW}.painting.labels === null")
    return page


def _choose(page, gallery: str, name: str) -> np.ndarray:
    page.locator(f":is(#segment, #segment-aside) {gallery} .lab-tile").filter(has_text=name).click()
    actions.wait(page, f"{VIEW}.labels()")
    return labels(page, f"{VIEW}.labels()")


def _by_hand(page) -> np.ndarray:
    return labels(page, f"{VIEW}.painting.labels").astype(bool)


def _scores(page) -> list[list[str]]:
    return [
        row.split("\t") for row in page.locator("#segment-aside .lab-scores tbody").inner_text().splitlines()
    ]


def _clicked(predictor: AttentionPredictor, row: int, column: int) -> np.ndarray:
    """The mask of a click by the package: Boolean [height, width]."""
    photo = photographs.image("sheep")
    token = predictor.prefix_tokens + row * predictor.grid[1] + column
    similar = library_maps(predictor, "key-similarity", token, 11)[0].clip(0)
    patches = component_at(keep_mass_of_maps(similar, 0.9), row, column)
    radius = round(max(np.divide(photo.shape[:2], patches.shape)))
    return edges.refine_edges(enlarge(patches, photo.shape[:2]), photo, radius) > 0.5


def test_clicks_add_and_subtract_objects_and_files_hold_the_mask(tab, predictor):
    stage, (rows, columns) = tab.locator(STAGE), predictor.grid
    row, column = rows // 2, columns // 3
    stage.click(position=actions.place(tab, STAGE, (column + 0.5) / columns, (row + 0.5) / rows))
    expected = _clicked(predictor, row, column)
    assert jaccard(_by_hand(tab), expected) > 0.93  # the page has 16-bit keys and removes small parts
    place = actions.place(tab, STAGE, 0.85, 0.1)
    stage.click(position=place)
    both, again = _by_hand(tab), _clicked(predictor, int(0.1 * rows), int(0.85 * columns))
    assert jaccard(both, expected | again) > 0.9
    stage.click(position=place, modifiers=["Alt"])
    assert jaccard(_by_hand(tab), expected & ~again) > 0.85
    tab.locator("#segment .lab-undo").click()
    np.testing.assert_array_equal(_by_hand(tab), both)
    files = dict(export(tab, "segment", name) for name in ("mask.png", "cutout.png", "mask.json"))
    mask = image(files["sheep-mask.png"]) == 255
    assert jaccard(mask, enlarge(both, mask.shape)) > 0.99
    np.testing.assert_array_equal(image(files["sheep-cutout.png"])[..., 3] == 255, mask)
    run_lengths = json.loads(files["sheep-mask.json"])
    decoded = coco_mask.decode(coco_mask.frPyObjects(run_lengths, *run_lengths["size"]))
    np.testing.assert_array_equal(decoded.astype(bool), mask)


@pytest.mark.parametrize("method", ["LOST", "MaskCut"])
def test_objects_equal_the_package_and_files_decode_to_what_is_shown(tab, predictor, method):
    _, keys = predictor.queries_keys()
    features = discovery.key_features(keys, predictor.prefix_tokens, predictor.grid)
    shown = _choose(tab, ".lab-methods", method)
    expected = np.zeros(predictor.grid, np.uint8)
    for number, instance in enumerate(
        discovery.find_objects(method.lower(), {"keys": features, "count": 3}), 1
    ):
        expected[instance.mask] = number
        name, share, _ = _scores(tab)[number - 1]
        assert name == f"Object {number}"
        assert float(share.removesuffix(" %")) == pytest.approx(100 * instance.mask.mean(), abs=0.51)
    np.testing.assert_array_equal(shown, expected)
    _check_files(tab, method.lower(), shown)
    tab.evaluate(f"{VIEW}.set({{ refined: true }})")
    actions.wait(tab, f"{VIEW}.labels()?.rows > {VIEW}.encoding.rows")
    _check_files(tab, method.lower(), labels(tab, f"{VIEW}.labels()"))


def _check_files(tab, method: str, shown: np.ndarray) -> None:
    name, content = export(tab, "segment", "labels.png")
    assert name == f"sheep-{method}-labels.png"
    saved = image(content)
    np.testing.assert_array_equal(saved, enlarge(shown, saved.shape))
    records = json.loads(export(tab, "segment", "masks.json")[1])
    assert len(records) == saved.max()
    for number, record in enumerate(records, 1):
        np.testing.assert_array_equal(coco_mask.decode(record["segmentation"]), saved == number)
    assert image(export(tab, "segment", "shown.png")[1]).shape[:2] == saved.shape


def test_strokes_of_two_classes_segment_the_image_and_download(tab, tmp_path):
    tab.evaluate("viewOf('images').all.click()")  # of earlier tests: own images are segmented, too
    tab.locator("#segment-aside .lab-methods .lab-tile").filter(has_text="Scribbles").click()
    actions.stroke(tab, STAGE, (0.4, 0.5), (0.6, 0.5))
    assert tab.evaluate(f"{VIEW}.request") is None  # one class is not enough
    tab.locator("#segment-aside").get_by_text("Background", exact=True).click()
    actions.stroke(tab, STAGE, (0.05, 0.1), (0.95, 0.1))
    actions.wait(tab, f"{VIEW}.segmented === {VIEW}.request.key")  # for the whole stroke
    shown = labels(tab, f"{VIEW}.labels()")
    height, width = shown.shape
    assert (shown[height // 2, int(0.45 * width) : int(0.55 * width)] == 1).mean() > 0.7
    assert (shown[height // 10, width // 10 : -width // 10] == 0).mean() > 0.9
    mask = image(export(tab, "segment", "masks.zip")[1])  # one image: no ZIP
    assert (enlarge(shown, mask.shape) == mask).mean() > 0.97
    name, content = export(tab, "segment", "head.safetensors")
    (tmp_path / name).write_bytes(content)
    assert read_classifier(tmp_path / name, PatchTask).task.labels == (0, 1)
