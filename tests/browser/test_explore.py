"""Explore in a real browser: what is seen is what the library computes."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask

from dino_model import quantities
from dino_model.predictor import AttentionPredictor
from segmentation.drawing import overlay_heads
from segmentation.masks import enlarge, keep_mass_of_maps


@pytest.fixture(scope="module")
def predictor(lab) -> AttentionPredictor:
    """The library, looking at the example that the page opens with."""
    from dino_model import photographs

    library = AttentionPredictor(lab.model, size=lab.size, precision="fp32", device="cpu")
    library.set_image(photographs.picture("kitten"))
    return library


def test_page_opens_with_an_example_encoded(page, lab, predictor):
    assert page.locator(".lab-tile").count() == 3 + predictor.heads
    assert lab.state(page)["name"] == "kitten"
    assert page.get_by_role("button", name="Kitten").get_attribute("aria-pressed") == "true"
    facts = page.locator(".lab-facts").inner_text()
    assert lab.model in facts
    assert "fp32 on cpu" in facts
    lab.screenshot(page, "explore")


def test_taken_port_and_the_one_used_instead_are_said(server):
    log = server.log.read_text()
    assert f"Port {server.port_asked_for} is taken" in log
    assert f":{server.port_asked_for}/" not in server.address
    assert server.address.rstrip("/") in log


def test_random_weights_are_said_to_be_random(page):
    assert page.locator(".lab-banner").is_visible()


def test_cls_attention_equals_the_library(page, lab, predictor):
    np.testing.assert_allclose(lab.maps(page), predictor.cls_attention(), atol=1e-3)
    assert np.ptp(lab.maps(page)) > 0


def test_hover_equals_the_library(page, lab, predictor):
    stage, (rows, columns) = page.locator(".lab-stage"), predictor.grid
    height, width = predictor.image_size
    for row, column in [(0, 0), (3, 7), (rows - 1, columns - 1), (rows // 2, 2)]:
        stage.hover(position=lab.centre(page, row, column))
        page.wait_for_function(
            "([row, column]) => { const { patch } = document.querySelector('.explore').tab.viewer;"
            " return patch?.row === row && patch?.column === column; }",
            arg=[row, column],
        )
        y, x = (2 * row + 1) * height // (2 * rows), (2 * column + 1) * width // (2 * columns)
        assert predictor.patch_at(y, x) == (row, column)
        np.testing.assert_allclose(lab.maps(page), predictor.point_attention(y, x), atol=1e-3)
        assert f"row {row}, column {column}" in page.locator(".lab-where").inner_text()


def _expected(predictor: AttentionPredictor, quantity: str, token: int, block: int) -> np.ndarray:
    """The library's maps of one token: [heads, rows, columns]."""
    queries, keys = predictor.queries_keys(block)
    values = {
        "attention": lambda: quantities.attention(queries, keys, token),
        "logits": lambda: quantities.logits(queries, keys, token),
        "key-cosine": lambda: quantities.cosines(keys, token),
        "token-cosine": lambda: quantities.cosines(predictor.tokens(block)[None], token),
        "rollout": lambda: quantities.rollout([predictor.queries_keys(one) for one in range(block + 1)])[
            token, None
        ],
    }[quantity]()
    return values[:, predictor.prefix_tokens :].reshape(-1, *predictor.grid)


@pytest.mark.parametrize("quantity", ["attention", "logits", "key-cosine", "token-cosine", "rollout"])
def test_every_quantity_under_the_pointer_equals_the_library(page, lab, predictor, quantity):
    atol = 4e-6 if quantity == "rollout" else 1e-3  # shares that all blocks have levelled
    for block, (row, column) in ((11, (4, 6)), (5, (12, 0))):
        lab.choose_quantity(page, quantity, block)
        assert page.evaluate("() => document.querySelector('.explore').tab.viewer.patch") is None
        expected = _expected(predictor, quantity, 0, block)
        np.testing.assert_allclose(lab.maps(page), expected, atol=atol)
        page.locator(".lab-stage").hover(position=lab.centre(page, row, column))
        page.wait_for_function("() => document.querySelector('.explore').tab.viewer.patch !== null")
        token = predictor.prefix_tokens + row * predictor.grid[1] + column
        expected = _expected(predictor, quantity, token, block)
        assert np.ptp(expected) > max(atol, 1e-4)
        np.testing.assert_allclose(lab.maps(page), expected, atol=atol)
        page.locator("h1").hover()


