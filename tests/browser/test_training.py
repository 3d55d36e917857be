"""The tab Training: a log drawn while it grows, and the attention of a run's checkpoints."""

import json
import math
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

from app.lab import Lab
from app.limits import Limits
from app.models import Models
from dino_model.backbones import BackboneConfig, create_backbone
from dino_model.predictor import AttentionPredictor
from tests.app.serving import serving

MODEL, SIZE = "random:vit_tiny/16", 128
BACKBONE = {"architecture": "vit_tiny", "patch_size": 16, "image_size": 64, "depth": 2}
LN_K = math.log(1024)


def _line(step: int, **values: float) -> str:
    usual = {
        "loss": 6 - step / 50,
        "teacher_entropy": 4.0,
        "kl": 1.0,
        "ln_k": LN_K,
        "images_per_second": 80.0,
    }
    return json.dumps({"step": step} | usual | values) + "\n"


def _milestone(folder: Path, step: int) -> None:
    torch.manual_seed(step)
    backbone = create_backbone(BackboneConfig(**BACKBONE))
    method = {f"teacher.backbone.{name}": tensor for name, tensor in backbone.state_dict().items()}
    torch.save({"format": 1, "step": step, "method": method}, folder / f"step-{step:08d}.pt")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that goes on: 100 of 120 steps, checkpoints at 0, 50 and 100."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    folder.mkdir()
    config = {"recipe": {"epochs": 12, "batch_size": 4}, "pictures": 41, "backbone": BACKBONE}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "log.jsonl").write_text("".join(_line(step) for step in range(100)))
    for step in (0, 50, 100):
        _milestone(folder, step)
    return folder


@pytest.fixture(scope="module")
def tab(browser, run: Path):
    """The tab, open at the run, served from this process so that tests can write its log."""
    served = Lab(Models(MODEL, run.parent), Limits(), SIZE, precision="fp32", device="cpu")
    with serving(served) as address:
        context, errors = browser.new_context(viewport={"width": 1280, "height": 900}), []
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        page.get_by_role("tab", name="Training").click()
        expect(page.locator(".run")).to_have_attribute("data-model", "first@100", timeout=60_000)
        yield SimpleNamespace(page=page, run=page.locator(".run"), context=context)
        context.close()
        assert errors == []


def _values(tab, chart: int, curve: str) -> dict:
    return tab.page.evaluate(
        "([chart, curve]) => document.querySelector('.run').tab.charts[chart].runs[0].curves[curve]",
        [chart, curve],
    )


def test_curves_are_the_logs(tab, lab):
    loss = _values(tab, 0, "loss")
    assert loss["steps"] == list(range(100))
    np.testing.assert_allclose(loss["values"], [6 - step / 50 for step in range(100)], rtol=1e-5)
    assert tab.run.locator("path.chart-line").count() == 5  # the k-NN chart says why it is empty
    expect(tab.run.locator(".run-state")).to_contain_text("100 of 120 steps")
    expect(tab.run.locator(".run-state")).to_contain_text("Live")
    assert tab.run.get_by_text("No k-NN probe was logged yet").count() == 1
    lab.screenshot(tab.page, "training")


def test_slider_shows_each_checkpoints_own_attention(tab, run: Path):
    from dino_model import photographs

    seen = []
    for index, step in enumerate((0, 50, 100)):
        tab.run.locator("[name=checkpoint]").fill(str(index))
        expect(tab.run).to_have_attribute("data-model", f"first@{step}", timeout=60_000)
        assert tab.run.locator(".run-slider output").inner_text() == f"step {step}"
        maps = tab.page.evaluate(
            "document.querySelector('.run').tab.viewer.mapsOf(null).heads.map((map) => [...map])"
        )
        library = AttentionPredictor(
            str(run / f"step-{step:08d}.pt"), size=SIZE, precision="fp32", device="cpu"
        )
        library.set_image(photographs.picture("kitten"))
        expected = library.cls_attention()
        np.testing.assert_allclose(np.reshape(maps, expected.shape), expected, atol=1e-3)
        seen.append(expected)
    assert np.abs(seen[0] - seen[2]).max() > 1e-3


