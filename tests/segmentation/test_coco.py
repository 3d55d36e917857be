"""COCO files: written ones that pycocotools reads, and the labels of annotated ones."""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pycocotools import mask
from pycocotools.coco import COCO

from segmentation import coco
from segmentation.annotations import MaskReader, NamedClass
from segmentation.commands.common import NamedMaskOptions
from segmentation.commands.truth import TrueMasks
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


def test_annotation_has_box_and_area_of_its_mask():
    mask = np.zeros((6, 8), bool)
    for expected in ([0, 0, 0, 0], [2, 1, 3, 2]):
        record = coco.coco_annotation(1, 1, 1, mask)
        assert (record["bbox"], record["area"]) == (expected, mask.sum())  # left, top, width, height
        mask[1:3, 2:5] = True


@pytest.mark.parametrize("categories", [None, {0: "foreground"}, {3: "cat", 7: "dog"}])
def test_results_without_a_mask_are_loaded(tmp_path, categories):
    writer = coco.CocoWriter(tmp_path / "masks.json", tmp_path / "images.json", categories)
    writer.add("a.jpg", (6, 8))
    writer.write()
    results = COCO(tmp_path / "images.json").loadRes(str(tmp_path / "masks.json"))
    assert [(each["area"], each["score"]) for each in results.loadAnns(results.getAnnIds())] == [(0, 0)]


SQUARE, SMALL = [[2, 2, 8, 2, 8, 8, 2, 8]], [[4, 4, 6, 4, 6, 6, 4, 6]]
IMAGE = {"id": 1, "file_name": "img0.png", "height": 12, "width": 10}


def annotate(category: Any = 1, image: Any = 1, shape: Any = SQUARE, **more: Any) -> dict[str, Any]:
    return {"id": 5, "image_id": image, "category_id": category, "segmentation": shape} | more


def write(folder: Path, objects: Any, ids: Any = (1, 2), encoding: str = "utf-8-sig", **more: Any) -> Path:
    content = {
        "images": [IMAGE],
        "annotations": objects,
        "categories": [{"id": key, "name": f"name {key}"} for key in ids],
    }
    (folder / "coco.json").write_text(json.dumps(content | more, ensure_ascii=False), encoding=encoding)
    return folder / "coco.json"


def read(masks: coco.CocoMasks, name: str = "img0.png", **options: Any) -> np.ndarray:
    reader = MaskReader(load=masks.load, label_set=masks.label_set(**options))
    return reader.read(Path(name))


@pytest.mark.parametrize("order", [1, -1])
def test_smaller_object_is_on_top_in_any_order(tmp_path, order):
    annotations = [annotate(1, shape=SQUARE), annotate(2, shape=SMALL)][::order]
    labels = read(coco.CocoMasks(write(tmp_path, annotations)))
    assert (labels[5, 5], labels[3, 3], labels[0, 0]) == (2, 1, 0)


CATEGORIES: dict[str, tuple[tuple[Any, ...], Any, dict[int, str]]] = {  # ids, one that is used, names
    "kept": ((1, 2, 200), 2, {1: "name 1", 2: "name 2", 200: "name 200"}),
    "unused 0": ((0, 1, 2), 2, {1: "name 1", 2: "name 2"}),
    "used 0": ((0, 1), 0, {1: "name 0", 2: "name 1"}),
    "above 254": ((300, 7, 1000), 300, {1: "name 7", 2: "name 300"}),
    "255": ((255, 3), 255, {1: "name 3", 2: "name 255"}),
    "texts of digits": (("1", "12"), 12, {1: "name 1", 12: "name 12"}),
    "more than 254": (tuple(range(1, 400)), 399, {1: "name 399"}),
}


@pytest.mark.parametrize("form", CATEGORIES)
def test_categories_of_any_id_keep_their_names(form, tmp_path):
    ids, used, names = CATEGORIES[form]
    masks = coco.CocoMasks(write(tmp_path, [annotate(used)], ids))
    label_set = masks.label_set()
    assert {label: label_set.name(label) for label in names} == names
    assert [label_set.name(label) for label in np.unique(read(masks))] == ["background", f"name {used}"]
    numbered = {
        "used 0": "1 = id 0, 2 = id 1",
        "above 254": "1 = id 7, 2 = id 300",
        "255": "1 = id 3, 2 = id 255",
    }
    numbered |= {"more than 254": "1 = id 399"}
    shown = f"labels of masks: {numbered[form]}" if form in numbered else "masks: values are labels"
    assert label_set.describe() == shown


