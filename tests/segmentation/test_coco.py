"""Masks as files that other programs read."""

import json

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from dino_model import files
from segmentation import coco
from segmentation.labels import palette, write_mask_png


def test_the_palette_is_the_one_of_pascal_voc():
    colors = palette()
    known = {
        0: (0, 0, 0),
        1: (128, 0, 0),
        2: (0, 128, 0),
        8: (64, 0, 0),
        15: (192, 128, 128),
        255: (224, 224, 192),
    }
    assert {label: tuple(colors[label].tolist()) for label in known} == known
    assert len(np.unique(colors, axis=0)) == 256


def test_a_mask_png_keeps_its_labels_and_shows_the_palette(tmp_path):
    labels = np.arange(256, dtype=np.uint8).reshape(8, 32)
    write_mask_png(tmp_path / "mask.png", labels)
    with Image.open(tmp_path / "mask.png") as picture:
        assert picture.mode == "P"
        np.testing.assert_array_equal(np.array(picture), labels)
        np.testing.assert_array_equal(np.array(picture.convert("RGB")), palette()[labels])
    assert [path.name for path in tmp_path.iterdir()] == ["mask.png"]


def test_labels_of_another_type_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"mask\.png: labels are int64"):
        write_mask_png(tmp_path / "mask.png", np.zeros((2, 2), dtype=np.int64))
    assert not list(tmp_path.iterdir())


def test_results_load_into_coco_with_the_same_masks(tmp_path):
    mask = np.zeros((10, 20), dtype=bool)
    mask[2:5, 3:9] = True
    records = [coco.coco_record(7, 1, mask, score=0.5), coco.coco_record(7, 2, np.zeros_like(mask))]
    coco.write_coco_images(tmp_path / "images.json", {7: ("a.jpg", (10, 20))}, {1: "one", 2: "two"})
    coco.write_coco_results(tmp_path / "results.json", records)
    loaded = COCO(str(tmp_path / "images.json")).loadRes(str(tmp_path / "results.json"))
    first, second = loaded.loadAnns(loaded.getAnnIds(imgIds=[7]))
    np.testing.assert_array_equal(loaded.annToMask(first).astype(bool), mask)
    assert first["bbox"] == [3, 2, 6, 3]
    assert first["score"] == 0.5
    assert loaded.annToMask(second).sum() == 0


def test_json_holds_null_where_a_figure_is_undefined(tmp_path):
    files.write_json(
        tmp_path / "new" / "figures.json", {"a": float("nan"), "b": [np.float32(0.5), np.int64(3)]}
    )
    assert json.loads((tmp_path / "new" / "figures.json").read_text()) == {"a": None, "b": [0.5, 3]}


def test_labels_of_frames_are_read_by_coco(tmp_path):
    labels = np.zeros((6, 8), np.uint8)
    labels[1:3, 2:5], labels[4, 4] = 2, 9
    with coco.coco_writer(tmp_path / "masks.json", tmp_path / "images.json") as writer:
        writer.add("x/a.jpg", labels)
        writer.add("x/b.jpg", labels * 0)
    images = COCO(tmp_path / "images.json")
    results = images.loadRes(str(tmp_path / "masks.json"))
    assert [image["file_name"] for image in images.dataset["images"]] == ["x/a.jpg", "x/b.jpg"]
    for record in results.loadAnns(results.getAnnIds()):
        np.testing.assert_array_equal(results.annToMask(record), labels == record["category_id"])
    assert len(results.dataset["annotations"]) == 2


def test_frames_without_objects_are_an_empty_list(tmp_path):
    with coco.coco_writer(tmp_path / "masks.json", tmp_path / "images.json"):
        pass
    assert json.loads((tmp_path / "masks.json").read_text()) == []


def test_images_of_one_file_name_are_refused(tmp_path):
    images = {1: ("cat.jpg", (2, 3)), 2: ("cat.jpg", (4, 5))}
    with pytest.raises(ValueError, match=r"the file name 'cat\.jpg'; expected unique"):
        coco.write_coco_images(tmp_path / "images.json", images, {1: "object"})
