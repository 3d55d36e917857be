"""Training in a browser: a log that grows, and the attention of a run's checkpoints."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser import actions


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