def test_pulling_the_slider_fast_ends_on_the_last(tab):
    for index in (0, 1, 2, 0, 1):
        tab.run.locator("[name=checkpoint]").fill(str(index))
    expect(tab.run).to_have_attribute("data-model", "first@50", timeout=60_000)
    expect(tab.run.locator(".run-slider output")).to_have_text("step 50")


def test_arrow_keys_read_all_charts_at_one_step(tab):
    plot = tab.run.locator(".chart-plot").first
    plot.focus()
    plot.hover()
    for key in ("Home", "ArrowRight"):
        tab.page.keyboard.press(key)
    tab.page.mouse.move(0, 0)  # as happens when the page scrolls below a pointer at rest
    tab.page.keyboard.press("ArrowRight")
    expect(tab.run.locator(".chart [aria-live]").first).to_have_text("Step 2: Loss 5.96")
    assert tab.run.locator(".chart-cursor[visibility=visible]").count() == 3  # nothing is drawn in the fourth
    assert tab.run.locator(".chart table tr").first.locator("th").all_text_contents() == ["Step", "Loss"]


def test_logarithmic_steps_make_room_for_the_beginning(tab):
    place = "document.querySelector('.run').tab.charts[0].across(9)"
    linear = tab.page.evaluate(place)
    tab.run.get_by_label("Logarithmic steps").check()
    assert tab.page.evaluate(place) > 2 * linear
    tab.run.get_by_label("Logarithmic steps").uncheck()
    assert tab.page.evaluate(place) == pytest.approx(linear)


def test_log_is_drawn_while_it_grows_and_half_a_line_waits(tab, run: Path):
    last = _line(101, loss=3.0)
    with (run / "log.jsonl").open("a") as log:
        log.write(_line(100, loss=math.nan) + last[:20])
        log.flush()
        expect(tab.run.locator(".run-state")).to_contain_text("101 of 120 steps", timeout=20_000)
        expect(tab.run.locator(".lab-banner")).to_have_text("In this log loss was not a number once.")
        log.write(last[20:] + _line(102, knn_teacher=31.5, knn_student=30.0))
    expect(tab.run.locator(".run-state")).to_contain_text("103 of 120 steps", timeout=20_000)
    assert _values(tab, 2, "knn_teacher") == {"steps": [102], "values": [31.5]}


def test_new_checkpoint_joins_the_slider(tab, run: Path):
    _milestone(run, 110)
    expect(tab.run.locator("[name=checkpoint]")).to_have_attribute("max", "3", timeout=20_000)


def test_run_that_begins_meanwhile_joins_the_list(tab, run: Path):
    shutil.copytree(run, run.with_name("second"))
    tab.page.get_by_label("Training run").focus()
    expect(tab.page.get_by_label("Training run").locator("option")).to_have_text(
        ["first", "second", "The embedded model, as it was trained"]
    )
    assert tab.page.get_by_label("Training run").input_value() == "first"


def test_several_runs_stand_in_the_same_charts(tab, run: Path, lab):
    if not run.with_name("second").exists():
        shutil.copytree(run, run.with_name("second"))
        tab.page.get_by_label("Training run").focus()
    tab.run.get_by_text("Beside other runs").click()
    tab.run.get_by_role("checkbox", name="second").check()
    legend = tab.run.locator(".chart").first.locator(".chart-curve")
    expect(legend).to_contain_text(["first: Loss", "second: Loss"])
    drawn = tab.run.locator(".chart").first.locator("path.chart-line")
    expect(drawn).to_have_count(2)
    assert "beside=second" in tab.page.url
    colors = drawn.evaluate_all("(all) => all.map((one) => getComputedStyle(one).stroke)")
    assert len(set(colors)) == 2
    lab.screenshot(tab.page, "training-several")
    tab.page.go_back()
    expect(legend).to_have_count(1)


