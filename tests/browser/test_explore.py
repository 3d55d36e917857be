"""Explore in a browser: the page shows the values of the package."""

import io
import json

import numpy as np
import pytest
from playwright.sync_api import expect
from pycocotools import mask as coco_mask

from dino_model import photographs
from dino_model.inference import quantities
from segmentation.masks import enlarge, keep_mass_of_maps
from tests.app.conftest import library_maps
from tests.browser import actions

VIEW = actions.EXPLORER
STAGE = "#explore .lab-stage"


@pytest.fixture
def page(open_shared):
    """The page with the attention of the last block, without pins, and nothing under the pointer."""
    page = open_shared()
    page.mouse.move(0, 0)
    page.keyboard.press("Escape")
    actions.choose_quantity(page, "attention")
    page.evaluate(f"{VIEW}.pins.read({{}}, {VIEW}.encoding); {VIEW}.activate(null)")
    return page


def _hover(page, row: int, column: int) -> None:
    page.locator(STAGE).hover(position=actions.center(page, row, column))
    actions.wait(page, f"{VIEW}.patch?.row === {row} && {VIEW}.patch?.column === {column}")


def _choose(page, layer: str, head: int | str) -> None:
    page.locator(f"#layer label:has(input[value={layer}])").click()
    if head == "mean":
        page.evaluate(f"{VIEW}.set({{ head: 'mean' }})")
    else:
        page.locator(f"#explore .lab-tile[data-key='{head}']").first.click()
    page.wait_for_selector(f"#explore [data-layer={layer}][data-show='{head}']")


def test_first_view_shows_the_example_and_the_map_of_every_head(open_page, predictor):
    page = open_page(query="")
    tiles = page.locator("#explore .lab-tiles").first.locator(".lab-tile")
    assert tiles.count() == predictor.heads + 1
    assert tiles.first.inner_text() == "Mean"
    assert tiles.first.is_visible()
    assert actions.state(page)["name"] == "sheep"
    assert page.locator("#explore .lab-banner").is_visible()  # random weights
    np.testing.assert_allclose(actions.maps(page, VIEW, "null"), predictor.cls_attention(), atol=1e-3)


