"""Labels per pixel: mask files and their palette, ids."""

import cv2
import numpy as np
import pytest
from PIL import Image

from segmentation.labels import DataError, object_ids, palette, read_labels, without_void, write_mask_png


@pytest.mark.parametrize("kind", ["palette", "gray", "filtered", "many parts", "one bit"])
def test_read_labels_returns_stored_values(kind, tmp_path):
    size, file = (400, 500) if kind == "many parts" else (40, 31), tmp_path / "mask.png"
    labels = np.random.default_rng(0).integers(0, 200, size, dtype=np.uint8)
    if kind == "filtered":
        labels.sort(axis=0)  # so that the writer stores differences to the row above
        cv2.imwrite(str(file), labels, [cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_UP])
    elif kind == "one bit":
        labels = (labels > 99).astype(np.uint8)
        Image.fromarray(labels > 0).save(file)
    elif kind == "gray":
        Image.fromarray(labels).save(file)
    else:
        write_mask_png(file, labels)
        with Image.open(file) as image:
            np.testing.assert_array_equal(np.array(image.convert("RGB")), palette()[labels])
    np.testing.assert_array_equal(read_labels(file), labels)
    np.testing.assert_array_equal(read_labels(file, binary=True), labels > 0)


def test_unusable_mask_raises_label_error(tmp_path):
    file = tmp_path / "mask.png"
    with pytest.raises(DataError, match=r"mask\.png is missing"):
        read_labels(file)
    Image.new("RGB", (4, 4)).save(file)
    with pytest.raises(DataError, match=r"mask\.png is an image of mode RGB"):
        read_labels(file)
    Image.fromarray(np.random.default_rng(0).integers(0, 4, (60, 50), dtype=np.uint8)).save(file)
    whole = file.read_bytes()
    flipped = [whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :] for at in (60, len(whole) - 30)]
    for content in (b"no image", whole[:60], *flipped):
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"mask\.png (is not a PNG|cannot be read)"):
            read_labels(file)


def test_palette_equals_pascal_voc():
    known = [[0, 0, 0], [128, 0, 0], [0, 128, 0], [64, 0, 0], [192, 128, 128], [224, 224, 192]]
    assert palette()[[0, 1, 2, 8, 15, 255]].tolist() == known


def test_object_ids_exclude_background_and_void():
    labels = np.array([[0, 7, 255], [7, 2, 0]], np.uint8)
    assert object_ids(labels) == (2, 7)
    assert without_void(labels).tolist() == [[0, 7, 0], [7, 2, 0]]
