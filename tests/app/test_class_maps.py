import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app import STATIC
from app.limits.errors import LabError, NotHere
from app.store.class_maps import SHIPPED, Maps, facts, place_image
from dino_model import photographs
from dino_model.inference.class_map import files as class_map_files
from dino_model.inference.class_map.layout import place
from dino_model.inference.class_map.names import GROUPS
from dino_model.inference.feature_cache import weights_fingerprint
from dino_model.inference.features import FeatureExtractor
from dino_model.inference.predictor import AttentionPredictor
from dino_model.models.load import load_model

NAME = "caltech101"


@pytest.fixture
def write_map(tmp_path: Path) -> Callable[..., None]:
    """Writes the shipped map with another origin as "other"."""

    def write(**changed: str) -> None:
        drawn = class_map_files.read(SHIPPED / NAME)
        other = replace(drawn, origin=replace(drawn.origin, **changed))
        class_map_files.write(tmp_path / "other", class_map_files.render(other))

    return write


def test_shipped_map_has_weights_of_embedded_model():
    """If this fails, compute the map again with the command in docs/embedded-model.md."""
    for drawn in Maps(None).all().values():
        assert drawn.origin.weights == weights_fingerprint(load_model("embedded").backbone)


def test_every_group_has_a_shape():
    script = (STATIC / "views" / "class_map_view.js").read_text()
    assert script.partition("const SHAPES = [")[2].partition("];")[0].count('"') == 2 * len(GROUPS)


def test_example_lands_next_to_itself_as_in_the_library_and_a_map_of_other_weights_is_refused(
    write_map, tmp_path
):
    maps, image = Maps(None), photographs.image("sheep")
    drawn = maps.get("photographs")
    predictor = AttentionPredictor(precision="fp32", device="cpu")
    found = place_image(drawn, predictor, image)
    assert drawn.classes[found.neighbors[0][0]].key == "sheep"
    extractor = FeatureExtractor(load_model("embedded"), drawn.origin.framing, precision="fp32", device="cpu")
    expected = place(extractor.feature(image), drawn)
    assert found.neighbors == expected.neighbors
    np.testing.assert_allclose((found.x, found.y), (expected.x, expected.y), atol=1e-4)
    assert maps.pictures("photographs").startswith(b"\xff\xd8")
    with pytest.raises(NotHere, match="no pictures"):
        maps.pictures(NAME)
    write_map(weights="others")
    with pytest.raises(LabError, match="computed with other weights of embedded"):
        place_image(Maps(tmp_path).get("other"), predictor, image)


def test_maps_are_read_as_they_change_and_a_damaged_one_is_reported_once(write_map, tmp_path, capsys):
    maps = Maps(tmp_path)
    assert [name for _, name in maps.choices()] == ["photographs", NAME]
    for name in ("../secret", "", None, ["caltech101"]):
        with pytest.raises(NotHere, match="Unknown class map"):
            maps.get(name)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "map.json").write_text("{}")
    for number, model in enumerate(("first", "second")):
        write_map(model=model)
        os.utime(tmp_path / "other" / "map.json", (number, number))
        assert [name for _, name in maps.choices()[1:]] == [NAME, "other"]
        assert f"**Model**: {model}," in facts(maps.get("other"))
    assert capsys.readouterr().err.count("damaged/map.json is no class map of this program") == 1