def test_categories_have_the_labels_of_the_classes_of_their_names(tmp_path):
    masks = coco.CocoMasks(write(tmp_path, [annotate(0)], (0, 4)))
    wanted = tuple(map(NamedClass, ["background", "name 4", "name 0"]))
    assert read(masks, classes=wanted).max() == 2
    more = (*wanted, NamedClass("name 9"))
    assert read(masks, classes=more, is_exact=False).max() == 2
    for classes, is_exact in ((wanted[:2], False), (more, True)):
        with pytest.raises(DataError, match=r"differ in name (0|9)"):
            masks.label_set(classes, is_exact=is_exact)
    twice = [{"id": number, "name": "name 1"} for number in (1, 2)]
    for classes in ((), (NamedClass("name 1"),)):
        with pytest.raises(DataError, match="2 categories named 'name 1'"):
            coco.CocoMasks(write(tmp_path, [annotate()], categories=twice)).label_set(classes)


@pytest.mark.parametrize(
    ("encoding", "name"), [("utf-16", "ch\xeane"), ("utf-8-sig", "ch\xeane"), ("latin-1", r"ch\xeane")]
)
def test_file_may_have_any_encoding_of_text(tmp_path, encoding, name):
    named = [{"id": 1, "name": "ch\xeane"}]
    file = write(tmp_path, [annotate()], encoding=encoding, categories=named)
    assert coco.CocoMasks(file).label_set().name(1) == name


DAMAGED: dict[str, tuple[Any, str]] = {
    "null": (None, "annotation 2 of the file: no image_id"),
    "no image": ({"id": 9}, "annotation 2 of the file: no image_id"),
    "iscrowd of another kind": (annotate(2, iscrowd="false"), "iscrowd is 'false'; expected 0 or 1"),
    "no segmentation": (annotate(2, shape=None), r"annotation 5 of img0\.png: it has no segmentation"),
    "empty segmentation": (annotate(2, shape=[]), "it has no segmentation"),
    "two points": (annotate(2, shape=[[1, 1, 5, 5]]), "fewer than three corners"),
    "odd number": (annotate(2, shape=[[1, 1, 5, 5, 7, 3, 2]]), "has 7 numbers; expected pairs"),
    "unknown category": (annotate(8), "no category 8"),
    "other size": (annotate(2, shape={"size": [10, 12], "counts": [0, 9, 111]}), r"its size is \[10, 12\]"),
    "short run lengths": (annotate(2, shape={"size": [12, 10], "counts": [4]}), "run lengths of 12 × 10"),
    "corners from 0 to 1": (annotate(2, shape=[[0.1, 0.1, 0.5, 0.1, 0.5, 0.5]]), "expected pixels"),
    "far away": (annotate(2, shape=[[0, 0, 1e9, 0, 0, 1e9]]), "farther than 100,000 pixels"),
    "outside": (annotate(2, shape=[[50, 50, 90, 50, 90, 90]]), "it covers no pixel"),
}


@pytest.mark.parametrize("form", DAMAGED)
def test_damaged_annotation_loses_itself_only(form, tmp_path):
    annotation, message = DAMAGED[form]
    masks = coco.CocoMasks(write(tmp_path, [annotate(), annotation]))
    for _ in range(2):
        assert (read(masks) == 1).sum() == 36
    (problem,) = masks.damaged
    assert re.search(message, problem)


@pytest.mark.parametrize("shape", [SQUARE[0], [[[2, 2], [8, 2], [8, 8], [2, 8]]]])
def test_polygon_in_other_brackets_is_read(tmp_path, shape):
    masks = coco.CocoMasks(write(tmp_path, [annotate(shape=shape)]))
    assert ((read(masks) == 1).sum(), masks.damaged) == (36, [])


def test_polygon_beyond_the_image_is_drawn_as_pycocotools_does(tmp_path):
    masks = coco.CocoMasks(write(tmp_path, [annotate(shape=[[0, 0, 20, 0, 0, 24]])]))
    expected = mask.decode(mask.merge(mask.frPyObjects([[0, 0, 20, 0, 0, 24]], 12, 10)))
    np.testing.assert_array_equal(read(masks) == 1, expected)


