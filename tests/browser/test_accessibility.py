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
STAGE = "[...document.querySelectorAll('.lab-cell')].find((one) => one.checkVisibility())"
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
  const panels = [...document.querySelectorAll("[role=tabpanel]")];
  const panel = panels.find(({ style }) => style.display !== "none");
  window.missed = [...panel.querySelectorAll(all)].filter((one) => shown(one) && stop(one));
  document.addEventListener("focusin", ({ target }) => {
    window.missed = window.missed.filter((one) => one !== target);
  });
  document.activeElement?.blur();
  return window.missed.length;
}"""


def _open(page, title: str):
    page.get_by_role("tab", name=title, exact=True).click()
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


def test_stage_of_a_phone_begins_at_the_top_with_one_row_of_tools(phone):
    top = phone.evaluate(f"{STAGE}.getBoundingClientRect().top + scrollY")
    assert top <= 120
    assert phone.evaluate(f"({STAGE}.querySelector('.lab-tools')?.clientHeight ?? 0)") <= 44


def test_keyboard_alone_reaches_everything(desktop):
    operable = desktop.evaluate(OPERABLE)
    assert operable > 3
    for _ in range(MAX_STOPS):
        desktop.keyboard.press("Tab")
        if desktop.evaluate("window.missed.length") == 0:
            break
    missed = desktop.evaluate("window.missed.map((one) => one.outerHTML.slice(0, 160))")
    assert not missed, f"of {operable} the keyboard did not reach:\n" + "\n".join(missed)


def test_journey_through_all_tabs_writes_nothing_to_the_console(desk, address):
    page, messages = desk.new_page(), []
    page.on("console", lambda message: message.type in ("error", "warning") and messages.append(message.text))
    page.goto(address)
    for title, shown in TABS.items():
        page.get_by_role("tab", name=title, exact=True).click()
        page.wait_for_selector(shown, timeout=60_000)
    page.close()
    assert [text for text in messages if "preloaded" not in text] == []  # on a slow machine


ORDER = """() => {
  const { x, y, bottom } = document.activeElement.getBoundingClientRect();
  const parts = ["#header", ".tab-wrapper", "#choices", ".rail", ".work", ".inspector", "footer"];
  return parts.findIndex((name) => document.activeElement.closest(name));
}"""


@pytest.mark.parametrize(("width", "order"), [(1280, [0, 1, 2, 3, 4, 5]), (390, [0, 2, 1, 4, 3, 5])])
def test_keyboard_goes_through_the_page_as_it_is_seen(open_page, width, order):
    page = open_page(query="", width=width, height=844)
    page.evaluate("document.activeElement?.blur()")
    parts: list[int] = []
    for _ in range(60):
        page.keyboard.press("Tab")
        part = page.evaluate(ORDER)
        if part == 6 or len(parts) == len(order):
            break
        if part < 0:
            continue  # the browser's own
        if part not in parts:
            parts.append(part)
        else:
            assert part == parts[-1], "the keyboard returns to a part that it has left"
    assert parts == order