@pytest.mark.parametrize("quantity", ["key-pca", "token-pca"])
def test_principal_components_on_the_screen_are_the_librarys_colors(page, lab, predictor, quantity):
    lab.choose_quantity(page, quantity, 7)
    features = predictor.token_features(7)
    if quantity == "key-pca":
        keys = predictor.queries_keys(7)[1][:, predictor.prefix_tokens :]
        features = keys.transpose(1, 0, 2).reshape(*predictor.grid, -1)
    expected = quantities.principal_colors(features)
    found = page.evaluate("() => [...document.querySelector('.explore').tab.viewer.arrays.colors]")
    np.testing.assert_allclose(np.reshape(found, expected.shape), expected, atol=1e-3)
    pixels = page.evaluate(
        """() => { const { viewer } = document.querySelector(".explore").tab;
          const { context, canvas } = viewer.stage.canvas;
          return [...context.getImageData(0, 0, canvas.width, canvas.height).data]; }"""
    )
    shown = np.reshape(pixels, (*predictor.grid, 4))[..., :3]
    assert np.abs(shown - 255 * expected).max() <= 1
    assert not page.locator("[data-download='mask.png']").is_visible()
    page.locator(".lab-stage").hover(position=lab.centre(page, 2, 3))
    page.get_by_text(f"red {expected[2, 3, 0]:.2f}").wait_for()
    lab.screenshot(page, quantity)


def test_other_blocks_come_on_demand_and_equal_the_library(page, lab, predictor):
    lab.slide(page, "block", 3)
    page.wait_for_function("() => document.querySelector('.explore').tab.viewer.arrays.number === 2")
    np.testing.assert_allclose(lab.maps(page), predictor.cls_attention(block=2), atol=1e-3)
    assert page.locator(".lab-block output").inner_text() == "3 of 12"


def test_leaving_the_picture_returns_to_cls(page, lab, predictor):
    page.locator(".lab-stage").hover(position=lab.centre(page, 4, 4))
    page.wait_for_function("() => document.querySelector('.explore').tab.viewer.patch !== null")
    page.locator("h1").hover()
    page.wait_for_function("() => document.querySelector('.explore').tab.viewer.patch === null")
    np.testing.assert_allclose(lab.maps(page), predictor.cls_attention(), atol=1e-3)


def test_rapid_clicks_end_on_the_last(page, lab):
    stage = page.locator(".lab-stage")
    box = stage.bounding_box()
    patches = [(1, 1), (9, 2), (2, 15), (12, 12), (7, 5)]
    for row, column in patches:
        place = lab.centre(page, row, column)
        page.mouse.click(box["x"] + place["x"], box["y"] + place["y"])
    state = lab.state(page)
    assert [(pin["row"], pin["column"]) for pin in state["pins"]] == patches
    assert (state["patch"]["row"], state["patch"]["column"]) == patches[-1]
    page.locator("h1").hover()  # the pin stays when the pointer leaves
    assert "row 7, column 5" in page.locator(".lab-where").inner_text()
    lab.screenshot(page, "pins")


def test_ninth_pin_takes_the_place_of_the_oldest(page, lab):
    for column in range(9):
        page.locator(".lab-stage").click(position=lab.centre(page, 6, 2 * column))
    pins = lab.state(page)["pins"]
    assert [pin["column"] for pin in pins] == [2, 4, 6, 8, 10, 12, 14, 16]
    assert len({pin["color"] for pin in pins}) == 8


