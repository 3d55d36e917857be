"""WCAG A and AA by axe-core on every tab, wide and light, and dark on a phone; and the keyboard alone."""

import pytest

from tests.browser import actions

TABS = {
    "Explore": "#explore .lab-view[data-token]",
    "Segment": "#segment .lab-view[data-token]",
    "Compare": "#compare-right .lab-view[data-token]",
    "Match": "#match .lab-view[data-token]",
    "Class map": "#class-map .lab-view[data-token]",
    "Video": "#tracking .lab-view[data-token]",
    "Training": "#checkpoints .lab-view[data-token]",
    "Learn": "#learn-view .lab-view[data-token]",
}
"""Titles, and the selector of what each tab shows."""
MAX_STOPS = 250  # of the keyboard on one tab
SHOW_PROBLEMS = """(shown) => {
  for (const line of document.querySelectorAll(".lab-problem"))
    Object.assign(line, { hidden: !shown, textContent: "The server does not answer." });
}"""
QUIET = """() => new Promise((resolve) => {
  let timer = setTimeout(resolve, 300);
  new MutationObserver(() => { clearTimeout(timer); timer = setTimeout(resolve, 300); })
    .observe(document.body, { subtree: true, childList: true, attributes: true });
})"""
# Of radio buttons and galleries, the keyboard stops at one element; arrow keys choose the others.
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


def _open(page, title: str):
    tab = page.get_by_role("tab", name=title, exact=True)
    if tab.count() == 0:  # a narrow page lists its last tabs in a menu
        page.get_by_role("button", name="More tabs").click()
        tab = page.get_by_role("button", name=title, exact=True)
    tab.click()
    page.wait_for_selector(TABS[title])
    actions.wait(page, "!document.querySelector('.pending')")
    page.evaluate(QUIET)
    return page


@pytest.fixture(scope="module", params=TABS)
def title(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def desktop(open_shared, title):
    return _open(open_shared(query="", height=844, color_scheme="light"), title)


@pytest.fixture(scope="module")
def phone(open_shared, title):
    return _open(open_shared(query="", width=390, height=844, color_scheme="dark"), title)


def test_tab_has_no_violation_of_wcag_a_or_aa(desktop, phone):
    for page in (desktop, phone):
        assert page.evaluate(actions.WIDER) <= 0
        page.evaluate(SHOW_PROBLEMS, True)
        violations = actions.violations(page)
        page.evaluate(SHOW_PROBLEMS, False)
        assert not violations, "\n".join(violations)


def test_keyboard_alone_reaches_everything(desktop):
    operable = desktop.evaluate(OPERABLE)
    assert operable > 3
    for _ in range(MAX_STOPS):
        desktop.keyboard.press("Tab")
        if desktop.evaluate("window.missed.length") == 0:
            break
    missed = desktop.evaluate("window.missed.map((one) => one.outerHTML.slice(0, 160))")
    assert not missed, f"of {operable} the keyboard did not reach:\n" + "\n".join(missed)
