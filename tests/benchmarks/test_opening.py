import json
import re

import numpy as np
import pytest

from benchmarks import opening
from dino_model import photographs


@pytest.fixture
def two_photographs(monkeypatch):
    monkeypatch.setattr(photographs, "names", lambda: ("hammer", "pufferfish"))


def seen_by_hand() -> opening.Seen:
    """A model that tells the object apart, but for one hot patch beside it."""
    seen = object.__new__(opening.Seen)
    seen.mask = np.zeros((8, 8), dtype=bool)
    seen.mask[:4, :4] = True  # four of sixteen patches
    seen.picture = np.where(seen.mask[..., None], 200, 20).astype(np.uint8).repeat(3, axis=2)
    seen.grid, seen.patch = (4, 4), (0, 0)
    seen.keys = np.zeros((4, 4, 6))
    seen.keys[..., 0] = -1
    seen.keys[:2, :2, 0] = 1
    seen.tokens, seen.heads = seen.keys, 2
    return seen


def test_share_and_jaccard_are_those_of_the_brightness():
    seen = seen_by_hand()
    brightness = np.full((4, 4), 0.1)
    brightness[:2, :2] = 1
    inside, overlap, match = opening.judge(seen, brightness)
    assert inside == pytest.approx(4 / 5.2)
    assert overlap == 1
    assert match == pytest.approx(4 / 5.2)
    spot = np.zeros((4, 4))
    spot[0, 0] = 0.3  # bright on one patch of the object's four alone
    assert opening.judge(seen, spot)[0] == 1
    assert opening.judge(seen, spot)[2] == pytest.approx(1 / 4)
    assert opening.judge(seen, 1 - 0.9 * brightness)[0] < 0.1


def test_views_from_a_pin_are_bright_where_things_are_like_it():
    seen = seen_by_hand()
    for name in ("key cosine, all heads at once", "token cosine", "key PCA, first component"):
        values = opening.SCALINGS["least to greatest"](opening.VIEWS[name](seen))
        # three of four equal patches hold 60 %
        assert opening.judge(seen, values) == pytest.approx((1, 0.75, 1)), name


def test_one_hot_patch_does_not_dim_what_is_capped():
    values = np.zeros((10, 10))
    values[:5] = 1
    values[9, 9] = 100
    assert opening.SCALINGS["least to greatest"](values)[0, 0] == 1
    capped = opening.SCALINGS["capped at 98 %"](values)
    assert capped.max() == pytest.approx(capped[0, 0], rel=0.01)


def test_the_best_view_needs_no_ground_truth_and_a_model():
    low, high = opening.Figures(10, 0, 5, 5), opening.Figures(90, 30, 80, 80)
    table = {view: dict.fromkeys(opening.SCALINGS, low) for view in opening.VIEWS}
    for view in opening.NO_DEFAULT:
        table[view] = dict.fromkeys(opening.SCALINGS, high)
    table["token cosine"]["above the median"] = opening.Figures(50, 9, 40, 20)
    table["key PCA, first component"]["capped at 98 %"] = opening.Figures(40, 9, 40, 30)
    assert opening.best(table, "inside") == ("token cosine", "above the median")
    assert opening.best(table, "match") == ("key PCA, first component", "capped at 98 %")


def test_command_names_the_best_and_writes_all(two_photographs, tmp_path, capsys):
    file = tmp_path / "figures.json"
    opening.Opening(model="random:vit_tiny/16", size=64, json=file).run()
    figures = json.loads(file.read_text())
    assert list(figures["models"]) == ["random:vit_tiny/16", "random:embedded"]
    printed = capsys.readouterr().out
    assert f"greatest share on the object: {'; '.join(figures['best_share'])}\n" in printed
    assert printed.endswith(f"closest to the object: {'; '.join(figures['best_match'])}\n")
    (row,) = [line for line in printed.splitlines() if line.startswith("token cosine  ")][:1]
    shown = figures["models"]["random:vit_tiny/16"]["token cosine"]
    assert re.findall(r"\d+\.\d", row)[0] == f"{shown['least to greatest']['inside']:.1f}"
    assert 0 <= shown["refined"] <= 100
