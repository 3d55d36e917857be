"""Search of an index of images by the image of the header or a part of it."""

import numpy as np
import pytest

from app.limits.errors import LabError
from app.store.backend import Backend
from app.store.images import png
from app.tabs import searching
from dino_model.__main__ import main
from dino_model.inference.search import open_search
from tests.app.conftest import MODEL, small_backend

COLORS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}
IMAGES = {f"{name}.png": np.full((64, 64, 3), color, np.uint8) for name, color in COLORS.items()}
GRAYS = {f"gray{n}.png": np.full((100, 200, 3), 20 * n, np.uint8) for n in range(10)}


@pytest.fixture(scope="module")
def searched(tmp_path_factory) -> Backend:
    """A lab with an index of images of one color each."""
    folder = tmp_path_factory.mktemp("search")
    (folder / "images").mkdir()
    for name, pixels in (IMAGES | GRAYS).items():
        (folder / "images" / name).write_bytes(png(pixels))
    index = folder / "index.safetensors"
    main(["index", str(folder / "images"), "--output", str(index), "--size", "32"])
    return small_backend(index=open_search(index))


@pytest.fixture(scope="module")
def token(searched) -> str:
    """An image whose left half is red and whose right half is blue."""
    halves = np.concatenate([IMAGES["red.png"], IMAGES["blue.png"]], axis=1)
    return searched.encode(searched.images.keep(png(halves)), MODEL, 64).key.token


def test_part_between_pins_finds_the_image_of_its_color(searched, token):
    for places, name in (([[0.1, 0.1], [0.4, 0.9]], "red.png"), ([[0.6, 0.2], [0.9, 0.8]], "blue.png")):
        tile, caption = searching.search_images(searched, {"token": token, "places": places})[0]
        assert caption == f"1.00 · {name}"
        np.testing.assert_allclose(tile.mean(axis=(0, 1)), IMAGES[name][0, 0], atol=2)
    results = searching.search_images(searched, {"token": token, "places": []})
    tiles = {caption.split(" · ")[1]: tile.shape for tile, caption in results}
    assert len(tiles) == 12  # of 13
    assert set(tiles) >= set(IMAGES)
    assert {tile for name, tile in tiles.items() if name in GRAYS} == {(80, 160, 3)}
    eight = [[0.0, 0.0], [0.4, 1.0]] * 4
    assert searching.search_images(searched, {"token": token, "places": eight})[0][1] == "1.00 · red.png"


def test_hostile_requests_and_a_lab_without_an_index_are_refused(searched, token, backend, encoding):
    nan, far, many = [[0.5, float("nan")]], [[0.5, 2.0]], [[0.5, 0.5]] * 9
    hostile = [{"token": token, "places": places} for places in (None, [[0.5]], far, nan, many, "../x")]
    for request in (None, {"token": "guessed", "places": []}, {"token": 3, "places": []}, *hostile):
        with pytest.raises(LabError):
            searching.search_images(searched, request)
    with pytest.raises(LabError, match="--search INDEX"):
        searching.search_images(backend, {"token": encoding.key.token, "places": []})


def test_part_is_the_smallest_box_of_whole_patches(encoding):
    (rows, columns), image = encoding.predictor.grid, np.zeros((10 * 7, 10 * 11, 3), np.uint8)
    width, height = 110 / columns, 70 / rows
    places = [[1.0, 0.0], [1.5 / columns, 0.99], [0.6, 1.0]]
    assert searching.frame_places(encoding, places, image) == pytest.approx((width, 0, 110, 70))
    inside = searching.frame_places(encoding, [[2.1 / columns, 1.2 / rows]], image)
    assert inside == pytest.approx((2 * width, height, 3 * width, 2 * height))
