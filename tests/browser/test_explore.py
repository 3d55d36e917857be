"""Explore in a browser: the stage, and maps that follow the pointer and equal those of the package."""

import io

import numpy as np
import pytest
from playwright.sync_api import expect

from app.store.images import EXAMPLES
from app.values import attention_value
from dino_model import photographs
from dino_model.inference import quantities
from dino_model.inference.predictor import AttentionPredictor
from tests.app.conftest import library_maps
from tests.browser import actions

VIEW = actions.EXPLORER
STAGE = "#explore .lab-stage"
INSIDE = """(selector) => {
  const { top, bottom, left, right, width } = document.querySelector(selector).getBoundingClientRect();
  return width > 20 && top >= 0 && left >= 0 && bottom <= innerHeight && right <= innerWidth;
}"""
TILE = "#explore .lab-tiles .lab-tile:has(:checked) canvas"
CORRELATION = """async (value) => {
  const explore = viewOf("explore");
  explore.props.value = value;
  await explore.reload();
  const { rows, columns } = explore.encoding;
  let state = 1;
  const random = (count) => (state = (state * 48271) % 2147483647) % count;
  const levels = () => {
    const maps = explore.mapsOf({ row: random(rows), column: random(columns) });
    const [low, high] = maps.scale(explore.shown);
    const level = (value) => Math.min(1, Math.max(0, (value - low) / (high - low)));
    return Array.from(maps.map(explore.shown), level);
  };
  return Array.from({ length: 40 }, levels);
}"""
CANVAS = f"""(() => {{
  const {{ context, canvas }} = {VIEW}.stage.canvas;
  const {{ width, height }} = canvas;
  return {{ array: context.getImageData(0, 0, width, height).data, shape: [height, width, 4] }};
}})()"""


@pytest.fixture
def page(open_shared):
    """The page with the attention of the last block, without pins, and nothing under the pointer."""
    page = open_shared()
    page.mouse.move(0, 0)
    page.keyboard.press("Escape")
    actions.choose_quantity(page, "attention")
    page.evaluate(f"{VIEW}.pins.read({{}}, {VIEW}.encoding); {VIEW}.activate(null); {VIEW}.stage.zoomAt(0)")
    return page


def _hover(page, row: int, column: int) -> None:
    page.locator(STAGE).hover(position=actions.center(page, row, column))
    actions.wait(page, f"{VIEW}.patch?.row === {row} && {VIEW}.patch?.column === {column}")


def _choose(page, layer: str, head: int | str) -> None:
    page.locator(f"#layer label:has(input[value={layer}])").click()
    page.evaluate(f"{VIEW}.set({{ head: '{head}' }})")
    page.wait_for_selector(f"#explore [data-layer={layer}][data-show='{head}']")


def test_first_view_explains_itself_once_and_leaves_no_trace(open_page, predictor):
    page = open_page(query="", ready="#explore [data-walk]", reduced_motion="no-preference")
    tiles = page.locator("#explore .lab-tiles").first.locator(".lab-tile")
    assert tiles.count() == predictor.heads + 1
    assert page.locator("#explore .lab-banner").is_visible()  # random weights
    np.testing.assert_allclose(actions.maps(page, VIEW, "null"), predictor.cls_attention(), atol=1e-3)
    page.wait_for_selector("#explore [data-walk=over]")
    assert page.locator("#explore .lab-walker").is_visible()
    assert "?" not in page.url
    assert "attends to the lit places" in page.locator("#explore .lab-bottom").inner_text()
    page.locator(STAGE).hover()
    assert page.locator("#explore .lab-walker").is_hidden()
    still = open_page(query="", ready="#explore [data-walk=over]", reduced_motion="reduce")
    assert still.locator("#explore .lab-walker").is_visible()


def test_two_places_show_different_maps_at_the_default_settings(open_page):
    page = open_page(query="")
    predictor = AttentionPredictor("embedded")
    correlations = []
    for name in EXAMPLES:
        value = attention_value(predictor, photographs.image(name), size=None)
        levels = np.array(page.evaluate(CORRELATION, value), np.float32)
        correlations += [np.corrcoef(*pair)[0, 1] for pair in levels.reshape(20, 2, -1)]
    assert np.mean(correlations) <= 0.4


