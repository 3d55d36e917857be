"""COCO files: written ones that pycocotools reads, and the labels of annotated ones."""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from segmentation import coco
from segmentation.commands.head import Fit
from segmentation.labels import DataError


def test_writer_makes_files_that_coco_reads(tmp_path):
    labels = np.zeros((6, 8), np.uint8)
    labels[1:3, 2:5], labels[1, 4], labels[4, 4] = 2, 0, 9
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
        assert record["area"] == (labels == record["category_id"]).sum()  # of the mask, not of its box
    assert (found[0]["bbox"].tolist(), found[2]["score"]) == ([2, 1, 3, 2], 0.5)
    assert results.annToMask(empty).sum() == 0


def test_name_that_is_not_utf8_is_written_escaped_and_found_again(tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    writer = coco.CocoWriter(tmp_path / "masks.json", tmp_path / "images.json")
    writer.add_labels(name, np.ones((6, 8), np.uint8))
    writer.write()
    content = json.loads((tmp_path / "images.json").read_text(encoding="utf-8"))
    assert content["images"][0]["file_name"] == r"caf\xe9.png"
    content["annotations"] = [
        each | {"id": number} for number, each in enumerate(json.loads((tmp_path / "masks.json").read_text()))
    ]
    (tmp_path / "all.json").write_text(json.dumps(content))
    assert coco.CocoLabels(tmp_path / "all.json").read(name, (6, 8)).all()


@pytest.mark.parametrize("categories", [None, {0: "foreground"}, {3: "cat", 7: "dog"}])
def test_results_without_a_mask_are_loaded(tmp_path, categories):
    writer = coco.CocoWriter(tmp_path / "masks.json", tmp_path / "images.json", categories)
    writer.add("a.jpg", (6, 8))
    writer.write()
    results = COCO(tmp_path / "images.json").loadRes(str(tmp_path / "masks.json"))
    assert [(each["area"], each["score"]) for each in results.loadAnns(results.getAnnIds())] == [(0, 0)]


SQUARE, SMALL = [[2, 2, 8, 2, 8, 8, 2, 8]], [[4, 4, 6, 4, 6, 6, 4, 6]]


def annotate(category: Any = 1, image: Any = 1, shape: Any = SQUARE, **more: Any) -> dict[str, Any]:
    return {"id": 5, "image_id": image, "category_id": category, "segmentation": shape} | more


def coco_file(folder: Path, annotations: Any, categories: Any = (1, 2), **image: Any) -> Path:
    images = [{"id": 1, "file_name": "img0.png", "height": 12, "width": 10} | image]
    named = [{"id": key, "name": f"name {key}"} for key in categories]
    content = {"images": images, "annotations": annotations, "categories": named}
    (folder / "coco.json").write_text(json.dumps(content), encoding="utf-8-sig")
    return folder / "coco.json"


@pytest.mark.parametrize("order", [1, -1])
def test_smaller_object_is_on_top_in_any_order(tmp_path, order):
    annotations = [annotate(1, shape=SQUARE), annotate(2, shape=SMALL)][::order]
    labels = coco.CocoLabels(coco_file(tmp_path, annotations)).read("img0.png", (12, 10))
    assert (labels[5, 5], labels[3, 3], labels[0, 0]) == (2, 1, 0)


CATEGORIES: dict[str, tuple[tuple[Any, ...], Any, dict[int, str]]] = {  # ids, one that is used, names
    "kept": ((1, 2, 200), 2, {1: "name 1", 2: "name 2", 200: "name 200"}),
    "unused 0": ((0, 1, 2), 2, {1: "name 1", 2: "name 2"}),
    "used 0": ((0, 1), 0, {1: "name 0", 2: "name 1"}),
    "above 254": ((300, 7, 1000), 300, {1: "name 7", 2: "name 300"}),
    "texts of digits": (("1", "12"), 12, {1: "name 1", 12: "name 12"}),
    "texts": (("cat", "dog"), "dog", {1: "name dog"}),
    "more than 254": (tuple(range(1, 400)), 399, {1: "name 399"}),
}


@pytest.mark.parametrize(
    ("encoding", "name"), [("utf-16", "ch\xeane"), ("utf-8-sig", "ch\xeane"), ("latin-1", r"ch\xeane")]
)
def test_file_may_have_any_encoding_of_text(tmp_path, encoding, name):
    content = json.loads(coco_file(tmp_path, [annotate()]).read_text(encoding="utf-8-sig"))
    content["categories"][0]["name"] = "ch\xeane"
    (tmp_path / "coco.json").write_text(json.dumps(content, ensure_ascii=False), encoding=encoding)
    assert coco.CocoLabels(tmp_path / "coco.json").names[1] == name


@pytest.mark.parametrize("form", CATEGORIES)
def test_categories_of_any_id_keep_their_names(form, tmp_path):
    ids, used, names = CATEGORIES[form]
    labels = coco.CocoLabels(coco_file(tmp_path, [annotate(used)], ids))
    found = {name: label for label, name in labels.names.items()}
    assert set(np.unique(labels.read("img0.png", (12, 10)))) == {0, found[f"name {used}"]}
    assert labels.names == {0: "background"} | names
    assert ("labels of categories" in labels.describe()) == (
        form not in ("kept", "unused 0", "texts of digits")
    )


def test_categories_have_the_labels_of_a_heads_names(tmp_path):
    file = coco_file(tmp_path, [annotate(0)], (0, 4))
    assert coco.CocoLabels(file, ["background", "name 4", "name 0"]).read("img0.png", (12, 10)).max() == 2
    with pytest.raises(DataError, match=r"has the category 'name 0'; the classes are name 1, name 4"):
        coco.CocoLabels(file, ["background", "name 1", "name 4"])


DAMAGED: dict[str, tuple[Any, str]] = {
    "null": (None, "annotation 2 of the file: no image_id"),
    "no image": ({"id": 9}, "annotation 2 of the file: no image_id"),
    "no segmentation": (annotate(2, shape=None), r"annotation 5 of img0\.png: it has no segmentation"),
    "empty segmentation": (annotate(2, shape=[]), "it has no segmentation"),
    "two points": (annotate(2, shape=[[1, 1, 5, 5]]), "fewer than three corners"),
    "odd number of coordinates": (
        annotate(2, shape=[[1, 1, 5, 5, 7, 3, 2]]),
        "has 7 numbers; expected pairs",
    ),
    "unknown category": (annotate(8), "no category 8"),
    "run lengths of another size": (
        annotate(2, shape={"size": [2, 2], "counts": [4]}),
        r"its size is \[2, 2\], the image's \[12, 10\]",
    ),
    "transposed run lengths": (
        annotate(2, shape={"size": [10, 12], "counts": [0, 9, 111]}),
        r"its size is \[10, 12\], the image's \[12, 10\]",
    ),
    "short run lengths": (annotate(2, shape={"size": [12, 10], "counts": [4]}), "run lengths of 12 × 10"),
    "corners from 0 to 1": (
        annotate(2, shape=[[0.1, 0.1, 0.5, 0.1, 0.5, 0.5]]),
        "from 0 to 1; expected pixels",
    ),
    "outside": (annotate(2, shape=[[50, 50, 90, 50, 90, 90]]), "it covers no pixel"),
}


@pytest.mark.parametrize("form", DAMAGED)
def test_damaged_annotation_loses_itself_only(form, tmp_path):
    annotation, message = DAMAGED[form]
    labels = coco.CocoLabels(coco_file(tmp_path, [annotate(), annotation]))
    for _ in range(2):
        assert (labels.read("img0.png", (12, 10)) == 1).sum() == 36
    (problem,) = labels.damaged
    assert re.search(message, problem)


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        ([2, 2, 8, 2, 8, 8, 2, 8], 36),
        ([[[2, 2], [8, 2], [8, 8], [2, 8]]], 36),
        ([{"size": [12, 10], "counts": [0, 5, 115]}, {"size": [12, 10], "counts": [60, 4, 56]}], 9),
    ],
)
def test_segmentation_in_other_brackets_is_read(tmp_path, shape, count):
    labels = coco.CocoLabels(coco_file(tmp_path, [annotate(shape=shape)]))
    assert ((labels.read("img0.png", (12, 10)) == 1).sum(), labels.damaged) == (count, [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["annotations"], "it has no images and no annotations and no categories"),
        (lambda content: {k: v for k, v in content.items() if k != "categories"}, "it has no categories"),
        (
            lambda content: content | {"categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]},
            "one id",
        ),
        (lambda content: content | {"images": content["images"][:1] * 2}, ""),
    ],
)
def test_file_without_its_parts_is_refused_and_a_repeated_image_counts_once(tmp_path, change, message):
    file = coco_file(tmp_path, [annotate()])
    file.write_text(json.dumps(change(json.loads(file.read_text(encoding="utf-8-sig")))))
    if message:
        with pytest.raises(DataError, match=message):
            coco.CocoLabels(file)
    else:
        assert (coco.CocoLabels(file).read("img0.png", (12, 10)) == 1).sum() == 36