def test_keyboard_alone_points_pins_removes_and_takes_back(page, lab):
    page.locator(".lab-stage").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    state = lab.state(page)
    middle = (state["rows"] // 2, state["columns"] // 2)
    assert [(pin["row"], pin["column"]) for pin in state["pins"]] == [(middle[0] + 1, middle[1] + 2)]
    page.keyboard.press("Delete")
    assert lab.state(page)["pins"] == []
    page.keyboard.press("Control+z")
    assert len(lab.state(page)["pins"]) == 1
    page.keyboard.press("Escape")
    assert lab.state(page)["patch"] is None


def test_lists_passed_by_keyboard_change_nothing(page, lab):
    page.locator(".lab-stage").click(position=lab.centre(page, 2, 3))
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.locator("#header .lab-choose input").focus()
    for _ in range(4):  # through both lists and out of them
        page.keyboard.press("Tab")
        page.evaluate("() => new Promise((done) => setTimeout(done, 100))")  # what follows has been asked for
    assert asked == []
    assert len(lab.state(page)["pins"]) == 1


def test_picture_seen_before_is_not_fetched_again(page, lab):
    def look(name: str) -> np.ndarray:
        page.evaluate("delete document.querySelector('.explore').dataset.token")
        page.locator(f"[data-example={name}]").click()
        page.wait_for_selector(".explore[data-token]")
        return lab.maps(page)

    first, other = look("owl"), look("komodo")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    np.testing.assert_array_equal(look("owl"), first)
    assert not [url for url in asked if "/blocks/" in url]
    assert first.shape != other.shape or (first != other).any()


def test_arrow_keys_walk_through_the_gallery(page, lab):
    page.locator(".lab-tile[tabindex='0']").focus()
    before = lab.state(page)["show"]
    page.keyboard.press("ArrowRight")
    assert lab.state(page)["show"] != before
    assert page.locator(".lab-tile:focus").get_attribute("aria-checked") == "true"


def test_readout_tells_patch_entropy_mass_and_area(page, lab):
    page.locator(".lab-tile", has_text="Head 1").click()
    lab.slide(page, "mass", 40)
    page.locator(".lab-stage").hover(position=lab.centre(page, 3, 4))
    row = lab.maps(page)[1].astype(np.float64)
    row /= row.sum()
    kept = keep_mass_of_maps(row[None], 0.4)[0]
    entropy = -(row * np.log(row)).sum()
    assert page.locator(".lab-where").inner_text().startswith("Patch row 3, column 4 ")
    assert page.locator(".lab-what").inner_text() == (
        f"Head 1: {row[kept].sum():.0%} of the attention on {kept.mean():.0%} of the picture · "
        f"entropy {entropy:.2f} of {np.log(row.size):.2f} nats"
    ).replace("%", " %")


def test_kept_masks_equal_the_librarys_to_the_patch(page, lab):
    for mass in (10, 35, 60, 99, 100):
        lab.slide(page, "mass", mass)
        kept = page.evaluate(
            """() => { const { tab: explorer } = document.querySelector(".explore");
              const maps = explorer.viewer.mapsOf();
              return maps.heads.map((_, head) => [...maps.kept(String(head))]); }"""
        )
        expected = keep_mass_of_maps(lab.maps(page), mass / 100)
        np.testing.assert_array_equal(np.array(kept, bool).reshape(expected.shape), expected)
        assert page.locator(".lab-mass output").inner_text() == f"{mass} %"


@pytest.mark.parametrize("quantity", ["logits", "token-cosine"])
def test_masks_of_signed_quantities_equal_the_librarys(page, lab, quantity):
    lab.choose_quantity(page, quantity)
    for mass in (20, 60):
        lab.slide(page, "mass", mass)
        kept = page.evaluate("() => { const e = document.querySelector('.explore').tab;"
                             " return [...e.viewer.mapsOf(null).kept('mean')]; }")  # fmt: skip
        mean = page.evaluate("() => { const e = document.querySelector('.explore').tab;"
                             " return [...e.viewer.mapsOf(null).map('mean')]; }")  # fmt: skip
        shape = lab.maps(page).shape[1:]
        weights = quantities.above_least(np.array(mean, np.float32).reshape(shape))
        np.testing.assert_array_equal(np.reshape(kept, shape), keep_mass_of_maps(weights, mass / 100))


def test_script_breaks_ties_as_the_library_does(page):
    rng = np.random.default_rng(0)
    maps = rng.integers(0, 4, (50, 6, 7)).astype(np.float32) / 64  # few values: many ties
    maps[:, 0, 0] = 1 / 64  # no map sums to zero
    for mass in (0.2, 0.5, 0.6, 0.9):
        kept = page.evaluate(
            """async ([maps, mass]) => {
              const { src } = document.querySelector("script[type=module]");
              const { keepMass } = await import(new URL("maths/attention.js", src));
              return maps.map((map) => [...keepMass(Float32Array.from(map), mass)]);
            }""",
            [maps.reshape(50, -1).tolist(), mass],
        )
        expected = keep_mass_of_maps(maps, mass)
        np.testing.assert_array_equal(np.array(kept, bool).reshape(expected.shape), expected)


def test_mask_on_the_stage_is_the_kept_mask(page, lab):
    page.get_by_text("Mask", exact=True).click()
    page.locator(".lab-tile").nth(3).click()  # head 0
    alpha = page.evaluate(
        """() => { const { canvas } = document.querySelector(".explore").tab.viewer.stage;
          const { data } = canvas.context.getImageData(0, 0, canvas.canvas.width, canvas.canvas.height);
          return [...data].filter((_, index) => index % 4 === 3); }"""
    )
    expected = keep_mass_of_maps(lab.maps(page)[0], 0.6)
    np.testing.assert_array_equal(np.array(alpha).reshape(expected.shape) == 255, expected)
    lab.screenshot(page, "mask")


def _download(page, file: str) -> tuple[str, bytes]:
    with page.expect_download() as waiting:
        page.locator(f"[data-download='{file}']").click()
    download = waiting.value
    return download.suggested_filename, Path(download.path()).read_bytes()


@pytest.mark.parametrize("quantity", ["attention", "logits", "key-cosine", "token-cosine"])
def test_downloads_decode_to_what_was_shown(page, lab, quantity):
    lab.choose_quantity(page, quantity, 8)
    page.locator(".lab-stage").click(position=lab.centre(page, 5, 9))
    head = 0 if quantity == "token-cosine" else 1
    if quantity != "token-cosine":
        page.locator(".lab-tile").nth(4).click()
    lab.slide(page, "mass", 45)
    page.get_by_text("Mask", exact=True).first.click()
    shown = page.evaluate(
        """() => { const { viewer } = document.querySelector(".explore").tab;
          return [...viewer.mapsOf().kept(viewer.shown)]; }"""
    )
    shown = np.array(shown, bool).reshape(lab.maps(page).shape[1:])

    name, content = _download(page, "mask.png")
    assert name == "kitten-mask.png"
    mask = np.array(Image.open(io.BytesIO(content)))
    assert set(np.unique(mask)) == {0, 255}
    np.testing.assert_array_equal(mask == 255, enlarge(shown, (480, 640)))

    name, content = _download(page, "mask.json")
    assert name == "kitten-mask.json"
    np.testing.assert_array_equal(coco_mask.decode(json.loads(content)), mask == 255)

    name, content = _download(page, "maps.npz")
    assert name == "kitten-maps.npz"
    arrays = np.load(io.BytesIO(content), allow_pickle=False)
    np.testing.assert_allclose(arrays["maps"], lab.maps(page), atol=1e-3)
    np.testing.assert_array_equal(arrays["mask"][head], shown)
    told = {name: str(arrays[name]) for name in ("quantity", "query", "block", "model")}
    assert told == {"quantity": quantity, "query": "5,9", "block": "8", "model": lab.model}


def test_copied_python_computes_what_is_on_the_screen(open_page, address, lab, tmp_path, monkeypatch):
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    monkeypatch.chdir(tmp_path)
    for quantity, show in (("attention", 5), ("logits", 1), ("token-cosine", 0)):
        lab.choose_quantity(page, quantity, 3)
        if quantity != "token-cosine":
            page.locator(".lab-tile").nth(show).click()
        page.locator(".lab-stage").click(position=lab.centre(page, 3, 2))
        page.locator(".lab-copied").evaluate("(copied) => (copied.textContent = '')")
        page.get_by_role("button", name="Copy Python").click()
        page.get_by_text("Copied.").wait_for()
        found: dict = {}
        exec(compile(page.evaluate("() => navigator.clipboard.readText()"), "view.py", "exec"), found)
        np.testing.assert_allclose(found["maps"], lab.maps(page), atol=1e-3)
        _, content = _download(page, "overlay.png")
        overlay = np.array(Image.open(io.BytesIO(content))).astype(int)
        difference = np.abs(overlay - found["overlay"])
        assert (difference.mean(), difference.max()) < (0.5, 6)  # arrays travel in 16 bits
        assert (tmp_path / "kitten-overlay.png").exists()


def test_python_is_shown_where_the_clipboard_is_closed(page):
    page.evaluate("() => Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.get_by_role("button", name="Copy Python").click()
    code = page.locator(".lab-code code")
    code.wait_for()
    assert "AttentionPredictor(" in code.inner_text()
    assert "by hand" in page.locator(".lab-copied").inner_text()


def test_pins_stand_side_by_side_each_with_its_own_map(page, lab, predictor):
    places = [(2, 3), (10, 15)]
    for row, column in places:
        page.locator(".lab-stage").click(position=lab.centre(page, row, column))
    page.locator(".lab-tile").nth(3).click()  # head 0
    entries = page.locator(".lab-query")
    assert entries.count() == 3  # [CLS] first
    tokens = [0, *(predictor.prefix_tokens + row * predictor.grid[1] + column for row, column in places)]
    for index, token in enumerate(tokens):
        kept = keep_mass_of_maps(_expected(predictor, "attention", token, 11)[0], 0.6).mean()
        note = entries.nth(index).locator(".lab-tile-note").inner_text()
        assert float(note.split()[0]) == pytest.approx(100 * kept, abs=1)
    painted = entries.locator("canvas").evaluate_all("(all) => all.map((one) => one.toDataURL())")
    assert len(set(painted)) == 3
    page.get_by_role("button", name="Remove pin 1").click()
    assert [(pin["row"], pin["column"]) for pin in lab.state(page)["pins"]] == places[1:]
    page.get_by_role("button", name="Undo").first.click()
    assert len(lab.state(page)["pins"]) == 2
    page.get_by_role("button", name="[CLS]").click()
    assert lab.state(page)["patch"] is None


def test_keyboard_chooses_quantities(page, lab):
    page.locator("input[value=attention]").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".explore[data-quantity=logits]")
    assert page.locator(".lab-title").inner_text() == "What the softmax is taken of"
    assert page.locator("[name=colormap]").input_value() == "coolwarm"
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("() => document.querySelector('.explore').tab.viewer.quantity === 'attention'")
    assert page.locator("[name=colormap]").input_value() == "inferno"


def test_quantity_chosen_last_is_the_one_shown(page):
    page.evaluate(
        """() => { const { tab: explorer } = document.querySelector(".explore");
          const chosen = ["token-cosine", "key-pca", "logits", "token-pca", "key-cosine"];
          for (const quantity of chosen) explorer.lab.change({ quantity }); }"""
    )
    page.wait_for_selector(".explore[data-quantity=key-cosine]")
    assert page.evaluate("document.querySelector('.explore').tab.viewer.quantity") == "key-cosine"
    assert page.locator("input[value=key-cosine]").is_checked()


def test_overlay_download_is_the_librarys_picture(page, lab):
    from dino_model import photographs

    name, content = _download(page, "overlay.png")
    assert name == "kitten-overlay.png"
    overlay = np.array(Image.open(io.BytesIO(content)))  # of all heads, whose colours stand for no values
    expected = overlay_heads(photographs.picture("kitten"), lab.maps(page), mass=0.6, opacity=0.8)
    assert np.abs(overlay.astype(int) - expected).max() <= 1


def test_every_head_of_every_block_stands_in_one_grid_that_follows_the_pointer(page, lab, predictor):
    page.get_by_text("Every head of every block").click()
    page.wait_for_selector(".explore[data-blocks]", timeout=60_000)
    tiles = page.locator(".lab-blocks .lab-tile")
    assert tiles.count() == predictor.blocks * predictor.heads
    read = """([block, head]) => { const { viewer, blocks } = document.querySelector('.explore').tab;
      return [...viewer.mapsOf(viewer.patch, blocks[block]).heads[head]]; }"""
    for block, head in ((0, 2), (7, 0)):
        expected = _expected(predictor, "attention", 0, block)[head]
        np.testing.assert_allclose(page.evaluate(read, [block, head]), expected.ravel(), atol=1e-3)
    cell = page.locator(".lab-blocks [data-key='7 0'] canvas")
    before = cell.evaluate("(canvas) => canvas.toDataURL()")
    page.locator(".lab-stage").hover(position=lab.centre(page, 2, 3))
    page.wait_for_function(
        "(before) => document.querySelector(`[data-key='7 0'] canvas`).toDataURL() !== before", arg=before
    )
    lab.screenshot(page, "blocks")
    page.locator(".lab-blocks [data-key='7 0']").click()
    page.wait_for_selector(".explore[data-block='7']")
    assert lab.state(page)["show"] == "0"
    page.locator(".lab-blocks [data-key='7 0']").focus()
    page.keyboard.press("ArrowDown")  # the same head of the next block
    page.wait_for_selector(".explore[data-block='8']")
    assert page.locator(".lab-blocks [aria-checked=true]").get_attribute("data-key") == "8 0"


def test_colours_of_stage_and_thumbnails_have_numbers(page, lab):
    page.locator(".lab-tile").nth(4).click()  # head 1
    stage = page.locator(".explore .lab-view > .lab-scale span").all_inner_texts()
    low, high = page.evaluate("document.querySelector('.explore').tab.viewer.maps.scale('1')")
    assert stage == [f"{100 * low:.4g} % or less", f"{100 * high:.4g} % or more"]
    scales = page.locator(".lab-side .lab-tile .lab-scale")
    told = [one.locator("span").all_inner_texts() for one in scales.all() if one.is_visible()]
    assert len(told) == 5  # mean, max and three heads; all heads in one have no scale
    ends = [[float(end.split()[0]) for end in ends] for ends in told]
    assert all(first < last for first, last in ends)
    assert ends[3] == pytest.approx([100 * low, 100 * high], rel=0.06)  # two figures
    page.get_by_text("Mask", exact=True).first.click()  # a patch is kept or not
    assert not any(one.is_visible() for one in scales.all())


def test_picture_comes_nearer_and_what_is_pointed_at_stays(page, lab):
    stage = page.locator(".explore .lab-stage")
    place = lab.centre(page, 4, 15)
    stage.hover(position=place)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -70)
    page.keyboard.up("Control")
    view = page.evaluate("document.querySelector('.explore').tab.viewer.stage.view")
    assert view["scale"] == pytest.approx(2.01, abs=0.02)
    stage.hover(position={**place, "x": place["x"] + 1})  # the same patch, twice as large
    page.wait_for_timeout(50)
    assert lab.state(page)["patch"] == {"row": 4, "column": 15}
    box = stage.bounding_box()
    page.mouse.move(box["x"] + place["x"], box["y"] + place["y"])
    page.mouse.down()
    page.mouse.move(box["x"] + place["x"] - 60, box["y"] + place["y"], steps=4)
    page.mouse.up()
    moved = page.evaluate("document.querySelector('.explore').tab.viewer.stage.view")
    assert (moved["left"] - view["left"]) * box["width"] == pytest.approx(-60, abs=4)
    assert lab.state(page)["pins"] == []  # a drag pins nothing
    lab.screenshot(page, "nearer")
    page.get_by_role("button", name="The whole picture").click()
    assert page.evaluate("document.querySelector('.explore').tab.viewer.stage.view.scale") == 1
    assert not page.get_by_role("button", name="Farther").is_visible()
    stage.focus()
    for key in ("+", "+", *["ArrowRight"] * 12):
        page.keyboard.press(key)
    seen = page.evaluate(
        """() => { const { stage } = document.querySelector('.explore').tab.viewer;
          return stage.view.left + stage.cursor.x * stage.view.scale; }"""
    )
    assert 0 <= seen <= 1  # the arrow keys never lead out of sight


