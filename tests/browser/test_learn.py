"""The guided tour: every step sets the stage, asks, and answers with figures of the picture shown."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from app.runs import Runs
from dino_model.predictor import AttentionPredictor

STEPS = ("patches", "heads", "patch", "mask", "supervised", "blocks", "random", "teacher")


@pytest.fixture(scope="module")
def tour(browser, address):
    """The page with the tour open; one for all tests, each of which goes to the step it needs."""
    context, errors = browser.new_context(viewport={"width": 1280, "height": 900}), []
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    page.wait_for_selector(".explore[data-token]", timeout=60_000)
    yield _open(page)
    context.close()
    assert errors == []


@pytest.fixture(scope="module")
def predictor(lab) -> AttentionPredictor:
    """The embedded model, looking at the picture of the tour."""
    from dino_model import photographs

    library = AttentionPredictor("embedded", size=lab.size, precision="fp32", device="cpu")
    library.set_image(photographs.picture("kitten"))
    return library


def _open(page):
    page.get_by_role("tab", name="Learn").click()
    expect(page.locator(".tour")).to_have_attribute("data-step", STEPS[0], timeout=60_000)
    return page


def _go(page, step: str):
    page.locator(".tour-steps button").nth(STEPS.index(step)).click()
    expect(page.locator(".tour")).to_have_attribute("data-step", step, timeout=60_000)
    return page.locator(f"article[data-step={step}]")


def test_every_step_ends_with_a_question_an_answer_and_the_papers_section(tour, lab):
    _go(tour, STEPS[0])
    for number, step in enumerate(STEPS, 1):
        expect(tour.locator(".tour")).to_have_attribute("data-step", step, timeout=60_000)
        article = tour.locator("article:visible")
        expect(article).to_have_count(1)
        assert article.locator(".tour-question").inner_text().endswith("?")
        assert not article.locator("details p").is_visible()
        article.locator("summary").click()
        assert article.locator("details p").is_visible()
        links = article.locator(".tour-paper a").all()
        assert links
        for link in links:
            section = link.inner_text().removeprefix("section ")
            kind = "sub" * section.count(".") + "section"
            assert link.get_attribute("href") == f"https://arxiv.org/pdf/2104.14294v2#{kind}.{section}"
        assert tour.locator(".tour-steps [aria-current=step]").inner_text() == str(number)
        assert all(article.locator("[data-live]").evaluate_all("all => all.map((one) => one.value !== '')"))
        lab.screenshot(tour, f"learn-{number}-{step}")
        if step != STEPS[-1]:
            tour.get_by_role("button", name="Next").click()
    assert not tour.get_by_role("button", name="Next").is_visible()


def test_first_answer_counts_the_tokens(tour, predictor):
    rows, columns = predictor.grid
    article = _go(tour, "patches")
    assert f"{rows * columns:,}" in article.locator("[data-live=grid]").inner_text()
    article.locator("summary").click()
    assert article.locator("[data-live=tokens]").inner_text() == f"{rows * columns + 1:,}"
    assert article.locator("[data-live=tokensFiner]").inner_text() == f"{4 * rows * columns + 1:,}"


def test_stage_shows_the_librarys_maps(tour, predictor):
    _go(tour, "heads")
    maps = tour.evaluate(
        "document.querySelector('.tour').tab.viewer.mapsOf(null).heads.map((map) => [...map])"
    )
    expected = predictor.cls_attention()
    np.testing.assert_allclose(np.reshape(maps, expected.shape), expected, atol=1e-3)


def test_widest_and_narrowest_head_are_told_by_entropy(tour, predictor):
    article = _go(tour, "heads")
    article.locator("summary").click()
    maps = predictor.cls_attention().reshape(predictor.heads, -1)
    shares = maps / maps.sum(1, keepdims=True)
    entropies = -(shares * np.log(shares)).sum(1)
    for name, head in (("widest", entropies.argmax()), ("narrowest", entropies.argmin())):
        told = article.locator(f"[data-live={name}]").inner_text()
        assert told.startswith(f"head {head} with {entropies[head]:.2f}")


def test_slider_of_the_mask_step_changes_the_mask(tour):
    _go(tour, "mask")
    before = tour.locator(".tour-seen").inner_text()
    assert before.startswith("[CLS]: 6")
    tour.locator(".tour input[name=mass]").fill("90")
    expect(tour.locator(".tour-seen")).to_contain_text(re.compile("9[0-9] % of the attention"))


def test_blocks_step_moves_through_the_blocks(tour, predictor):
    _go(tour, "blocks")
    tour.locator(".tour input[name=block]").fill("1")
    tour.wait_for_function("() => document.querySelector('.tour').tab.viewer.arrays.number === 0")
    maps = tour.evaluate(
        "document.querySelector('.tour').tab.viewer.mapsOf(null).heads.map((map) => [...map])"
    )
    expected = predictor.cls_attention(block=0)
    np.testing.assert_allclose(np.reshape(maps, expected.shape), expected, atol=1e-3)


def test_random_step_switches_the_weights_and_tells_both_areas(tour):
    article = _go(tour, "random")
    article.locator("summary").click()
    for name in ("randomArea", "trainedArea"):
        assert re.fullmatch(r"[\d.]+ %", article.locator(f"[data-live={name}]").inner_text())
    tour.locator("[data-control=model]").get_by_text("Random").click()
    tour.wait_for_function(
        "() => document.querySelector('.tour').tab.viewer.encoding.model === 'random:embedded'",
        timeout=60_000,
    )


def test_last_step_draws_the_embedded_models_training(tour):
    article = _go(tour, "teacher")
    assert not tour.locator(".tour .lab-stage").is_visible()
    assert tour.locator(".tour-curves path.chart-line").count() == 3
    article.locator("summary").click()
    kl = Runs(None).told("embedded")["curves"]["kl"]["values"][-1]
    assert float(article.locator("[data-live=kl]").inner_text()) == pytest.approx(kl, rel=1e-3)


def test_rapid_steps_end_on_the_last(tour):
    for number in (2, 6, 3, 4, 1, 3):
        tour.locator(".tour-steps button").nth(number).click()
    expect(tour.locator(".tour")).to_have_attribute("data-step", STEPS[3], timeout=60_000)
    assert tour.locator(".tour").get_attribute("data-layer") == "mask"
    expect(tour.locator("article:visible")).to_have_attribute("data-step", STEPS[3])


def test_tour_is_right_on_a_phone_and_in_the_dark(open_page, lab):
    page = _open(open_page(width=390, height=844, color_scheme="dark", has_touch=True, is_mobile=True))
    for step in ("patches", "supervised", "teacher"):
        _go(page, step)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        lab.screenshot(page, f"learn-phone-{step}")
