"""Files of several images: each shows what the file of one image shows."""

import io
import zipfile

import numpy as np
import pytest
from PIL import Image

from app.downloads import FILES, Scene, sheet_png, views_zip
from app.view import View, maps_of

VIEW = View(11, layer="heat", show="mean")


@pytest.fixture
def scene(encode, photo, pixels):
    """`scene(view, name)`: a view of the image of noise."""
    encoding = encode(photo)
    return lambda view=VIEW, name="my image.jpg": Scene(encoding, view, maps_of(encoding, view), pixels, name)


def _pixels(content: bytes) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(content)))


def test_zip_has_the_files_of_every_image_under_its_own_query(scene):
    scenes = [scene(View(11, query=query, layer="heat", show="mean")) for query in ("cls", "1,2")]
    with zipfile.ZipFile(io.BytesIO(views_zip(scenes))) as archive:
        assert len(archive.namelist()) == 6
        for number, one in enumerate(scenes, 1):
            for file in ("overlay.png", "mask.png"):
                found = archive.read(f"{number:02d}-my-image-{file}")
                np.testing.assert_array_equal(_pixels(found), _pixels(FILES[file](one)))


def test_sheet_grows_with_its_images_four_in_a_row(scene):
    (one, wide, _), (same, wider, _), (two, as_wide, _) = (
        _pixels(sheet_png([scene()] * count)).shape for count in (1, 4, 5)
    )
    assert one == same < two
    assert wide < wider == as_wide


def test_principal_components_have_no_mask(scene):
    with zipfile.ZipFile(io.BytesIO(views_zip([scene(View(3, quantity="key-pca"))]))) as archive:
        assert archive.namelist() == ["01-my-image-overlay.png", "01-my-image-maps.npz"]
