"""A picture of the page that the repository shows can be taken anew."""

from PIL import Image

from tools.pictures import SHOTS, take


def test_picture_is_taken_at_its_size_and_shows_something(browser, address, tmp_path):
    shot = SHOTS[1]  # the one that needs a click
    take(shot, browser, address.rstrip("/"), tmp_path)
    picture = Image.open(tmp_path / shot.file)
    assert picture.width == shot.size[0]
    assert picture.height >= shot.size[1]
    assert len(picture.convert("RGB").getcolors(2**24)) > 1000
