import json

import numpy as np
import pytest

from dino_model import photographs
from tools import photographs as benchmark

pytestmark = pytest.mark.slow


def test_composites_are_the_same_for_the_same_seed_and_others_for_another():
    first, again, other = (
        [next(scenes) for _ in range(3)]
        for scenes in (benchmark.composites(1, 0), benchmark.composites(1, 0), benchmark.composites(1, 1))
    )
    for one, two in zip(first, again, strict=True):
        assert one.name == two.name
        np.testing.assert_array_equal(one.image, two.image)
        np.testing.assert_array_equal(one.mask, two.mask)
    assert any(
        one.mask.shape != two.mask.shape or (one.mask != two.mask).any()
        for one, two in zip(first, other, strict=True)
    )


def test_objects_of_composites_are_small_and_never_on_their_own_ground():
    scenes = list(benchmark.composites(2, 0))
    assert len(scenes) >= 40
    for name, picture, mask in scenes:
        assert picture.shape[:2] == mask.shape
        assert 0.02 < mask.mean() < 0.13, name
        thing, ground = name.split(" on ")
        assert thing != ground
        assert benchmark.is_whole(photographs.mask(thing))
    assert np.median([scene.mask.mean() for scene in scenes]) <= 0.08  # docs/embedded-model.md


def test_pasted_object_is_the_cut_out_and_the_rest_is_the_ground():
    picture = np.full((40, 60, 3), 200, dtype=np.uint8)
    mask = np.zeros((40, 60), dtype=bool)
    mask[10:30, 20:40] = True
    ground = np.full((80, 80, 3), 10, dtype=np.uint8)
    composite, covered = benchmark.paste(picture, mask, ground, 100 / 6400, np.random.default_rng(0))
    assert covered.sum() == 100
    assert (composite[covered] == 200).all()
    assert (composite[~covered] == 10).all()


def test_object_larger_than_the_ground_is_made_to_fit():
    mask = np.ones((10, 90), dtype=bool)
    picture = np.zeros((10, 90, 3), dtype=np.uint8)
    ground = np.zeros((50, 30, 3), dtype=np.uint8)
    _, covered = benchmark.paste(picture, mask, ground, 0.9, np.random.default_rng(0))
    assert covered.any(axis=0).sum() == 30


def test_ground_beside_an_object_is_the_largest_strip_that_is_no_ribbon():
    picture = np.zeros((300, 640, 3), dtype=np.uint8)
    picture[:, 400:] = 1
    mask = np.zeros((300, 640), dtype=bool)
    mask[50:290, 100:400] = True
    beside = benchmark.ground_beside(picture, mask)
    assert beside is not None
    assert beside.shape == (300, 240, 3)
    assert (beside == 1).all()
    mask[:, 100:500] = True
    assert benchmark.ground_beside(picture, mask) is None


def test_command_writes_what_it_prints(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(photographs, "names", lambda: ("kingfisher", "piglet"))
    file = tmp_path / "figures.json"
    benchmark.Photographs(models=("random:vit_tiny/16",), size=64, composites=1, json=file).run()
    figures = json.loads(file.read_text())
    assert list(figures["models"]) == ["centered box", "random:embedded", "random:vit_tiny/16"]
    printed = capsys.readouterr().out
    for row in figures["models"].values():
        assert row["photographs"]["images"] == row["composites"]["images"] == 2
        assert f"{row['photographs']['jaccard']:.2f}" in printed
    assert figures["models"]["centered box"]["photographs"]["lift"] is None
    assert figures["models"]["random:embedded"]["photographs"]["lift"] == pytest.approx(1, abs=0.3)