def test_hover_shows_the_attention_of_the_patch_without_a_request(page, predictor):
    page.wait_for_selector("#explore-aside [data-blocks]")  # the film is loaded after a rest
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    rows, columns = predictor.grid
    for row, column in [(0, 0), (3, 7), (rows - 1, columns - 1), (rows // 2, 2)]:
        _hover(page, row, column)
        expected = actions.point_attention(predictor, row, column)
        np.testing.assert_allclose(actions.maps(page), expected, atol=1e-3)
        assert f"row {row}, column {column}" in page.locator("#explore-aside .lab-where").text_content()
    page.locator("h1").hover()
    actions.wait(page, f"{VIEW}.patch === null")
    assert requests == []


def test_every_quantity_equals_the_package(page, predictor):
    for block, (row, column) in ((11, (4, 6)), (5, (12, 0))):
        token = predictor.prefix_tokens + row * predictor.grid[1] + column
        for quantity in ("rollout", "logits", "key-cosine", "token-cosine", "key-pca", "token-pca"):
            expected = library_maps(predictor, quantity, token, block)
            assert np.ptp(expected) > 0.01 * np.abs(expected).max()
            actions.choose_quantity(page, quantity, block)
            _hover(page, row, column)
            colors = f"{{ array: {VIEW}.arrays.colors, shape: {[*expected.shape]} }}"
            found = actions.array(page, colors) if quantity.endswith("pca") else actions.maps(page)
            np.testing.assert_allclose(found, expected, atol=1e-3)


def test_token_norms_mark_outliers_and_have_no_pins(page, predictor):
    norms = predictor.token_norms(11)
    actions.choose_quantity(page, "token-norm")
    np.testing.assert_allclose(actions.maps(page), norms[None], rtol=1e-3)
    what = page.locator("#explore-aside .lab-what")
    assert f"{int(quantities.outlier_patches(norms).sum())} outlier" in what.text_content()
    assert page.locator("#explore-aside .lab-pins").is_hidden()
    _hover(page, 4, 6)
    assert "Norm " in what.text_content()


def test_rapid_clicks_pin_every_patch(page):
    patches = [(1, 1), (5, 9), (10, 3), (2, 12), (8, 8)]
    for row, column in patches:
        page.locator(STAGE).click(position=actions.center(page, row, column))
    assert actions.state(page)["pins"] == [list(patch) for patch in patches]
    assert page.locator("#explore-aside .lab-pins .lab-tile").count() == 6
    assert "pins=1,1;5,9;10,3;2,12;8,8" in page.url


def test_keyboard_alone_points_pins_and_removes(page, predictor):
    page.locator(STAGE).focus()
    row, column = (length // 2 for length in predictor.grid)
    for key in ("ArrowRight", "ArrowDown", "Enter", "ArrowLeft", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    assert actions.state(page)["pins"] == [[row + 1, column + 1], [row, column]]
    page.keyboard.press("Delete")
    assert actions.state(page)["pins"] == [[row + 1, column + 1]]
    page.keyboard.press("Escape")
    assert page.evaluate(f"{VIEW}.patch") is None


def test_downloads_hold_what_is_shown(page, predictor):
    _choose(page, "mask", 1)
    actions.slide(page, "mass", 40)
    actions.wait(page, f"{VIEW}.settings.mass === 40")
    kept = keep_mass_of_maps(predictor.cls_attention()[1:2], 0.4)[0]
    assert page.evaluate(f"[...{VIEW}.maps.kept('1')]") == kept.ravel().tolist()
    expected = enlarge(kept, predictor.image_size)
    files = {name: actions.export(page, "explore", name)[1] for name in ("mask.png", "mask.json", "maps.npz")}
    assert np.array_equal(actions.image(files["mask.png"]) > 0, expected)
    run_lengths = coco_mask.frPyObjects(json.loads(files["mask.json"]), *expected.shape)
    assert np.array_equal(coco_mask.decode(run_lengths).astype(bool), expected)
    with np.load(io.BytesIO(files["maps.npz"])) as archive:
        np.testing.assert_allclose(archive["maps"], predictor.cls_attention(), atol=1e-3)


CANVAS = f"""(() => {{
  const {{ context, canvas }} = {VIEW}.stage.canvas;
  const {{ width, height }} = canvas;
  return {{ array: context.getImageData(0, 0, width, height).data, shape: [height, width, 4] }};
}})()"""

PHOTO = f"""(() => {{
  const {{ image }} = {VIEW}.stage;
  const [width, height] = [image.naturalWidth, image.naturalHeight];
  const context = new OffscreenCanvas(width, height).getContext("2d");
  context.drawImage(image, 0, 0);
  return {{ array: context.getImageData(0, 0, width, height).data, shape: [height, width, 4] }};
}})()"""


@pytest.mark.parametrize(
    ("quantity", "layer", "head", "pins"),
    [
        ("attention", "light", "mean", ""),
        ("attention", "heat", "2", ""),
        ("logits", "heat", "1", "3,4"),
    ],
)
def test_overlay_download_is_the_stage_to_the_pixel(page, quantity, layer, head, pins):
    actions.choose_quantity(page, quantity)
    _choose(page, layer, head)
    words = {"pins": pins, "patch": pins}
    page.evaluate(f"(words) => {VIEW}.changePins(() => {VIEW}.pins.read(words, {VIEW}.encoding))", words)
    drawn = actions.array(page, CANVAS).astype(np.float64)
    image = actions.array(page, PHOTO)[..., :3].astype(np.float64)
    assert drawn.shape[:2] == image.shape[:2] == photographs.image("sheep").shape[:2]
    if layer == "heat":  # as the style sheet draws the image: grayer and darker
        style = page.locator(f"{STAGE} img").evaluate("(image) => getComputedStyle(image).filter")
        assert "saturate(0.35) brightness(0.6)" in style
        image = 0.6 * (0.35 * image + 0.65 * (image @ [0.213, 0.715, 0.072])[..., None])
    opacity = float(page.locator("#explore .lab-map").evaluate("(map) => getComputedStyle(map).opacity"))
    alpha = opacity * drawn[..., 3:] / 255
    seen = image * (1 - alpha) + drawn[..., :3] * alpha
    _, content = actions.export(page, "explore", "shown.png", Outlines=False, Pins=False)
    file = actions.image(content)[..., :3]
    assert len(file) > len(seen)  # below the image, the values of its colors
    difference = np.abs(seen - file[: len(seen)])
    assert difference.mean() < 0.6
    assert np.quantile(difference, 0.999) <= 4, difference.max()


def test_grid_of_all_blocks_opens_the_chosen_head(page, predictor):
    page.get_by_role("button", name="Heads × blocks").click()
    page.wait_for_selector("#explore-aside [data-blocks]")
    tiles = page.locator(".lab-blocks .lab-tile")
    assert tiles.count() == predictor.blocks * predictor.heads
    tiles.nth(4 * predictor.heads + 1).click()
    page.wait_for_selector("#explore [data-block='4']")
    assert page.locator("#explore-aside .lab-film :checked").input_value() == "4"


def test_phone_takes_taps_and_strokes_of_a_finger(open_page):
    page = open_page(query="", width=390, height=844, color_scheme="dark", has_touch=True, is_mobile=True)
    page.locator(STAGE).tap(position=actions.center(page, 4, 5))
    assert actions.state(page)["pins"] == [[4, 5]]
    page.get_by_role("tab", name="Segment").tap()
    page.wait_for_selector("#segment .lab-view[data-token]")
    stage = page.locator("#segment .lab-stage")
    touch = "(stage) => getComputedStyle(stage).touchAction"
    assert stage.evaluate(touch) != "none"  # a finger scrolls the page
    stage.tap()
    assert page.evaluate("viewOf('segment').painting.labels !== null")
    page.locator("#segment").get_by_text("Draw", exact=True).tap()
    assert stage.evaluate(touch) == "none"  # a finger draws


def test_search_finds_the_image_itself_first_and_then_a_part_of_it(open_page):
    page = open_page(query="?image=owl&pins=1,1;2,2")
    page.locator("#search").get_by_text("Search my images").click()
    page.locator("#search-whole").click()
    captions = page.locator("#search-results .caption-label")
    expect(captions).to_have_count(12)
    whole = captions.first.inner_text()
    assert "owl.jpg" in whole
    page.locator("#search-part").click()
    expect(captions.first).not_to_have_text(whole)
    expect(captions).to_have_count(12)


def test_pin_of_the_first_view_walks_once_and_leaves_no_trace(open_page):
    page = open_page(query="", ready="#explore [data-walk]", reduced_motion="no-preference")
    page.wait_for_selector("#explore [data-walk=over]")
    assert page.locator("#explore .lab-walker").is_visible()
    assert "?" not in page.url
    assert "attends to the lit places" in page.locator("#explore .lab-bottom").inner_text()
    page.locator(STAGE).hover()
    assert page.locator("#explore .lab-walker").is_hidden()
    still = open_page(query="", ready="#explore [data-walk=over]", reduced_motion="reduce")
    assert still.locator("#explore .lab-walker").is_visible()
