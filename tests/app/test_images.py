"""Images in bounded memory, and names and files of images."""

import io

import numpy as np
import pytest
from PIL import Image

from app.limits.bounds import Limits
from app.limits.errors import LabError, NotHere
from app.store.images import (
    EXAMPLES,
    WALK,
    ImageStore,
    clean_name,
    pin,
    png,
    read_frame,
    stem,
    thumbnail,
)
from app.values import screen_jpeg
from dino_model import photographs


def test_name_follows_the_content_and_cannot_be_guessed_from_it():
    black, white = (png(np.full((8, 8, 3), shade, np.uint8)) for shade in (0, 255))
    here, elsewhere = ImageStore(Limits()), ImageStore(Limits())
    assert here.keep(black) == here.keep(black)
    assert len({here.keep(black), here.keep(white), elsewhere.keep(black)}) == 3
    for name in ("../cat", "", "0" * 32, "Kitten"):
        with pytest.raises(NotHere, match="open it again"):
            here.read(name)


def test_large_and_damaged_files_are_refused_without_details_of_the_decoder(pixels):
    images = ImageStore(Limits(max_megapixels=1))
    images.keep(png(np.zeros((1000, 1000, 3), np.uint8)))
    with pytest.raises(LabError, match="too large"):
        images.keep(png(np.zeros((1001, 1000, 3), np.uint8)))
    with pytest.raises(LabError, match=r"^This file is damaged or cut short\.$"):
        images.keep(png(pixels)[:9000])


def test_jpeg_beyond_the_limit_is_decoded_at_half_its_size_unless_it_is_progressive_or_larger_still():
    images = ImageStore(Limits(max_megapixels=1))
    large = Image.fromarray(np.zeros((1201, 2000, 3), np.uint8))
    content = {True: io.BytesIO(), False: io.BytesIO()}
    for progressive, file in content.items():
        large.save(file, "JPEG", progressive=progressive)
    name = images.keep(content[False].getvalue())
    assert images.read(name).shape == (601, 1000, 3)
    assert images.is_halved(content[False].getvalue())
    whole = io.BytesIO()
    large.resize((4000, 1201)).save(whole, "JPEG")
    for file in (content[True], whole):
        with pytest.raises(LabError, match="too large"):
            images.keep(file.getvalue())


def test_decoded_images_are_bounded_by_their_bytes():
    images = ImageStore(Limits(max_memory_mb=4))  # a quarter for decoded images
    names = [images.keep(png(np.full((500, 500, 3), shade, np.uint8))) for shade in range(9)]
    assert images._decoded.weight <= 1_000_000
    assert [images.read(name)[0, 0, 0] for name in names] == list(range(9))  # small as files: all are kept


def test_images_for_the_screen_are_reduced_and_small_ones_keep_their_size():
    for size, expected in (((3200, 800), (400, 1600)), ((80, 60), (60, 80))):
        assert Image.open(io.BytesIO(screen_jpeg(np.zeros((*size, 3), np.uint8)))).size == expected
    assert thumbnail(np.zeros((300, 500, 3), np.uint8)).shape == (96, 96, 3)


def test_frame_of_a_script_has_up_to_400_000_characters():
    for count, sentence in ((400_000, "is damaged"), (400_001, "is too large")):
        with pytest.raises(LabError, match=sentence):
            read_frame("data:image/jpeg;base64," + "A" * (count - 23))


def test_pins_and_walk_of_examples_are_on_their_objects():
    for name in EXAMPLES:
        mask, (x, y) = photographs.mask(name), pin(name)
        assert (int(y * mask.shape[0]), int(x * mask.shape[1])) == photographs.pin(name)
        assert y * mask.shape[0] % 1 == x * mask.shape[1] % 1 == pytest.approx(0.5)  # a center of a pixel
    mask = photographs.mask(WALK["source"])
    inside = [bool(mask[int(y * mask.shape[0]), int(x * mask.shape[1])]) for x, y in WALK["places"]]
    assert inside == [True, True, False]  # wool, head and grass


def test_names_are_fit_for_headers_file_systems_and_one_line():
    stems = {"cat.png": "cat", 'a"b\r\nc<d>.png': "a-b-c-d", "…": "image", "x" * 200: "x" * 60}
    assert {name: stem(name) for name in stems} == stems
    lines = {"a/b/cat.png": "cat.png", "a\r\nb\x00c.png": "a b c.png", "x" * 300: "x" * 100, "  ": ""}
    assert {name: clean_name(name) for name in lines} == lines
