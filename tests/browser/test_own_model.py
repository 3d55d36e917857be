"""A model that is typed into the menu of the header: a run of `python -m training pretrain`, and refusals."""

import pytest

from dino_model import photographs
from tests.browser.actions import MODEL, message
from tests.browser.conftest import serving_here
from tests.training.runs import pretrain

pytestmark = pytest.mark.slow
NAMES = ("sheep", "owl", "macaw", "kitten")


def choose(page, name: str) -> str:
    """Type a name into the model menu; return the text of the message that follows."""
    box = page.locator("#model input")
    box.click()
    box.fill(name)
    box.press("Enter")
    return message(page)


def test_run_of_the_trainer_opens_without_a_restart(open_page, tmp_path):
    images = tmp_path / "images.txt"
    images.write_text("\n".join(str(photographs.FOLDER / f"{name}.jpg") for name in NAMES))
    run = tmp_path / "run"
    assert pretrain(images, run) == 0
    with serving_here(model=MODEL, size=64) as address:
        page = open_page(address=address)
        assert f"Opened {run}: teacher of run, 2 blocks of 3 heads" in choose(page, str(run))
        page.wait_for_function("viewOf('explore').encoding.blocks === 2")
        assert page.evaluate("viewOf('explore').encoding.value.model") == str(run)
        assert "no file or folder" in choose(page, str(tmp_path / "nothing.pth"))
        assert page.locator("#model input").input_value() == str(run)


def test_public_page_opens_only_its_list_and_says_how_others_are_allowed(open_page, tmp_path):
    with serving_here(model=MODEL, size=64, any_model="off") as address:
        assert "--any-model on" in choose(open_page(address=address), str(tmp_path))
