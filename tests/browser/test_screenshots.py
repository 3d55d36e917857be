"""The screenshots of the documents can be retaken."""

from PIL import Image

from tools.screenshots import SHOTS, take


def test_screenshot_has_its_size_and_many_colors(browser, address, tmp_path):
    shot = SHOTS[1]  # the one that needs a click
    take(shot, browser, address.rstrip("/"), tmp_path)
    image = Image.open(tmp_path / shot.file)
    assert image.width == shot.size[0]
    assert image.height >= shot.size[1]
    assert len(image.convert("RGB").getcolors(2**24)) > 1000