def test_fit_on_boxes_without_masks_names_them(tmp_path):
    (tmp_path / "images").mkdir()
    Image.new("RGB", (10, 12)).save(tmp_path / "images/img0.png")
    masks, head = coco_file(tmp_path, [annotate(shape=None)]), tmp_path / "head.safetensors"
    with pytest.raises(ValueError, match=r"skipped 1 of 1 annotations?: .*it has no segmentation"):
        Fit(images=tmp_path / "images", masks=masks, output=head, model="random:embedded", size=32).run()
    assert not head.exists()


STRAYS = {
    "text ids": ([annotate(image="1")], 36, ""),
    "decimal ids": ([annotate(image=1.0)], 36, ""),
    "zeros in front": ([annotate(image="000001")], 36, ""),
    "image not listed": (
        [annotate(), *[annotate(image=7)] * 3],
        36,
        "3 annotations left out, .* has the id 7",
    ),
    "name for an id": (
        [annotate(), annotate(2, "img0.png")],
        36,
        r"1 annotation left out, .* the id 'img0\.png'",
    ),
}


@pytest.mark.parametrize("form", STRAYS)
def test_annotations_of_other_images_are_named_and_counted(form, tmp_path):
    annotations, area, message = STRAYS[form]
    labels = coco.CocoLabels(coco_file(tmp_path, annotations))
    assert (labels.read("img0.png", (12, 10)) == 1).sum() == area
    assert re.search(message or "^$", labels.describe())


