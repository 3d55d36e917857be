"""WCAG A and AA by axe-core on every tab, wide and light, and dark on a phone, each kept as a picture.

And the keyboard alone reaches everything.
"""

from typing import Any

import pytest

TABS = {
    "Explore": "#explore .lab-view[data-token]",
    "Segment": "#segment .lab-view[data-token]",
    "Compare": "#compare-right .lab-view[data-token]",
    "Match": "#match .lab-view[data-token]",
    "Class map": "#class-map .lab-view[data-token]",
    "Video": "#film .lab-view[data-token]",
    "Training": "#checkpoints .lab-view[data-token]",
    "Learn": "#learn-view .lab-view[data-token]",
}
"""Titles, and what is on the screen once a tab is."""
TITLES = tuple(TABS)
MOST_STOPS = 250  # of the keyboard on one tab

HIDE = """(hidden) => {
  for (const line of document.querySelectorAll(".lab-problem"))
    Object.assign(line, { hidden, textContent: "The server does not answer." });
}"""
QUIET = """() => new Promise((resolve) => {
  let timer = setTimeout(resolve, 700);
  new MutationObserver(() => { clearTimeout(timer); timer = setTimeout(resolve, 700); })
    .observe(document.body, { subtree: true, childList: true, attributes: true });
})"""
# What can be operated on the tab: of radio buttons and galleries one is a stop, arrow keys go on from there.
OPERABLE = """() => {
  const all = "a[href], button, input, select, textarea, summary, [tabindex]:not([tabindex='-1'])";
  const chosen = ({ name }) => document.querySelector(`input[name="${name}"]:checked`);
  const shown = (one) => one.checkVisibility({ visibilityProperty: true });
  const stop = (one) => !one.disabled && one.tabIndex >= 0 && (one.type !== "radio" || chosen(one) === one);
  const panel = [...document.querySelectorAll("[role=tabpanel]")].find(shown);
  window.missed = [...panel.querySelectorAll(all)].filter((one) => shown(one) && stop(one));
  document.addEventListener("focusin", ({ target }) => {
    window.missed = window.missed.filter((one) => one !== target);
  });
  document.activeElement?.blur();
  return window.missed.length;
}"""


@pytest.fixture(scope="module", params=[(1280, "light"), (390, "dark")])
def page(request: pytest.FixtureRequest, open_elsewhere: Any, address: str) -> Any:
    """The page with axe-core in it, one for all tabs of a width and a colour scheme."""
    width, scheme = request.param
    opened = open_elsewhere(address, TABS["Explore"], width=width, height=844, color_scheme=scheme)
    opened.look = f"{width}-{scheme}"
    return opened


def _open(page: Any, title: str) -> None:
    tab = page.get_by_role("tab", name=title, exact=True)
    if tab.count() == 0:  # a narrow page lists its last tabs in a menu
        page.get_by_role("button", name="More tabs").click()
        tab = page.get_by_role("button", name=title, exact=True)
    tab.click()
    page.wait_for_selector(TABS[title], timeout=60_000)
    page.wait_for_function("() => !document.querySelector('.pending')", timeout=60_000)
    page.evaluate(QUIET)


@pytest.mark.parametrize("title", TITLES)
def test_no_violation_of_wcag_a_or_aa(page: Any, title: str, lab: Any):
    _open(page, title)
    assert page.evaluate(lab.WIDER) <= 0
    lab.screenshot(page, f"tab-{title.lower().replace(' ', '-')}-{page.look}")
    page.evaluate(HIDE, False)
    wrong = lab.violations(page)
    page.evaluate(HIDE, True)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", [(1280, "light")], indirect=True, scope="module")
@pytest.mark.parametrize("title", TITLES)
def test_keyboard_alone_reaches_everything(page: Any, title: str):
    _open(page, title)
    operable = page.evaluate(OPERABLE)
    assert operable > 3
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        if page.evaluate("window.missed.length") == 0:
            break
    missed = page.evaluate("window.missed.map((one) => one.outerHTML.slice(0, 160))")
    assert not missed, f"of {operable} the keyboard never came to:\n" + "\n".join(missed)
