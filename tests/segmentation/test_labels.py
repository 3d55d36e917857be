"""Labels per pixel: palette and ids."""

import numpy as np

from segmentation.labels import object_ids, palette, without_void


def test_palette_equals_pascal_voc():
    known = [[0, 0, 0], [128, 0, 0], [0, 128, 0], [64, 0, 0], [192, 128, 128], [224, 224, 192]]
    assert palette()[[0, 1, 2, 8, 15, 255]].tolist() == known


def test_object_ids_exclude_background_and_void():
    labels = np.array([[0, 7, 255], [7, 2, 0]], np.uint8)
    assert object_ids(labels) == (2, 7)
    assert without_void(labels).tolist() == [[0, 7, 0], [7, 2, 0]]