@pytest.mark.parametrize(("width", "height"), [(640, 480), (300, 600), (1200, 150), (400, 400)])
def test_image_of_every_shape_is_visible_with_its_tiles(open_shared, image_file, width, height):
    file = image_file(f"{width}x{height}.png", width, height)
    for screen in ((1280, 800), (390, 844)):
        page = open_shared(query="", width=screen[0], height=screen[1])
        actions.send_images(page, file)
        actions.wait(page, f"{VIEW}.encoding.name === '{file.name}'")
        assert page.evaluate(INSIDE, STAGE)
        assert page.evaluate(INSIDE, TILE)
        box, cell = (page.locator(selector).bounding_box() for selector in (STAGE, "#explore .lab-cell"))
        spare = [cell[side] - box[side] for side in ("width", "height")]
        assert min(spare) == pytest.approx(0, abs=1), "the image touches two opposite edges"
        assert cell["height"] >= 500 or screen[0] < 500
        assert cell["y"] <= 120
        assert box["width"] / box["height"] == pytest.approx(width / height, rel=0.03)
        assert page.evaluate(actions.WIDER) <= 0


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
        for quantity in ("rollout", "logits", "key-cosine", "token-cosine", "key-pca"):
            expected = library_maps(predictor, quantity, token, block)
            assert np.ptp(expected) > 0.01 * np.abs(expected).max()
            actions.choose_quantity(page, quantity, block)
            _hover(page, row, column)
            colors = f"{{ array: {VIEW}.arrays.colors, shape: {[*expected.shape]} }}"
            found = actions.array(page, colors) if quantity.endswith("pca") else actions.maps(page)
            np.testing.assert_allclose(found, expected, atol=1e-3)
    assert page.locator("#layer").is_hidden()  # the colors of a PCA are the map
    norms = predictor.token_norms(11)
    actions.choose_quantity(page, "token-norm")
    np.testing.assert_allclose(actions.maps(page), norms[None], rtol=1e-3)
    what = page.locator("#explore-aside .lab-what").text_content()
    assert f"{int(quantities.outlier_patches(norms).sum())} outlier" in what
    assert page.locator("#explore-aside .lab-pins").is_hidden()


def test_phone_takes_taps_pinches_and_strokes_of_a_finger(open_page):
    page = open_page(query="", width=390, height=844, color_scheme="dark", has_touch=True, is_mobile=True)
    page.locator(STAGE).tap(position=actions.center(page, 4, 5))
    assert actions.state(page)["pins"] == [[4, 5]]
    box = page.locator(STAGE).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    fingers = page.context.new_cdp_session(page)
    for kind, reach in (("touchStart", 20), *(("touchMove", 20 + 10 * step) for step in range(1, 5))):
        points = [{"x": x - reach, "y": y, "id": 0}, {"x": x + reach, "y": y, "id": 1}]
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    fingers.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert page.evaluate(f"{VIEW}.stage.window.zoom") == pytest.approx(3, rel=0.2)
    assert page.evaluate("visualViewport.scale") == 1
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


@pytest.mark.parametrize(
    ("quantity", "layer", "head"),
    [("attention", "light", "mean"), ("attention", "heat", "2"), ("logits", "heat", "1")],
)
def test_picture_that_is_saved_is_the_stage_to_the_pixel(page, quantity, layer, head):
    actions.choose_quantity(page, quantity)
    _choose(page, layer, head)
    drawn = actions.array(page, CANVAS).astype(np.float64)
    photograph = page.evaluate(f"fetch({VIEW}.stage.image.src).then(async (one) => [...await one.bytes()])")
    image = actions.image(bytes(photograph)).astype(np.float64)
    if layer == "heat":  # as the style sheet draws the image: grayer and darker
        image = 0.6 * (0.35 * image + 0.65 * (image @ [0.213, 0.715, 0.072])[..., None])
    alpha = 0.85 * drawn[..., 3:] / 255
    seen = image * (1 - alpha) + drawn[..., :3] * alpha
    _, content = actions.export(page, "explore", "shown.png", Outlines=False, Pins=False)
    file = actions.image(content)[..., :3]
    assert len(file) > len(seen)  # below the image, the values of its colors
    difference = np.abs(seen - file[: len(seen)])
    assert difference.mean() < 0.6
    assert np.quantile(difference, 0.999) <= 4, difference.max()


def test_other_files_have_outlines_pins_and_frames(page):
    page.locator(STAGE).click(position=actions.center(page, 4, 6))
    svg = actions.export(page, "explore", "shown.svg")[1].decode()
    assert svg.count("<image") == svg.count("<circle") == 1
    pdf = actions.export(page, "explore", "shown.pdf")[1]
    start = int(pdf.rsplit(b"startxref\n", 1)[1].split()[0])
    assert pdf[start : start + 4] == b"xref"
    name, gif = actions.export(page, "explore", "gif", over="blocks")
    assert name.endswith("animation.gif")
    assert actions.Image.open(io.BytesIO(gif)).n_frames == 12


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
