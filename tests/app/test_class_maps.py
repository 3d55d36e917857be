import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app import photos
from app.class_maps import SHIPPED, Maps
from app.lab import Lab
from app.limits import Limits
from app.models import Models
from app.server import create_app
from dino_model.class_map import files as class_map_files
from dino_model.class_map.layout import feature_of, place
from dino_model.feature_cache import weights_fingerprint
from dino_model.weights import load_model

NAME = "caltech101"
MODEL = "random:vit_tiny/16"


@pytest.fixture
def other_map(tmp_path: Path):
    """Writes the shipped map anew with another origin; a client of a lab that has it."""

    def write(**changed: str) -> TestClient:
        drawn = class_map_files.read(SHIPPED / NAME)
        class_map_files.write(tmp_path / "other", replace(drawn, origin=replace(drawn.origin, **changed)))
        return TestClient(create_app(Lab(Models(MODEL, tmp_path), Limits(), 64), ["testserver"]))

    return write


def test_shipped_map_is_of_the_embedded_model_as_it_is_now():
    """When this fails: draw the map again, by the command in docs/embedded-model.md."""
    assert Maps(None).get(NAME).origin.weights == weights_fingerprint(load_model("embedded").backbone)


def test_shipped_map_carries_no_pictures():
    assert Maps(None).get(NAME).thumbnails is None
    assert sorted(file.name for file in (SHIPPED / NAME).iterdir()) == ["map.csv", "map.json", "map.png"]


def test_photograph_is_placed_as_the_library_places_it(client):
    answer = client.post(f"/api/maps/{NAME}/place", json={"photo": "komodo"}).json()
    drawn = Maps(None).get(NAME)
    picture = photos.example("komodo")
    expected = place(feature_of(load_model("embedded"), picture, drawn.origin.view, "fp32"), drawn)
    assert (answer["map"], answer["photo"]) == (NAME, "komodo")
    assert [index for index, _ in answer["neighbours"]] == [i for i, _ in expected.neighbours]
    np.testing.assert_allclose((answer["x"], answer["y"]), (expected.x, expected.y), atol=1e-4)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"model": "a stranger's"}, "a stranger's sees, a model that is not offered here"),
        ({"weights": "others"}, "drawn with other weights of embedded than are used here"),
    ],
)
def test_maps_of_other_models_or_weights_are_refused(other_map, changed, sentence):
    answer = other_map(**changed).post("/api/maps/other/place", json={"photo": "kitten"})
    assert answer.status_code == 422
    assert sentence in answer.json()["error"]


def test_unknown_maps_and_photographs_end_in_a_sentence(client):
    for name, photo, unknown in (
        (NAME, "guessed", "photo"),
        ("..%2fsecret", "kitten", None),
        ("no", "kitten", "map"),
    ):
        answer = client.post(f"/api/maps/{name}/place", json={"photo": photo})
        assert answer.status_code == 404
        assert answer.json()["error"].endswith(".")
        assert answer.json().get("unknown") == unknown


def test_damaged_maps_are_left_out_and_the_terminal_says_why_once(other_map, tmp_path, capsys):
    other_map()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "map.json").write_text("{}")
    maps = Maps(tmp_path)
    assert [list(maps.all()) for _ in range(3)] == [[NAME, "other"]] * 3
    assert capsys.readouterr().err.count("damaged/map.json is no class map of this program") == 1


def test_map_made_while_the_page_is_up_appears_and_is_read_anew_when_drawn_anew(other_map, tmp_path):
    maps = Maps(tmp_path)
    assert [one["name"] for one in maps.told()] == [NAME]
    other_map(model="first")
    assert [one["model"] for one in maps.told()] == ["embedded", "first"]
    other_map(model="second")
    os.utime(tmp_path / "other" / "map.json", (1, 1))
    assert [one["model"] for one in maps.told()] == ["embedded", "second"]


def test_routes_serve_the_map_without_features_and_nothing_else(client):
    drawn = Maps(None).get(NAME)
    told = client.get(f"/api/maps/{NAME}/map.json").json()
    assert len(told["classes"]) == 101
    assert told["features"] is None
    assert dict(told["said"])["Quality"] == str(drawn.overlap)
    table = client.get(f"/api/maps/{NAME}/map.csv")
    assert table.headers["content-disposition"] == f'attachment; filename="{NAME}-map.csv"'
    assert table.text == class_map_files.as_csv(drawn)
    for path in ("thumbnails.webp", "map.png", "..%2f..%2f..%2fpyproject.toml", "%2e%2e/server.py"):
        assert client.get(f"/api/maps/{NAME}/{path}").status_code == 404, path
    assert client.get("/api/maps/nothing/map.json").status_code == 404