TWICE = [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]
FILES: dict[str, tuple[dict[str, Any], str, str]] = {  # content, its error, its note
    "no list": ({"images": None}, "cannot be read as a COCO file", ""),
    "two categories of one id": ({"categories": TWICE}, "one id", ""),
    "ids of text": ({"categories": [{"id": "cat", "name": "cat"}]}, "cannot be read", ""),
    "other images only": (
        {"annotations": [annotate(image=9), annotate(image=12)]},
        "no usable annotation: 2 annotations left out.* the id 9, 12",
        "",
    ),
    "two images of one id": (
        {"images": [IMAGE, IMAGE | {"file_name": "b.png"}]},
        "two images have the id 1",
        "",
    ),
    "two images of one name": ({"images": [IMAGE, IMAGE | {"id": 2}]}, "two images have the file name", ""),
    "image listed twice": ({"images": [IMAGE, IMAGE]}, "", ""),
    "text ids": ({"annotations": [annotate(image="1")]}, "", ""),
    "decimal ids": ({"annotations": [annotate(image=1.0)]}, "", ""),
    "iscrowd as a text": ({"annotations": [annotate(iscrowd="0")]}, "", ""),
    "zeros in front": ({"annotations": [annotate(image="000001")]}, "", ""),
    "image not listed": (
        {"annotations": [annotate(), *[annotate(image=7)] * 3]},
        "",
        "3 annotations left out, .* has the id 7",
    ),
    "name for an id": (
        {"annotations": [annotate(), annotate(2, "img0.png")]},
        "",
        r"1 annotation left out, .* the id 'img0\.png'",
    ),
    "class of crowds only": (
        {"annotations": [annotate(), annotate(2, shape=[[0, 0, 1, 0, 1, 1, 0, 1]], iscrowd=1)]},
        "",
        "name 2 has iscrowd regions only, which are void; --crowds",
    ),
}


@pytest.mark.parametrize("form", FILES)
def test_file_is_refused_or_read_with_a_note(form, tmp_path):
    content, error, note = FILES[form]
    file = write(tmp_path, [annotate()], **content)
    if error:
        with pytest.raises(DataError, match=error):
            coco.CocoMasks(file)
        return
    masks = coco.CocoMasks(file)
    assert (read(masks) == 1).sum() == 36
    assert re.search(note or "^$", " ".join(masks.notes))


def test_crowds_are_void_unless_they_are_taken(tmp_path):
    file = write(tmp_path, [annotate(2), annotate(1, shape=SMALL, iscrowd=1)])
    found = [set(np.unique(read(coco.CocoMasks(file, crowds=crowds)))) for crowds in (False, True)]
    assert found == [{0, 2, 255}, {0, 1, 2}]


@pytest.mark.parametrize(
    ("masks", "options"),
    [("coco.json", {"binary": True}), ("coco.json", {"mask_name": "{stem}_m"}), (".", {"crowds": True})],
)
def test_options_of_other_masks_are_refused(tmp_path, masks, options):
    write(tmp_path, [annotate()])
    with pytest.raises(DataError, match=f"--{next(iter(options)).replace('_', '-')}"):
        TrueMasks(tmp_path / masks, [], NamedMaskOptions(**options))


@pytest.mark.parametrize(
    ("listed", "asked"),
    [
        ("images/img0.png", "img0.png"),
        ("./img0.png", "img0.png"),
        ("C:\\data\\images\\img0.png", "images/img0.png"),
        ("img0.png", "train/img0.png"),
        ("/data/caf\u00e9/img0.png", "cafe\u0301/img0.png"),
        (r"caf\xe9.png", os.fsdecode(b"caf\xe9.png")),  # a name that is not UTF-8, as it is written
    ],
)
def test_image_is_found_by_the_end_of_its_path(listed, asked, tmp_path):
    masks = coco.CocoMasks(write(tmp_path, [annotate()], images=[IMAGE | {"file_name": listed}]))
    assert read(masks, asked).sum() == 36
    with pytest.raises(DataError, match=r"lists no image 'mg0\.png'; nearest names there: .*\.png"):
        read(masks, "mg0.png")


def test_one_listed_image_is_not_that_of_two_files(tmp_path):
    masks = coco.CocoMasks(write(tmp_path, [annotate()], images=[IMAGE | {"file_name": "a.png"}]))
    assert read(masks, "1/a.png").sum() == 36
    with pytest.raises(DataError, match=r"lists one image 'a\.png' for .*1/a\.png and .*2/a\.png"):
        read(masks, "2/a.png")


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([IMAGE | {"id": n, "file_name": f"{n}/a.png"} for n in (1, 2)], "which can both be 'a.png'"),
        ([{"id": 1, "file_name": "a.png"}], "a.png without height and width"),
    ],
)
def test_ambiguous_or_incomplete_image_is_refused(tmp_path, images, message):
    with pytest.raises(DataError, match=message):
        read(coco.CocoMasks(write(tmp_path, [annotate()], images=images)), "a.png")
