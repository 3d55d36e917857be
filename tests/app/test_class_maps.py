import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app import class_maps
from app.class_maps import SHIPPED, Maps, place_image
from app.errors import LabError, NotHere
from app.lab import Lab
from dino_model import photographs
from dino_model.class_map import files as class_map_files
from dino_model.class_map.layout import place
from dino_model.feature_cache import weights_fingerprint
from dino_model.features import FeatureExtractor
from dino_model.predictor import AttentionPredictor
from dino_model.weights import load_model
from tests.app.conftest import small_lab

NAME = "caltech101"


@pytest.fixture
def write_map(tmp_path: Path) -> Callable[..., Lab]:
    """Writes the shipped map with another origin; returns a lab that offers it as "other"."""

    def write(**changed: str) -> Lab:
        drawn = class_map_files.read(SHIPPED / NAME)
        class_map_files.write(tmp_path / "other", replace(drawn, origin=replace(drawn.origin, **changed)))
        return small_lab(folder=tmp_path)

    return write


def test_shipped_map_has_weights_of_embedded_model():
    """If this fails, compute the map again with the command in docs/embedded-model.md."""
    assert Maps(None).get(NAME).origin.weights == weights_fingerprint(load_model("embedded").backbone)


def test_place_image_matches_library():
    drawn, picture = Maps(None).get(NAME), photographs.image("komodo")
    extractor = FeatureExtractor(load_model("embedded"), drawn.origin.view, precision="fp32", device="cpu")
    expected = place(extractor.feature(picture), drawn)
    found = place_image(drawn, AttentionPredictor(precision="fp32", device="cpu"), picture)
    assert found.neighbors == expected.neighbors
    np.testing.assert_allclose((found.x, found.y), (expected.x, expected.y), atol=1e-4)


def test_place_image_with_other_weights_is_refused(write_map):
    drawn = write_map(weights="others").maps.get("other")
    with pytest.raises(LabError, match="computed with other weights of embedded"):
        place_image(drawn, AttentionPredictor(), photographs.image("kitten"))


@pytest.mark.parametrize("name", ["no", "../secret", "", None, ["caltech101"], 3])
def test_unknown_map_is_refused(name):
    with pytest.raises(NotHere, match="Unknown class map"):
        Maps(None).get(name)


def test_damaged_map_is_left_out_and_reported_once(write_map, tmp_path, capsys):
    write_map()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "map.json").write_text("{}")
    maps = Maps(tmp_path)
    assert [list(maps.all()) for _ in range(3)] == [[NAME, "other"]] * 3
    assert capsys.readouterr().err.count("damaged/map.json is no class map of this program") == 1


def test_new_and_changed_maps_appear_without_restart(write_map, tmp_path):
    maps = Maps(tmp_path)
    assert [name for _, name in maps.choices()] == [NAME]
    write_map(model="first")
    assert [title.rpartition(" ")[2] for title, _ in maps.choices()] == ["embedded", "first"]
    write_map(model="second")
    os.utime(tmp_path / "other" / "map.json", (1, 1))
    assert [title.rpartition(" ")[2] for title, _ in maps.choices()] == ["embedded", "second"]


def test_content_has_classes_and_groups_without_features():
    told = json.loads(Maps(None).content(NAME))
    assert len(told["classes"]) == 101
    assert told["features"] is None
    assert [group["name"] for group in told["groups"]] == list(class_maps.GROUP_COLORS)
