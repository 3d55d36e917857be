from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app import photos
from app.security import host_names
from app.server import create_app
from app.tabs.class_map import SHIPPED, available, opened, placed, placed_from_explore
from dino_model import class_map_files
from dino_model.class_map import feature_of, place, weights_fingerprint
from dino_model.weights import load_model

NAME = "caltech101"
SIZE = 64


@pytest.fixture
def other_map(tmp_path: Path):
    """Writes the shipped map anew with another origin."""

    def write(**changed: str) -> dict[str, Path]:
        drawn = class_map_files.read(SHIPPED / NAME)
        class_map_files.write(tmp_path / "other", replace(drawn, origin=replace(drawn.origin, **changed)))
        return {"other": tmp_path / "other"}

    return write


def test_shipped_map_is_of_the_embedded_model_as_it_is_now():
    """When this fails: draw the map again, by the command in docs/embedded-model.md."""
    assert opened(SHIPPED / NAME).origin.weights == weights_fingerprint(load_model("embedded").backbone)


def test_shipped_map_carries_no_pictures():
    assert opened(SHIPPED / NAME).thumbnails is None
    assert sorted(file.name for file in (SHIPPED / NAME).iterdir()) == ["map.csv", "map.json", "map.png"]


def test_photograph_is_placed_as_the_library_places_it(engine):
    answer = placed(engine, available(None), NAME, photos.example("coffee"), SIZE)
    drawn = opened(SHIPPED / NAME)
    picture = photos.example("coffee").read()
    expected = place(feature_of(load_model("embedded"), picture, drawn.origin.view, "fp32"), drawn)
    assert answer["map"] == NAME
    assert answer["placed"]["name"] == "coffee"
    assert [index for index, _ in answer["placed"]["neighbours"]] == [i for i, _ in expected.neighbours]
    np.testing.assert_allclose(
        (answer["placed"]["x"], answer["placed"]["y"]), (expected.x, expected.y), atol=1e-4
    )


def test_photograph_of_explore_is_refused_where_another_model_shows_it(engine, photo):
    token = engine.encode(photo, "random:vit_tiny/16", SIZE)
    answer = placed_from_explore(engine, available(None), NAME, token, SIZE)
    assert "This map shows what embedded sees, Explore what random:vit_tiny/16 sees" in answer["error"]
    token = engine.encode(photo, "embedded", SIZE)
    assert placed_from_explore(engine, available(None), NAME, token, SIZE)["placed"]["name"] == "noise.png"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"model": "a stranger's"}, "a stranger's sees, a model that is not offered here"),
        ({"weights": "others"}, "drawn with other weights of embedded than are used here"),
    ],
)
def test_maps_of_other_models_or_weights_are_refused(engine, photo, other_map, changed, sentence):
    assert sentence in placed(engine, other_map(**changed), "other", photo, SIZE)["error"]


def test_unknown_maps_tokens_and_broken_pictures_end_in_a_sentence(engine, photo, tmp_path):
    maps = available(None)
    assert "no map of that name" in placed(engine, maps, "../secret", photo, SIZE)["error"]
    assert "no longer in the server's memory" in placed_from_explore(engine, maps, NAME, "no", SIZE)["error"]
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    broken = photos.from_file(tmp_path / "broken.jpg", max_pixels=10_000)
    answer = placed(engine, maps, NAME, broken, SIZE)["error"]
    assert answer.startswith("broken.jpg is not a picture")
    assert str(tmp_path) not in answer


def test_damaged_maps_are_left_out_and_the_terminal_says_why(other_map, tmp_path, capsys):
    other_map()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "map.json").write_text("{}")
    assert list(available(tmp_path)) == [NAME, "other"]
    assert "damaged/map.json is no class map of this program" in capsys.readouterr().err


def test_routes_serve_the_map_without_features_and_nothing_else(engine, start):
    application = create_app(engine, start, host_names("127.0.0.1"))
    with TestClient(application, base_url="http://localhost") as client:
        told = client.get(f"/lab/class-maps/{NAME}/map.json").json()
        assert len(told["classes"]) == 101
        assert told["features"] is None
        assert dict(told["said"])["Quality"] == str(opened(SHIPPED / NAME).overlap)
        table = client.get(f"/lab/class-maps/{NAME}/map.csv")
        assert table.headers["content-disposition"] == f'attachment; filename="{NAME}-map.csv"'
        assert table.text == class_map_files.as_csv(opened(SHIPPED / NAME))
        for path in ("thumbnails.webp", "map.png", "..%2f..%2f..%2fpyproject.toml", "%2e%2e/server.py"):
            assert client.get(f"/lab/class-maps/{NAME}/{path}").status_code == 404, path
        assert client.get("/lab/class-maps/nothing/map.json").status_code == 422