def test_file_whose_annotations_have_no_listed_image_is_refused(tmp_path):
    file = coco_file(tmp_path, [annotate(image=9), annotate(image=12)])
    with pytest.raises(DataError, match=r"has no usable annotation: 2 annotations left out.* the id 9, 12"):
        coco.CocoLabels(file)


@pytest.mark.parametrize(
    ("listed", "asked"),
    [
        ("images/img0.png", "img0.png"),
        ("./img0.png", "img0.png"),
        ("C:\\data\\images\\img0.png", "images/img0.png"),
        ("img0.png", "train/img0.png"),
        ("/data/caf\u00e9/img0.png", "cafe\u0301/img0.png"),
    ],
)
def test_image_is_found_by_the_end_of_its_path(listed, asked, tmp_path):
    labels = coco.CocoLabels(coco_file(tmp_path, [annotate()], file_name=listed, height=None, width=None))
    assert labels.read(asked, (12, 10)).sum() == 36
    with pytest.raises(DataError, match=r"lists no image 'mg0\.png'"):
        labels.read("mg0.png", (12, 10))


def test_ambiguous_images_are_refused(tmp_path):
    file = coco_file(tmp_path, [annotate()])
    content = json.loads(file.read_text(encoding="utf-8-sig"))
    content["images"] = [{"id": number, "file_name": f"{number}/a.png"} for number in (1, 2)]
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"lists '1/a\.png' and '2/a\.png', which can both be 'a\.png'"):
        coco.CocoLabels(file).read("a.png", (12, 10))
    content["images"][1]["id"] = "1"
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match="two images have the id '1'"):
        coco.CocoLabels(file)
