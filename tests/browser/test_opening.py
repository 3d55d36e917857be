"""How the page opens: an object stands in its own colours, and what is seen is what is downloaded."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dino_model import photographs, quantities
from dino_model.predictor import AttentionPredictor
from segmentation.drawing import display_range

VIEWER = "document.querySelector('.explore').tab.viewer"


@pytest.fixture(scope="module")
def predictor(lab) -> AttentionPredictor:
    library = AttentionPredictor(lab.model, size=lab.size, precision="fp32", device="cpu")
    library.set_image(photographs.picture("kitten"))
    return library


def _likeness(predictor: AttentionPredictor, row: int, column: int) -> np.ndarray:
    """Of one patch's key with every patch's: [rows, columns]."""
    token = predictor.prefix_tokens + row * predictor.grid[1] + column
    values = quantities.likeness(predictor.queries_keys()[1], predictor.prefix_tokens, token)
    return values[predictor.prefix_tokens :].reshape(predictor.grid)


def test_page_opens_with_everything_like_a_patch_of_the_object(open_page, lab, predictor):
    page = open_page(query="")
    state = lab.state(page)
    assert (state["name"], page.evaluate(f"{VIEWER}.quantity")) == ("kitten", "likeness")
    row, column = predictor.patch_at(*photographs.pin("kitten"))
    assert state["patch"] == {"row": row, "column": column}
    np.testing.assert_allclose(lab.maps(page)[0], _likeness(predictor, row, column), atol=2e-3)
    assert page.locator(".explore .lab-where").inner_text() == (
        "Lit: everything like the marked patch. Point anywhere else."
    )
    assert page.url.partition("?")[2] == ""  # the address of the page is its own
    low, high = display_range(_likeness(predictor, row, column))
    told = page.locator(".explore .lab-view > .lab-scale span").all_inner_texts()
    np.testing.assert_allclose([float(one.split()[0]) for one in told], [low, high], atol=2e-3)
    assert [one.partition(" ")[2] for one in told] == ["or less", "or more"]
    lab.screenshot(page, "opening")


def test_attention_of_cls_is_one_click_away(open_page, lab, predictor):
    page = open_page(query="")
    page.get_by_text("Attention", exact=True).first.click()
    page.wait_for_selector(".explore[data-quantity=attention]")
    assert lab.state(page)["patch"] is None
    np.testing.assert_allclose(lab.maps(page), predictor.cls_attention(), atol=1e-3)
    assert page.locator(".explore .lab-title").inner_text() == "Where the network looks"


def test_own_photograph_opens_at_a_patch_that_cls_looks_at(open_page, lab, picture):
    page = open_page(query="")
    path = picture("mine.png", 320, 200, seed=3)
    lab.send(page, path)
    library = AttentionPredictor(lab.model, size=lab.size, precision="fp32", device="cpu")
    library.set_image(np.asarray(Image.open(path)))
    mean = library.cls_attention().mean(axis=0)
    rows, columns = mean.shape
    around = np.zeros((rows, columns))
    for row in range(1, rows - 1):
        for column in range(1, columns - 1):
            around[row, column] = mean[row - 1 : row + 2, column - 1 : column + 2].sum()
    patch = lab.state(page)["patch"]
    assert around[patch["row"], patch["column"]] >= around.max() * (1 - 1e-3)


def _canvas(page: Any) -> np.ndarray:
    """What lies over the photograph: [height, width, 4]."""
    width, height, data = page.evaluate(
        f"""() => {{ const {{ context, canvas }} = {VIEWER}.stage.canvas;
          const {{ width, height }} = canvas;
          return [width, height, [...context.getImageData(0, 0, width, height).data]]; }}"""
    )
    return np.array(data, np.float64).reshape(height, width, 4)


@pytest.mark.parametrize(
    ("query", "layer"),
    [
        ("?layer=light", "light"),
        ("?layer=heat", "heat"),
        ("?quantity=logits&layer=heat&head=1&patch=3,4&pins=3,4", "heat"),
        ("?quantity=attention&layer=heat&head=2", "heat"),
    ],
)
def test_what_is_seen_is_what_is_downloaded_to_the_pixel(open_page, query, layer):
    page = open_page(query=query)
    drawn = _canvas(page)
    picture = photographs.picture("kitten").astype(np.float64)
    assert drawn.shape[:2] == picture.shape[:2]
    if layer == "heat":  # as the style sheet draws the photograph: grey, at half its brightness
        assert "grayscale(1) brightness(0.5)" in page.locator(".explore .lab-stage img").evaluate(
            "(image) => getComputedStyle(image).filter"
        )
        picture = np.repeat((picture @ [0.299, 0.587, 0.114] * 0.5)[..., None], 3, axis=2)
    opacity = float(page.locator(".explore .lab-map").evaluate("(map) => getComputedStyle(map).opacity"))
    alpha = opacity * drawn[..., 3:] / 255
    seen = picture * (1 - alpha) + drawn[..., :3] * alpha
    with page.expect_download() as waiting:
        page.locator("[data-download='overlay.png']").click()
    file = np.array(Image.open(io.BytesIO(Path(waiting.value.path()).read_bytes())))
    assert len(file) > len(seen)  # below the picture, what its colours stand for
    difference = np.abs(seen - file[: len(seen)])
    assert difference.mean() < 0.6
    assert np.quantile(difference, 0.999) <= 4, difference.max()
    # The opacity follows the value; of 256 levels none is the middle, so that zero itself is all but clear.
    assert np.ptp(drawn[..., 3]) == (254 if "logits" in query else 255)
