import itertools
import json

import numpy as np
import pytest

from dino_model import photographs
from dino_model.inference.predictor import AttentionPredictor
from tools import photographs as tool


def test_composites_follow_the_seed_and_have_small_objects_on_other_images():
    scenes = list(tool.composites(2, 0))
    assert len(scenes) >= 40
    for name, image, mask in scenes:
        assert image.shape[:2] == mask.shape
        assert 0.02 < mask.mean() < 0.13, name
        thing, ground = name.split(" on ")
        assert thing != ground
        assert tool.is_whole(photographs.mask(thing))
    assert np.median([scene.mask.mean() for scene in scenes]) <= 0.08  # docs/embedded-model.md
    again, other = (next(tool.composites(2, seed)) for seed in (0, 1))
    np.testing.assert_array_equal(again.image, scenes[0].image)
    assert again.image.shape != other.image.shape or (again.image != other.image).any()


def test_paste_covers_the_share_or_as_much_as_fits():
    ground, random = np.full((80, 50, 3), 10, np.uint8), np.random.default_rng(0)
    mask = np.zeros((40, 60), dtype=bool)
    mask[10:30, 20:40] = True
    composite, covered = tool.paste(np.full((40, 60, 3), 200, np.uint8), mask, ground, 100 / 4000, random)
    assert covered.sum() == 100
    assert (composite[covered] == 200).all()
    assert (composite[~covered] == 10).all()
    _, covered = tool.paste(np.zeros((10, 90, 3), np.uint8), np.ones((10, 90), bool), ground, 0.9, random)
    assert covered.any(axis=0).sum() == 50


def test_ground_beside_an_object_is_the_largest_wide_strip():
    image = np.zeros((300, 640, 3), dtype=np.uint8)
    image[:, 400:] = 1
    mask = np.zeros((300, 640), dtype=bool)
    mask[50:290, 100:400] = True
    np.testing.assert_array_equal(tool.crop_background(image, mask), np.ones((300, 240, 3)))
    mask[:, 100:500] = True
    assert tool.crop_background(image, mask) is None


def test_command_writes_what_it_prints(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(photographs, "names", lambda: ("kingfisher", "piglet"))
    file = tmp_path / "figures.json"
    tool.PackageImages(models=("random:vit_tiny/16",), size=64, composites=1, json=file).run()
    figures = json.loads(file.read_text())
    assert list(figures["models"]) == ["centered box", "random:embedded", "random:vit_tiny/16"]
    printed = capsys.readouterr().out
    for row in figures["models"].values():
        assert row["photographs"]["images"] == row["composites"]["images"] == 2
        assert f"{row['photographs']['jaccard']:.2f}" in printed
    assert figures["models"]["centered box"]["photographs"]["lift"] is None
    assert figures["models"]["random:embedded"]["photographs"]["lift"] == pytest.approx(1, abs=0.3)


def test_correlations_are_over_all_pairs_of_patches_and_of_heads():
    predictor = AttentionPredictor("random:vit_tiny/16", size=64, resize="squash", device="cpu")
    scenes = [tool.Scene(name, *tool._object(name)) for name in ("kingfisher", "piglet")]
    found = tool.correlations(scenes, predictor)
    expected = {"rows": [], "heads": []}
    for scene in scenes:
        predictor.set_image(scene.image)
        patches = [(row, column) for row in range(8, 64, 16) for column in range(8, 64, 16)]
        height, width = scene.image.shape[:2]
        maps = [
            predictor.point_attention(row * height // 64, column * width // 64).mean(axis=0).ravel()
            for row, column in patches
        ]
        heads = predictor.cls_attention().reshape(3, -1)
        for name, vectors in (("rows", maps), ("heads", heads)):
            expected[name] += [np.corrcoef(a, b)[0, 1] for a, b in itertools.combinations(vectors, 2)]
    assert found == pytest.approx({name: np.mean(values) for name, values in expected.items()}, abs=2e-3)