@pytest.mark.parametrize("own", [False, True])
def test_all_photographs_in_one_sheet_and_one_zip(page, lab, picture, own):
    page.get_by_text("Likeness", exact=True).click()
    page.wait_for_selector(".explore[data-quantity=likeness]")
    if own:
        page.set_input_files(
            "#header .lab-choose input", [picture("a.png", seed=1), picture("b.png", seed=2)]
        )
        page.locator("[data-example][title='b.png'][aria-pressed=false]").wait_for(timeout=60_000)
        page.wait_for_function("() => document.querySelector('.explore').tab.encoding.name === 'a.png'")
    count = 2 if own else 8
    page.get_by_text(f"All {count} photographs").wait_for()
    with page.expect_download(timeout=120_000) as waiting:
        page.get_by_role("button", name="Contact sheet").click()
    sheet = Image.open(waiting.value.path())
    assert sheet.width > 2 * 240
    with page.expect_download(timeout=120_000) as waiting:
        page.get_by_role("button", name="zip").click()
    with zipfile.ZipFile(waiting.value.path()) as archive:
        names = archive.namelist()
        assert len(names) == 3 * count
        first = "01-a" if own else "01-kitten"
        maps = np.load(io.BytesIO(archive.read(f"{first}-maps.npz")))["maps"]
    np.testing.assert_allclose(maps, lab.maps(page), atol=2e-3)  # each asks its own object


