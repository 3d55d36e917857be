"""The documentation that `make docs` builds, opened from the disk: pages, search and live figures."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.browser import actions

BUILT = Path(__file__).parents[2] / "build" / "docs"
PAGES = {
    "index": "docs/index.html",
    "readme": "README.html",
    "live": "docs/live.html",
    "map": "docs/paper-map.html",
    "glossary": "docs/glossary.html",
    "lecture": "docs/lecture.html",
    "lesson": "notebooks/1_build_a_vision_transformer.html",
    "guide": "docs/protocols.html",
    "study": "docs/studies.html",
    "commands": "docs/reference/commands.html",
    "module": "docs/reference/api/dino_model/models/attention/index.html",
    "search": "search.html",
}
"""A page of each kind."""
pytestmark = pytest.mark.skipif(
    not (BUILT / "index.html").is_file(), reason="build/docs is missing: `make docs` builds it"
)


@pytest.fixture(params=[(1280, "light"), (390, "dark")], ids=["desktop", "phone"])
def page(request, open_shared):
    """A page without a network. A request to another machine or an error in a script fails."""
    width, scheme = request.param
    settings = {"width": width, "color_scheme": scheme, "offline": True}
    return open_shared(query="", ready="body", address=(BUILT / "index.html").as_uri(), **settings)


@pytest.mark.parametrize("kind", PAGES)
def test_page_of_each_kind_fits_the_screen_and_keeps_to_wcag(page, kind):
    page.goto((BUILT / PAGES[kind]).as_uri())
    page.wait_for_load_state()
    assert page.evaluate(actions.WIDER) <= 0, "wider than the screen"
    assert actions.violations(page) == []


def test_first_page_has_one_title_and_one_pointer_for_trained_and_random_weights(page):
    page.goto((BUILT / "docs" / "index.html").as_uri())
    actions.wait(page, "document.querySelectorAll('.live[data-ready]').length === 1")
    views = f"{_root('opening')}.views"
    assert page.evaluate(f"{views}.map((view) => view.encoding.value.random)") == [False, True]
    page.locator(".lab-stage").first.hover(position={"x": 60, "y": 60})
    actions.wait(page, f"{views}[0].hovered")
    first, second = page.evaluate(f"{views}.map((view) => view.patch)")
    assert first == second
    title = page.locator("h1").inner_text()
    assert page.get_by_text(title.rstrip("#")).locator("visible=true").count() == 1


def test_formulas_are_set_in_the_shipped_font(page):
    page.goto((BUILT / "notebooks" / "3_self_distillation.html").as_uri())
    page.locator("math").first.scroll_into_view_if_needed()
    loaded = "[...document.fonts].some((font) => /STIX Math/.test(font.family) && font.status === 'loaded')"
    actions.wait(page, loaded)


def test_lab_sheet_is_two_pages_on_paper(page):
    page.goto((BUILT / "docs" / "lab-sheet.html").as_uri())
    printed = page.pdf(format="A4", margin=dict.fromkeys(("top", "bottom", "left", "right"), "15mm"))
    assert len(re.findall(rb"/Type\s*/Page\b(?!s)", printed)) == 2


def test_search_finds_a_term_from_the_disk(page):
    page.goto((BUILT / "search.html").as_uri() + "?q=centering")
    for title in ("Glossary", "4 · Collapse and the teacher"):  # results come in one after the other
        page.locator("#search-results li a").get_by_text(title, exact=True).wait_for()


def test_result_of_a_prediction_and_its_text_are_shown_on_request(page):
    page.goto((BUILT / "notebooks" / "5_are_the_features_good.html").as_uri())
    numbers = page.locator("p > strong").filter(has_text=re.compile(r"^[\d.]+$"))
    assert numbers.count() > 5
    assert not any(number.is_visible() for number in numbers.all())
    page.get_by_text("Show the result").first.click()
    assert numbers.first.is_visible()


# --- live figures


@pytest.fixture
def live(page):
    page.goto((BUILT / "docs" / "live.html").as_uri())
    actions.wait(page, "document.querySelectorAll('.live[data-ready]').length === 5")
    return page


def _root(figure: str) -> str:
    return f"document.querySelector('[data-figure={figure}]').shadowRoot.querySelector('.live-root')"


def test_mass_slider_keeps_more_or_fewer_patches_of_every_head(live):
    kept = f"""(() => {{
      const maps = {_root("heads")}.view.mapsOf();
      return maps.heads.map((_, head) => maps.kept(String(head)).filter(Boolean).length);
    }})()"""
    before = live.evaluate(kept)
    live.locator("[data-figure=heads] input[name=mass]").fill("20")
    after = live.evaluate(kept)
    assert len(before) == 6
    assert all(few < many for few, many in zip(after, before, strict=True))


def test_point_has_the_attention_of_the_package_and_colors_of_the_keys(live):
    quantity = live.locator("[data-figure=point] select[name=quantity]")
    quantity.select_option("attention")
    expected = actions.point_attention(actions.reference("embedded", "sheep"), 10, 12)
    maps = actions.maps(live, f"{_root('point')}.view", "{ row: 10, column: 12 }")
    np.testing.assert_allclose(maps, expected, atol=2e-4)
    quantity.select_option("key-pca")
    canvas = live.locator("[data-figure=point] .lab-map")
    pixels = "(one) => new Set(one.getContext('2d').getImageData(0, 0, one.width, one.height).data).size"
    assert canvas.evaluate(pixels) > 100


def test_class_lists_its_neighbors_and_curves_show_a_step(live):
    text = f"{_root('classes')}.textContent"
    before = live.evaluate(text)
    live.evaluate(f"{_root('classes')}.view.choose(0)")
    assert live.evaluate(text) != before
    live.locator("[data-figure=collapse] input").fill("3")
    steps = live.evaluate(f"{_root('collapse')}.charts.map((chart) => chart.at)")
    assert steps[0] == steps[1] == live.evaluate("dinoFigures.collapse.runs.both.step[3]")


def test_video_shows_the_masks_of_a_frame_over_it(live):
    boxes = [
        live.locator(f"[data-figure=video] .lab-{part}").bounding_box() for part in ("stage", "image", "map")
    ]
    assert boxes[0] == pytest.approx(boxes[1], abs=1)
    assert boxes[0] == pytest.approx(boxes[2], abs=1)
    painted = f"[...{_root('video')}.canvas.pixels].filter(Boolean).length"
    first = live.evaluate(painted)
    live.locator("[data-figure=video] input[type=range]").fill("20")
    assert live.locator("[data-figure=video] output").inner_text() == "21 of 30"
    assert live.evaluate(painted) not in (0, first)
