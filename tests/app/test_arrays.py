"""Routes that serve arrays, images and static files from memory."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from app import layout
from app.handlers.arrays import routes, version
from app.handlers.attention_maps import colors_and_variance, norms_and_outliers, rollout
from app.limits import fairness
from dino_model.inference.class_map.names import GROUPS


@pytest.fixture
def client(backend, monkeypatch) -> Iterator[TestClient]:
    """A server with the routes of the lab, and turns of its own event loop."""
    for name in ("MODEL", "READING"):
        monkeypatch.setattr(fairness, name, fairness.FairTurns("the model"))
    with TestClient(Starlette(routes=routes(backend))) as found:
        yield found


def test_arrays_are_those_of_the_encoding(client, encoding):
    expected = {
        "blocks": np.stack(encoding.queries_keys(3)),
        "tokens": encoding.features(3),
        "norms": norms_and_outliers(encoding, 3),
        "rollout": rollout(encoding, 3).astype("<f2"),
        "key-pca": colors_and_variance(encoding, 3),
    }
    for kind, array in expected.items():
        address = f"lab/arrays/{encoding.key.token}/{kind}/3"
        answer = client.get(f"/{address}")
        assert "immutable" in answer.headers["cache-control"]
        found = np.frombuffer(answer.content, "<f2" if kind in ("blocks", "tokens", "rollout") else "<f4")
        np.testing.assert_array_equal(found.reshape(array.shape), array)


def test_shape_of_another_image_is_that_of_its_encoding(client, backend, encoding):
    other = backend.encode("kitten", encoding.key.model, 64)
    found = client.get(f"/lab/shapes/{other.key.token}").json()
    assert (found["rows"], found["columns"]) == other.predictor.grid
    assert (found["height"], found["width"]) == other.predictor.image_size


def test_images_and_static_files_are_served(client, photo):
    for path in (f"images/{photo}.jpg", "thumbnails/kitten.jpg", "clips/sheep/0.jpg"):
        assert client.get(f"/lab/{path}").headers["content-type"] == "image/jpeg"
    assert client.get(f"/lab/images/{photo}.jpg").headers["cache-control"] == "no-store"
    assert "javascript" in client.get(f"/lab/static/{version()}/page.js").headers["content-type"]
    drawn = client.get("/lab/maps/caltech101/map.json").json()
    assert (len(drawn["classes"]), len(drawn["groups"]), drawn["features"]) == (101, len(GROUPS), None)


def test_unknown_name_is_answered_with_404_and_one_sentence(client, encoding):
    paths = """arrays/guessed/blocks/0 arrays/TOKEN/all/0 arrays/TOKEN/blocks/-1 arrays/TOKEN/blocks/0/0
        shapes/guessed
        images/guessed.jpg clips/sheep/30.jpg clips/sheep/x.jpg tracked/guessed/0.png maps/none/map.json
        maps/caltech101/map.png directions/a/b directions/TOKEN/a"""
    for path in ("", *paths.replace("TOKEN", encoding.key.token).split()):
        answer = client.get(f"/lab/{path}")
        assert (answer.status_code, answer.headers["cache-control"]) == (404, "no-store"), path
        assert answer.text.endswith(".")


def test_directions_take_a_turn_at_the_models_if_either_encoding_was_forgotten(
    backend, client, encoding, monkeypatch
):
    turns: list[str] = []
    for name in ("MODEL", "READING"):
        queue = getattr(fairness, name)
        spy = lambda *inputs, name=name, run=queue.run: (turns.append(name), run(*inputs))[1]  # noqa: E731
        monkeypatch.setattr(queue, "run", spy)
    held, forgotten = encoding.key.token, replace(encoding.key, size=144).token
    for pair in ((held, held), (forgotten, held), (held, replace(encoding.key, size=160).token)):
        assert client.get("/lab/directions/" + "/".join(pair)).status_code == 200
    assert turns == ["READING", "MODEL", "MODEL"]


def test_head_preloads_every_module_of_the_first_view(backend):
    tags = layout.head(backend)
    for name in ("attention_view.js", "stage.js", "attention.js", "views.css", "blocks/11"):
        assert name in tags
