"""COCO files that pycocotools reads."""

import numpy as np
import pytest
from pycocotools.coco import COCO

from segmentation import coco


def test_writer_makes_files_that_coco_reads(tmp_path):
    labels = np.zeros((6, 8), np.uint8)
    labels[1:3, 2:5], labels[4, 4] = 2, 9
    writer = coco.CocoWriter(tmp_path / "masks.json", tmp_path / "images.json")
    writer.add_labels("x/a.jpg", labels)
    writer.add_labels("x/b.jpg", labels * 0)
    writer.add("c.jpg", (6, 8), [(2, labels == 2, 0.5), (2, labels == 1, 0.1)])
    with pytest.raises(ValueError, match=r"the file name 'c\.jpg'; expected unique"):
        writer.add("c.jpg", (6, 8))
    writer.write()
    results = COCO(tmp_path / "images.json").loadRes(str(tmp_path / "masks.json"))
    assert [image["file_name"] for image in results.dataset["images"]] == ["x/a.jpg", "x/b.jpg", "c.jpg"]
    assert {category["name"] for category in results.dataset["categories"]} == {"object 2", "object 9"}
    *found, empty = results.loadAnns(results.getAnnIds())
    for record in found:
        np.testing.assert_array_equal(results.annToMask(record), labels == record["category_id"])
    assert (found[0]["bbox"], found[2]["score"]) == ([2, 1, 3, 2], 0.5)
    assert results.annToMask(empty).sum() == 0
