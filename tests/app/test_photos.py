import numpy as np
import pytest
from PIL import Image

from app import photos
from app.photos import EXAMPLES, Photo
from dino_model.images import ImageError


def test_examples_come_without_network_as_rgb():
    for name in EXAMPLES:
        pixels = photos.example(name).read()
        assert pixels.dtype == np.uint8
        assert pixels.shape[2] == 3
        assert min(pixels.shape[:2]) >= 300


def test_unknown_example_names_the_known_ones():
    with pytest.raises(KeyError, match="cat, astronaut, coffee, rocket"):
        photos.example("../cat")


def test_key_follows_the_content_not_the_name(tmp_path):
    for name, shade in (("a.png", 1), ("b.png", 1), ("c.png", 2)):
        Image.new("RGB", (8, 8), (shade,) * 3).save(tmp_path / name)
    a, b, c = (photos.from_file(tmp_path / name, max_pixels=100) for name in ("a.png", "b.png", "c.png"))
    assert a.key == b.key != c.key


def test_too_many_pixels_are_refused_when_read(tmp_path):
    Image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    with pytest.raises(ImageError, match="too large"):
        photos.from_file(tmp_path / "a.png", max_pixels=399).read()


@pytest.mark.parametrize(
    ("name", "stem"),
    [("cat.png", "cat"), ('a"b\r\nc<d>.png', "a-b-c-d"), ("…", "photograph"), ("x" * 200, "x" * 60)],
)
def test_stem_is_fit_for_headers_and_file_systems(name, stem):
    assert Photo(name, "", lambda: np.zeros((1, 1, 3), np.uint8)).stem == stem
