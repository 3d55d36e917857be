"""Labels per pixel: mask files, ids, sizes."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from segmentation.labels import (
    LabelError,
    object_ids,
    read_labels,
    without_void,
    write_mask_png,
)


def test_read_labels_returns_indices_or_gray_values(tmp_path: Path):
    labels = np.random.default_rng(0).integers(0, 4, (9, 7), dtype=np.uint8)
    write_mask_png(tmp_path / "palette.png", labels)
    Image.fromarray(labels).save(tmp_path / "grey.png")
    for name in ("palette.png", "grey.png"):
        np.testing.assert_array_equal(read_labels(tmp_path / name), labels)
    np.testing.assert_array_equal(read_labels(tmp_path / "grey.png", binary=True), labels > 0)
    Image.new("RGB", (4, 4)).save(tmp_path / "colour.png")
    with pytest.raises(LabelError, match=r"colour\.png is an image of mode RGB"):
        read_labels(tmp_path / "colour.png")
    with pytest.raises(LabelError, match="is missing"):
        read_labels(tmp_path / "none.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "grey.png").read_bytes()[:60])
    with pytest.raises(LabelError, match=r"cut\.png cannot be read"):
        read_labels(tmp_path / "cut.png")
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(LabelError, match=r"text\.png is not a PNG"):
        read_labels(tmp_path / "text.png")


@pytest.mark.parametrize("kind", ["plain", "filtered", "many parts", "one bit", "wide", "one pixel"])
def test_read_labels_equals_pillow(kind: str, tmp_path: Path):
    size = {"wide": (3, 5000), "one pixel": (1, 1), "many parts": (400, 500)}.get(kind, (40, 30))
    labels = np.random.default_rng(0).integers(0, 200, size, dtype=np.uint8)
    if kind == "filtered":
        labels.sort(axis=0)  # so that the writer gains by telling rows apart from those above
        cv2.imwrite(str(tmp_path / "mask.png"), labels, [cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_UP])
    elif kind == "one bit":
        labels = (labels > 99).astype(np.uint8)
        Image.fromarray(labels > 0).save(tmp_path / "mask.png")
    else:
        write_mask_png(tmp_path / "mask.png", labels)
    np.testing.assert_array_equal(read_labels(tmp_path / "mask.png"), labels)


@pytest.mark.parametrize("at", [60, -30])
def test_damaged_mask_raises_label_error(at: int, tmp_path: Path):
    labels = np.random.default_rng(0).integers(0, 4, (60, 50), dtype=np.uint8)
    Image.fromarray(labels).save(tmp_path / "mask.png")
    content = bytearray((tmp_path / "mask.png").read_bytes())
    content[at] ^= 0xFF
    (tmp_path / "mask.png").write_bytes(content)
    with pytest.raises(LabelError, match=r"mask\.png cannot be read"):
        read_labels(tmp_path / "mask.png")


def test_object_ids_exclude_background_and_void():
    labels = np.array([[0, 7, 255], [7, 2, 0]], np.uint8)
    assert object_ids(labels) == (2, 7)
    np.testing.assert_array_equal(without_void(labels), [[0, 7, 0], [7, 2, 0]])
