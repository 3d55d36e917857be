"""Labels per pixel: palette and ids."""

import numpy as np
import pytest

from segmentation.labels import DataError, check_size, object_ids, palette, without_void


def test_palette_equals_pascal_voc():
    known = [[0, 0, 0], [128, 0, 0], [0, 128, 0], [64, 0, 0], [192, 128, 128], [224, 224, 192]]
    assert palette()[[0, 1, 2, 8, 15, 255]].tolist() == known


def test_object_ids_exclude_background_and_void():
    labels = np.array([[0, 7, 255], [7, 2, 0]], np.uint8)
    assert object_ids(labels) == (2, 7)
    assert without_void(labels).tolist() == [[0, 7, 0], [7, 2, 0]]


def test_mask_of_another_size_is_refused_and_of_a_turned_image_explained():
    check_size("the mask", (3, 4), "its image", (3, 4, 3))
    with pytest.raises(DataError, match="the mask is 4x3 pixels, its image 5x3; they must be of one size"):
        check_size("the mask", (3, 4), "its image", (3, 5, 3))
    with pytest.raises(DataError, match="its image 3x4, turned upright as EXIF says"):
        check_size("the mask", (3, 4), "its image", (4, 3, 3))