def test_run_of_the_address_is_drawn_though_one_beside_it_is_gone(tab):
    page = tab.context.new_page()
    page.goto(tab.page.url.partition("?")[0] + "?tab=training&run=first&beside=gone")
    expect(page.locator(".run-state")).to_contain_text("of 120 steps", timeout=20_000)
    said = "gone is not here (any more): the charts are drawn without it."
    expect(page.locator("#messages")).to_have_text(said)
    assert "beside" not in page.url
    page.get_by_text("Beside other runs").click()
    page.get_by_role("checkbox", name="The embedded model").check()
    expect(page.locator(".chart").first.locator(".chart-curve")).to_contain_text(
        ["first: Loss", "embedded: Loss"]
    )
    assert page.url.endswith("beside=embedded")
    page.close()


def test_chosen_run_goes_on_without_one_that_is_deleted_beside_it(tab, run: Path):
    other = shutil.copytree(run, run.with_name("third"))
    page = tab.context.new_page()
    page.goto(tab.page.url.partition("?")[0] + "?tab=training&run=first&beside=third")
    legend = page.locator(".chart").first.locator(".chart-curve")
    expect(legend).to_contain_text(["first: Loss", "third: Loss"], timeout=20_000)
    page.get_by_text("Beside other runs").click()
    expect(page.get_by_role("checkbox", name="third")).to_be_checked()
    shutil.rmtree(other)
    said = "third is not here (any more): the charts are drawn without it."
    expect(page.locator("#messages")).to_have_text(said, timeout=20_000)
    expect(legend).to_have_count(1)
    expect(page.get_by_role("checkbox", name="third")).to_have_count(0)
    with (run / "log.jsonl").open("a") as log:
        log.write(_line(103))
    expect(page.locator(".run-state")).to_contain_text("104 of 120 steps", timeout=20_000)
    expect(page.locator("#messages")).to_have_text(said)  # looks at the log do not take it away
    page.close()


def test_resumed_run_is_drawn_anew_and_a_collapse_is_said(tab, run: Path):
    beside = run.parent / "beside"
    beside.write_text("".join(_line(step, kl=0.001) for step in range(60)))
    beside.replace(run / "log.jsonl")
    expect(tab.run.locator(".run-state")).to_contain_text("60 of 120 steps", timeout=20_000)
    expect(tab.run.locator(".lab-banner")).to_contain_text("KL 0.0010 is near 0")


def test_embedded_models_log_is_there_without_any_run(tab, lab):
    tab.run.get_by_label("Training run").select_option("embedded")
    expect(tab.run).to_have_attribute("data-model", "embedded", timeout=60_000)
    assert tab.run.locator(".run-state").inner_text().startswith("Ended")
    assert len(_values(tab, 0, "loss")["steps"]) > 100
    lab.screenshot(tab.page, "training-embedded")


def test_page_without_runs_says_how_to_show_ones_own(page, tab):
    page.get_by_role("tab", name="Training").click()
    expect(page.locator(".run-hint")).to_contain_text("python -m app --models-dir")
    expect(tab.run.locator(".run-hint")).to_be_hidden()


def test_log_that_goes_away_is_said_in_one_sentence(tab, run: Path):
    tab.run.get_by_label("Training run").select_option("first")
    expect(tab.run.locator(".run-state")).to_contain_text("60 of 120 steps", timeout=20_000)
    expect(tab.run).to_have_attribute("data-model", re.compile("^first@"), timeout=60_000)
    (run / "log.jsonl").rename(run / "gone.jsonl")
    alert = tab.page.locator("#messages")
    gone = "There is no such run here (any more): choose another."
    expect(alert).to_have_text(gone, timeout=20_000)
    with tab.page.expect_response(lambda answer: answer.url.endswith("/api/runs")) as listed:
        tab.run.get_by_label("Training run").dispatch_event(
            "pointerenter"
        )  # as where the sentence moves the list below the pointer
    listed.value.finished()
    tab.page.wait_for_timeout(100)
    expect(alert).to_have_text(gone, timeout=1)  # a list that is there says nothing of the log
    (run / "gone.jsonl").rename(run / "log.jsonl")
    expect(alert).to_be_hidden(timeout=20_000)


def test_tab_is_right_on_a_phone(tab, lab):
    tab.page.set_viewport_size({"width": 390, "height": 844})
    tab.page.wait_for_function("() => document.documentElement.scrollWidth <= 390")
    lab.screenshot(tab.page, "training-phone")
