"""The built book, opened from the disk: it reads on a desk and on a phone, light and dark; search works.

`make docs` builds it; without build/docs these tests are skipped.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dino_model import photographs

BUILT = Path(__file__).parents[2] / "build" / "docs"
KINDS = {
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
    "module": "docs/reference/api/dino_model/attention/index.html",
    "search": "search.html",
}
"""A page of each kind."""
pytestmark = pytest.mark.skipif(
    not (BUILT / "index.html").is_file(), reason="build/docs is not there: `make docs` builds it"
)


@pytest.fixture(scope="module", params=[(1280, "light"), (390, "dark")], ids=["desktop", "phone"])
def page(request: pytest.FixtureRequest, open_elsewhere: Any) -> Any:
    """A page without a network. A request to another machine or an error in a script fails."""
    width, scheme = request.param
    settings = {"color_scheme": scheme, "offline": True}
    opened = open_elsewhere((BUILT / "index.html").as_uri(), "body", width=width, **settings)
    opened.title_of = f"{width}-{scheme}"
    return opened


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_of_each_kind_reads_and_keeps_to_wcag(page: Any, kind: str, lab: Any):
    page.goto((BUILT / KINDS[kind]).as_uri())
    page.wait_for_load_state()
    lab.screenshot(page, f"book-{kind}-{page.title_of}")
    assert page.evaluate(lab.WIDER) <= 0, "wider than the screen"
    assert lab.violations(page) == []


def test_the_lab_sheet_is_two_pages_on_paper(page: Any):
    page.goto((BUILT / "docs" / "lab-sheet.html").as_uri())
    sides = dict.fromkeys(("top", "bottom", "left", "right"), "15mm")
    printed = page.pdf(format="A4", margin=sides)
    assert len(re.findall(rb"/Type\s*/Page\b(?!s)", printed)) == 2


def test_search_finds_a_term_from_the_disk(page: Any):
    page.goto((BUILT / "search.html").as_uri() + "?q=centering")
    for title in ("Glossary", "4 · Collapse and the teacher"):  # results come in one after the other
        page.locator("#search-results li a").get_by_text(title, exact=True).wait_for()


LIVE = "document.querySelector('[data-figure={}]').shadowRoot.querySelector('.live-root')"


@pytest.fixture
def live(page: Any) -> Any:
    """The page of live figures, from the disk."""
    page.goto((BUILT / "docs" / "live.html").as_uri())
    page.wait_for_function("document.querySelectorAll('.live[data-ready]').length === 6", timeout=60_000)
    return page


def test_the_mass_slider_keeps_more_or_fewer_patches_of_every_head(live: Any):
    root = LIVE.format("heads")
    kept = f"""(() => {{
      const maps = {root}.view.mapsOf();
      return maps.heads.map((_, head) => maps.kept(String(head)).filter(Boolean).length);
    }})()"""
    before = live.evaluate(kept)
    live.locator("[data-figure=heads] input[name=mass]").fill("20")
    after = live.evaluate(kept)
    assert len(before) == 6
    assert all(few < many for few, many in zip(after, before, strict=True))


def test_a_point_is_answered_by_the_library_s_own_numbers(live: Any, lab: Any):
    view = f"{LIVE.format('point')}.view"
    live.locator("[data-figure=point] select[name=quantity]").select_option("attention")
    maps = lab.maps(live, view, "{ row: 10, column: 12 }")
    predictor, (height, width) = lab.library("embedded", "sheep"), photographs.image("sheep").shape[:2]
    y, x = int(10.5 * height / maps.shape[1]), int(12.5 * width / maps.shape[2])
    assert predictor.patch_at(y, x) == (10, 12)
    np.testing.assert_allclose(maps, predictor.point_attention(y, x), atol=2e-4)


def test_the_keys_principal_colours_lie_on_the_photograph(live: Any):
    live.locator("[data-figure=point] select[name=quantity]").select_option("key-pca")
    root = LIVE.format("point")
    drawn = f"""(() => {{
      const canvas = {root}.querySelector(".lab-map");
      const {{ data }} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return new Set(data).size;
    }})()"""
    assert live.evaluate(drawn) > 100


def test_one_pointer_asks_the_same_patch_of_trained_and_random_weights(live: Any):
    stage = live.locator("[data-figure=compare] .lab-stage").first
    stage.scroll_into_view_if_needed()
    box = stage.bounding_box()
    live.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.4 * box["height"])
    live.wait_for_function(f"{LIVE.format('compare')}.views[0].hovered")
    patches = live.evaluate(f"{LIVE.format('compare')}.views.map((view) => view.patch)")
    assert patches[0] == patches[1]
    random = live.evaluate(f"{LIVE.format('compare')}.views.map((view) => view.encoding.value.random)")
    assert random == [False, True]


def test_a_class_tells_its_neighbors_and_the_film_and_the_curves_can_be_scrubbed(live: Any):
    text = f"{LIVE.format('classes')}.textContent"
    before = live.evaluate(text)
    live.evaluate(f"{LIVE.format('classes')}.view.choose(0)")
    assert live.evaluate(text) != before, "neighbors are listed"
    live.locator("[data-figure=collapse] input").fill("3")
    steps = live.evaluate(f"{LIVE.format('collapse')}.charts.map((chart) => chart.at)")
    assert steps[0] == steps[1] == live.evaluate("dinoFigures.collapse.runs.both.step[3]")
    film = LIVE.format("video")
    boxes = f"""[".lab-stage", ".lab-photo", ".lab-map"].map((name) => {{
      const {{ top, left, width, height }} = {film}.querySelector(name).getBoundingClientRect();
      return [top, left, width, height].map(Math.round);
    }})"""
    stage, photo, mask = live.evaluate(boxes)
    assert photo == mask == stage, "the masks lie on the frame, and it fills the stage"
    painted = f"[...{film}.canvas.pixels].filter(Boolean).length"
    first = live.evaluate(painted)
    live.locator("[data-figure=video] input[type=range]").fill("20")
    assert live.locator("[data-figure=video] output").inner_text() == "21 of 30"
    assert live.evaluate(painted) not in (0, first)
