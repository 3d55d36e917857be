"""Search of an index of images by the image of the header or a part of it."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app import searching
from app.errors import LabError
from app.lab import Lab
from dino_model.commands import main
from dino_model.search import open_index
from tests.app.conftest import MODEL, small_lab


@pytest.fixture(scope="module")
def pictures() -> dict[str, np.ndarray]:
    """Images of one color each."""
    colors = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}
    return {name: np.full((64, 64, 3), color, np.uint8) for name, color in colors.items()}


@pytest.fixture(scope="module")
def searched(pictures, tmp_path_factory) -> Lab:
    """A lab with an index of these images."""
    folder: Path = tmp_path_factory.mktemp("search")
    (folder / "images").mkdir()
    for name, pixels in pictures.items():
        Image.fromarray(pixels).save(folder / "images" / f"{name}.png")
    index = folder / "index.safetensors"
    main(["index", str(folder / "images"), "--output", str(index), "--size", "32"])
    return small_lab(index=open_index(index))


@pytest.fixture(scope="module")
def token(searched, pictures, as_file) -> str:
    """An image whose left half is red and whose right half is blue."""
    halves = np.concatenate([pictures["red"], pictures["blue"]], axis=1)
    return searched.encode(searched.images.keep(as_file(halves)), MODEL, 64).key.token


def names(results: list) -> list[str]:
    return [caption.split(" · ")[1] for _, caption in results]


def test_part_between_pins_finds_the_image_that_looks_like_it(searched, token, pictures):
    left, right = [[0.1, 0.1], [0.4, 0.9]], [[0.6, 0.2], [0.9, 0.8]]
    for places, name in ((left, "red.png"), (right, "blue.png")):
        results = searching.found(searched, {"token": token, "places": places})
        assert names(results)[0] == name
        assert results[0][1].startswith("1.00")
        np.testing.assert_allclose(results[0][0].mean(axis=(0, 1)), pictures[name[:-4]][0, 0], atol=2)
    assert sorted(names(searching.found(searched, {"token": token, "places": []}))) == [
        "blue.png", "green.png", "red.png",
    ]  # fmt: skip


def test_hostile_requests_are_refused_in_a_sentence(searched, token):
    nan, far, many = [[0.5, float("nan")]], [[0.5, 2.0]], [[0.5, 0.5]] * 9
    hostile = [{"token": token, "places": places} for places in (None, [[0.5]], far, nan, many, "../x")]
    for asked in (None, {"token": "guessed", "places": []}, {"token": 3, "places": []}, *hostile):
        with pytest.raises(LabError):
            searching.found(searched, asked)


def test_lab_without_an_index_says_how_to_start_one(lab, encode, photo):
    with pytest.raises(LabError, match="--search INDEX"):
        searching.found(lab, {"token": encode(photo).key.token, "places": []})