def _hold(page, address):
    """Questions that wait to be let go on."""
    held = []
    page.route(address, lambda route: held.append(route))
    return held


def test_a_sheet_and_all_blocks_come_beside_each_other(page, lab, picture):
    lab.send(page, picture("a.png", seed=1))
    blocks, sheets = _hold(page, "**/blocks/5"), _hold(page, "**/api/sheets/**")
    page.get_by_text("Every head of every block").click()
    page.wait_for_function("() => document.querySelector('.explore').tab.blocks.length === 5")
    with page.expect_request("**/api/sheets/**", timeout=60_000):
        page.get_by_role("button", name="Contact sheet").click()
    blocks.pop().continue_()
    page.wait_for_selector(".explore[data-blocks]", timeout=60_000)
    page.get_by_text("Likeness", exact=True).click()
    page.wait_for_selector(".explore[data-blocks$=' likeness']", timeout=60_000)
    with page.expect_download(timeout=60_000) as waiting:
        sheets.pop().continue_()
    assert waiting.value.suggested_filename.endswith(".png")


def test_model_and_resolution_can_be_chosen(page, lab):
    lab.pick(page, "Resolution, short side", "336")
    state = lab.state(page)
    assert (state["rows"], state["columns"]) == (21, 28)
    assert state["name"] == "kitten"  # the picture stays


def test_phone_has_no_sideways_scroll(open_page, lab):
    page = open_page(width=390, height=844, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    stage = page.locator(".lab-stage")
    stage.scroll_into_view_if_needed()
    stage.tap(position=lab.centre(page, 3, 4))
    assert [(pin["row"], pin["column"]) for pin in lab.state(page)["pins"]] == [(3, 4)]
    lab.screenshot(page, "phone")


def test_dark_page_is_dark(open_page, lab):
    page = open_page(color_scheme="dark")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    ink = page.evaluate("getComputedStyle(document.querySelector('h1')).color")
    assert max(map(int, ground[4:-1].split(","))) < 40
    assert min(map(int, ink[4:-1].split(","))) > 200
    lab.screenshot(page, "dark")
