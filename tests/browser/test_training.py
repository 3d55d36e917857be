"""Training in a browser: a log that grows, and the attention of a run's checkpoints."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from playwright.sync_api import expect

from app.backend import Backend
from app.limits import Limits
from app.models import Models
from tests.app.conftest import line, save_milestone, serving, write_run
from tests.browser import actions

SIZE = 128


def _line(step: int, **values: float) -> bytes:
    usual = {"loss": 6 - step / 50, "teacher_entropy": 4.0, "kl": 1.0, "ln_k": math.log(1024)}
    return line(step, **usual | values)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run: 100 of 120 steps, checkpoints at 0, 50 and 100."""
    folder = write_run(tmp_path_factory.mktemp("runs") / "first", *map(_line, range(100)), epochs=12)
    for step in (0, 50, 100):
        save_milestone(folder, step)
    return folder


@pytest.fixture(scope="module")
def tab(open_shared, run: Path):
    """The tab with the run, served by this process."""
    served = Backend(Models(actions.MODEL, run.parent, precision="fp32", device="cpu"), Limits(), SIZE)
    with serving(served) as address:
        page = open_shared("?tab=training", "#checkpoints .lab-view[data-token]", f"{address}/")
        expect(page.locator("#checkpoint-label")).to_have_text("Shown: step 100")
        yield SimpleNamespace(page=page, state=page.locator("#run-state"))
        page.close()


def test_state_and_plots_show_the_run(tab):
    expect(tab.state).to_contain_text("100 of 120 steps")
    expect(tab.page.locator(".vega-embed")).to_have_count(4)


def test_slider_shows_each_checkpoints_own_attention(tab, run: Path):
    for index, step in enumerate((0, 50, 100)):
        actions.slide(tab.page, "checkpoint", index)
        expect(tab.page.locator("#checkpoint-label")).to_have_text(f"Shown: step {step}")
        actions.wait(tab.page, f"viewOf('checkpoints').encoding?.value.model === 'first@{step}'")
        expected = actions.reference(str(run / f"step-{step:08d}.pt"), size=SIZE).cls_attention()
        maps = actions.maps(tab.page, "viewOf('checkpoints')", "null")
        np.testing.assert_allclose(maps, expected, atol=1e-3)


def test_choosing_a_run_again_reads_its_new_lines_and_checkpoints(tab, run: Path):
    warnings = tab.page.locator("#run-warnings")
    with (run / "log.jsonl").open("ab") as log:
        log.write(_line(100, loss=math.nan) + _line(101))
    save_milestone(run, 110)
    actions.pick(tab.page, "run", "first")
    expect(tab.state).to_contain_text("102 of 120 steps")
    expect(warnings).to_contain_text("Values of loss that are not finite: 1")
    expect(tab.page.locator("#checkpoint input[type=range]")).to_have_attribute("max", "3")
    (run / "other").write_bytes(b"".join(_line(step, kl=0.001) for step in range(60)))
    (run / "other").replace(run / "log.jsonl")
    actions.pick(tab.page, "run", "first")
    expect(tab.state).to_contain_text("60 of 120 steps")
    expect(warnings).to_contain_text("KL 0.0010 is near 0")


def test_distillation_of_the_shipped_model_shows_its_own_terms(tab):
    actions.pick(tab.page, "run", "Distillation of embedded")
    terms = tab.page.locator(".vega-embed", has_text="Patches (1 - cos)")
    expect(terms).to_contain_text("Patch attention (KL)")
