"""Routes that serve arrays, images and static files from memory."""

import base64
from collections.abc import Iterator

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from app import fairness, page
from app.arrays import fetch, routes, version
from app.errors import NotHere
from app.view import norms_and_outliers, principal_colors


@pytest.fixture
def client(lab, monkeypatch) -> Iterator[TestClient]:
    """A server with the routes of the lab, and turns of its own event loop."""
    for name in ("MODEL", "READING"):
        monkeypatch.setattr(fairness, name, fairness.FairTurns("the model"))
    with TestClient(Starlette(routes=routes(lab))) as found:
        yield found


def test_arrays_are_those_of_the_encoding(client, encode, photo):
    encoding = encode(photo)
    expected = {
        "blocks": np.stack(encoding.queries_keys(3)),
        "tokens": encoding.features(3),
        "norms": norms_and_outliers(encoding, 3),
        "key-pca": principal_colors(encoding, 3, "key-pca"),
    }
    for kind, array in expected.items():
        answer = client.get(f"/lab/arrays/{encoding.key.token}/{kind}/3")
        assert "immutable" in answer.headers["cache-control"]
        found = np.frombuffer(answer.content, "<f2" if kind in ("blocks", "tokens") else "<f4")
        np.testing.assert_array_equal(found.reshape(array.shape), array)


def test_images_and_static_files_are_served(client, photo):
    for path in (f"images/{photo}.jpg", "thumbnails/kitten.jpg", "clips/sheep/0.jpg"):
        assert client.get(f"/lab/{path}").headers["content-type"] == "image/jpeg"
    assert client.get(f"/lab/images/{photo}.jpg").headers["cache-control"] == "no-store"
    assert "javascript" in client.get(f"/lab/static/{version()}/page.js").headers["content-type"]
    assert len(client.get("/lab/maps/caltech101/map.json").json()["classes"]) == 101


@pytest.mark.parametrize(
    "path",
    ["arrays/guessed/blocks/0", "arrays/TOKEN/all/0", "arrays/TOKEN/blocks/-1", "arrays/TOKEN/blocks/0/0",
     "images/guessed.jpg", "clips/sheep/99.jpg", "clips/sheep/x.jpg", "followings/guessed/0.png",
     "maps/none/map.json", "maps/caltech101/map.png", "directions/a/b", "directions/TOKEN/a", ""],
)  # fmt: skip
def test_unknown_name_is_answered_with_404_and_one_sentence(client, encode, photo, path):
    answer = client.get("/lab/" + path.replace("TOKEN", encode(photo).key.token))
    assert answer.status_code == 404
    assert answer.text.endswith(".")
    assert answer.headers["cache-control"] == "no-store"


def test_server_function_returns_the_bytes_of_the_routes(lab, client, encode, photo):
    address = f"lab/arrays/{encode(photo).key.token}/blocks/3"
    assert base64.b64decode(fetch(lab, address)) == client.get(f"/{address}").content
    for wrong in (None, [], {"path": "/etc/passwd"}, "lab", "https://example.com/a.png"):
        with pytest.raises(NotHere):
            fetch(lab, wrong)


def test_head_preloads_every_module_of_the_first_view(lab):
    tags = page.head(lab)
    for name in ("attention_view.js", "stage.js", "attention.js", "views.css", "blocks/11"):
        assert name in tags
