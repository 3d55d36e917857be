"""Training in a browser: a log that grows, and the attention of a run's checkpoints."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.app.conftest import save_milestone
from tests.browser import actions
from tests.browser.conftest import log_line


@pytest.fixture(scope="module")
def tab(open_shared):
    """The tab with the run."""
    page = open_shared("?tab=training", "#checkpoints .lab-view[data-token]")
    expect(page.locator("#checkpoint-label")).to_have_text("Shown: step 20")
    return SimpleNamespace(page=page, state=page.locator("#run-state"))


def test_state_and_plots_show_the_run(tab):
    expect(tab.state).to_contain_text("20 of 120 steps")
    expect(tab.page.locator("#run-loss [data-curves='1'] .lab-now")).to_be_attached()


def test_slider_shows_each_checkpoints_own_attention(tab, run: Path):
    for index, step in enumerate((0, 10, 20)):
        actions.slide(tab.page, "checkpoint", index)
        expect(tab.page.locator("#checkpoint-label")).to_have_text(f"Shown: step {step}")
        actions.wait(tab.page, f"viewOf('checkpoints').encoding?.value.model === 'first@{step}'")
        expected = actions.reference(str(run / f"step-{step:08d}.pt")).cls_attention()
        maps = actions.maps(tab.page, "viewOf('checkpoints')", "null")
        np.testing.assert_allclose(maps, expected, atol=1e-3)


def test_choosing_a_run_again_reads_its_new_lines_and_checkpoints(tab, run: Path):
    warnings = tab.page.locator("#run-warnings")
    with (run / "log.jsonl").open("ab") as log:
        log.write(log_line(20, loss=math.nan) + log_line(21))
    save_milestone(run, 30)
    actions.pick(tab.page, "run", "first")
    expect(tab.state).to_contain_text("22 of 120 steps")
    expect(warnings).to_contain_text("Values of loss that are not finite: 1")
    expect(tab.page.locator("#checkpoint input[type=range]")).to_have_attribute("max", "3")
    (run / "other").write_bytes(b"".join(log_line(step, kl=0.001) for step in range(60)))
    (run / "other").replace(run / "log.jsonl")
    actions.pick(tab.page, "run", "first")
    expect(tab.state).to_contain_text("60 of 120 steps")
    expect(warnings).to_contain_text("KL 0.0010 is near 0")


def test_distillation_of_the_shipped_model_shows_its_own_terms(tab):
    actions.pick(tab.page, "run", "Distillation of embedded")
    tab.page.get_by_role("button", name="More curves").click()
    terms = tab.page.locator(".lab-legend", has_text="[CLS] (1 - cos)")
    expect(terms).to_contain_text("Patch attention (KL)")
