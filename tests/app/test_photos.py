import io

import numpy as np
import pytest
from PIL import Image

from app import photos
from app.errors import LabError, NotHere
from app.limits import Limits
from app.photos import ImageStore, clean_name, stem


def test_name_follows_the_content_and_cannot_be_guessed_from_it(as_file):
    black, white = (as_file(np.full((8, 8, 3), shade, np.uint8)) for shade in (0, 255))
    here, elsewhere = ImageStore(Limits()), ImageStore(Limits())
    assert here.keep(black) == here.keep(black)
    assert here.keep(black) != here.keep(white)
    assert here.keep(black) != elsewhere.keep(black)


def test_read_of_unknown_image_is_refused():
    pictures = ImageStore(Limits())
    for name in ("../cat", "", "0" * 32, "Kitten"):
        with pytest.raises(NotHere, match="open it again"):
            pictures.read(name)


def test_file_with_too_many_pixels_is_refused(as_file):
    with pytest.raises(LabError, match="too large"):
        ImageStore(Limits(max_megapixels=1)).keep(as_file(np.zeros((1001, 1000, 3), np.uint8)))


def test_decoded_pictures_are_bounded_by_their_bytes(as_file):
    pictures = ImageStore(Limits(max_memory_mb=4))  # a quarter for what is decoded
    names = [pictures.keep(as_file(np.full((500, 500, 3), shade, np.uint8))) for shade in range(9)]
    assert pictures._decoded._weight <= 1_000_000
    for shade, name in enumerate(names):  # small as files: all of them are still here
        assert pictures.read(name)[0, 0, 0] == shade


def test_damaged_file_is_refused_without_details_of_the_decoder(as_file):
    whole = as_file(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    with pytest.raises(LabError) as refused:
        ImageStore(Limits()).keep(whole[: len(whole) // 2])
    assert str(refused.value) == "This file is damaged or cut short."


def test_images_for_the_screen_are_reduced_and_small_ones_keep_their_size():
    for size, expected in (((3200, 800), (400, 1600)), ((80, 60), (60, 80))):
        picture = np.zeros((*size, 3), np.uint8)
        assert Image.open(io.BytesIO(photos.screen_jpeg(picture))).size == expected
    assert photos.thumbnail(np.zeros((300, 500, 3), np.uint8)).shape == (96, 96, 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("cat.png", "cat"), ('a"b\r\nc<d>.png', "a-b-c-d"), ("…", "image"), ("x" * 200, "x" * 60)],
)
def test_stem_is_fit_for_headers_and_file_systems(name, expected):
    assert stem(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a/b/cat.png", "cat.png"), ("a\r\nb\x00c.png", "a b c.png"), ("x" * 300, "x" * 100), ("  ", "")],
)
def test_clean_name_is_one_short_line(name, expected):
    assert clean_name(name) == expected
