"""`python -m segmentation discover`: photographs, VOC boxes, folders with masks, bad input."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO
from skimage import data

from segmentation import datasets, discovery
from segmentation.commands.discover import Discover
from segmentation.masks import Box

MODEL = "random:vit_tiny/16"
PICTURES = {"cat": data.cat()[:100, :150], "cup": data.coffee()[:90, :120]}
BOX = """<annotation><object><name>cat</name><difficult>1</difficult><bndbox>
<xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox></object></annotation>"""


@pytest.fixture
def devkit(tmp_path) -> Path:
    """Two photographs laid out as VOC 2007 trainval, the object of each filling it all but for one line."""
    folder = tmp_path / "VOCdevkit" / "VOC2007"
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    for name, picture in PICTURES.items():
        height, width = picture.shape[:2]
        Image.fromarray(picture).save(folder / "JPEGImages" / f"{name}.jpg")
        (folder / "Annotations" / f"{name}.xml").write_text(BOX.format(1, 1, width, height - 1))
    (folder / "ImageSets" / "Main" / "trainval.txt").write_text("cat\ncup\n")
    return folder.parent


def test_min_confidence_leaves_images_without_an_object(tmp_path, capsys):
    image = np.full((64, 64, 3), (60, 120, 60), dtype=np.uint8)
    image[16:48, 16:48] = (250, 40, 30)
    for name, pixels in {"square": image, "plain": np.full_like(image, 128)}.items():
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    common = {"inputs": (tmp_path,), "size": 64, "methods": ("tokencut",), "output": tmp_path / "out"}
    Discover(**common, min_confidence=0.3).run()
    assert "images without an object: tokencut 1" in capsys.readouterr().out
    (found,) = json.loads((tmp_path / "out" / "tokencut.json").read_text())
    assert 0.3 <= found["score"] <= 1
    assert not np.array(Image.open(tmp_path / "out" / "masks" / "tokencut" / "plain.png")).any()
    with pytest.raises(ValueError, match=r"--min-confidence is 2; expected -1 to 1"):
        Discover(**common, min_confidence=2).run()


def test_corloc_counts_boxes_over_objects(devkit, tmp_path):
    file = tmp_path / "figures.json"
    common = {"dataset": "voc07", "root": devkit, "model": MODEL, "output": tmp_path / "out", "json": file}
    Discover(**common, methods=("attention",), head=0).run()
    figures = json.loads(file.read_text())
    assert figures["protocol"]["resize"] == "pad"
    with (tmp_path / "out" / "per_image.csv").open() as table:
        rows = list(csv.DictReader(table))
    right = [row["localized"] == "True" for row in rows]
    assert figures["scores"]["attention"]["corloc"] == pytest.approx(100 * np.mean(right))
    boxes = json.loads((tmp_path / "out" / "attention.json").read_text())
    for found, row, picture in zip(boxes, rows, PICTURES.values(), strict=True):
        left, top, width, height = found["bbox"]
        box, whole = (
            Box(left, top, left + width, top + height),
            Box(0, 0, picture.shape[1], picture.shape[0] - 1),
        )
        assert (row["localized"] == "True") == discovery.localized(box, [whole])


def test_voc_boxes_start_at_pixel_one(devkit):
    assert datasets.read_voc_boxes(devkit / "VOC2007" / "Annotations" / "cat.xml") == [Box(0, 0, 150, 99)]
    broken = devkit / "VOC2007" / "Annotations" / "cup.xml"
    broken.write_text("<annotation><object><bndbox>")
    with pytest.raises(ValueError, match=r"cup\.xml cannot be read as a VOC annotation"):
        datasets.read_voc_boxes(broken)


@pytest.fixture
def masked(tmp_path) -> dict:
    """Images with masks, as options of the command."""
    for kind in ("images", "masks"):
        (tmp_path / kind).mkdir()
    for name, picture in PICTURES.items():
        Image.fromarray(picture).save(tmp_path / "images" / f"{name}.jpg")
        mask = np.zeros(picture.shape[:2], dtype=np.uint8)
        mask[20:70, 30:90] = 255
        Image.fromarray(mask).save(tmp_path / "masks" / f"{name}.png")
    return {"inputs": (tmp_path / "images",), "masks": tmp_path / "masks", "model": MODEL}


@pytest.mark.parametrize("refine", [False, True])
def test_scores_and_coco_files_are_those_of_written_masks(masked, tmp_path, refine):
    out, file, methods = tmp_path / "out", tmp_path / "scores.json", ("maskcut", "lost")
    Discover(**masked, output=out, json=file, methods=methods, refine=refine).run()
    scores = json.loads(file.read_text())
    assert scores["protocol"]["resize"] == "native"
    with (out / "per_image.csv").open() as table:
        rows = {(row["method"], row["image"]): row for row in csv.DictReader(table)}
    for method in methods:
        loaded = COCO(str(out / f"{method}_images.json")).loadRes(str(out / f"{method}.json"))
        for number, (name, picture) in enumerate(PICTURES.items(), start=1):
            labels = np.array(Image.open(out / "masks" / method / f"{name}.png"))
            records = loaded.loadAnns(loaded.getAnnIds(imgIds=[number]))
            assert labels.shape == picture.shape[:2]
            assert labels.max() == len(records)
            found = np.any([loaded.annToMask(one) for one in records], axis=0)
            np.testing.assert_array_equal(labels > 0, found)
            truth, row = np.array(Image.open(masked["masks"] / f"{name}.png")) > 0, rows[method, name]
            assert float(row["iou"]) == pytest.approx((found & truth).sum() / (found | truth).sum())
            assert float(row["accuracy"]) == pytest.approx((found == truth).mean())
            assert (out / "overlays" / method / f"{name}.jpg").is_file()
        mean = 100 * np.mean([float(rows[method, name]["iou"]) for name in PICTURES])
        assert scores["scores"][method]["iou"] == pytest.approx(mean)
        assert 0 < scores["scores"][method]["max_f_tokencut"] <= 100


def test_wrong_input_is_named(devkit, masked, tmp_path):
    wrong = {
        "one of the two": {},
        "--methods names none": {**masked, "methods": ()},
        "VOCdevkit looks right": {"dataset": "voc07", "root": devkit / "VOC2007"},
        "--head is 9": {**masked, "methods": ("attention",), "head": 9},
    }
    for message, options in wrong.items():
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            Discover(**{"model": MODEL} | options, output=tmp_path / "new").run()
    Image.new("L", (5, 5)).save(masked["masks"] / "cat.png")
    with pytest.raises(ValueError, match=r"cat\.png is \(5, 5\), its image \(100, 150\)"):
        Discover(**masked, output=tmp_path / "other").run()
    (masked["masks"] / "cup.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"cup\.png is missing, though the data set lists cup"):
        Discover(**masked, output=tmp_path / "new").run()


def test_resume_after_interrupt_gives_same_files(masked, tmp_path, check_resume):
    options = {**masked, "methods": ("lost", "tokencut")}
    names = ("lost.json", "lost_images.json", "per_image.csv", "contact_sheet.png")
    assert check_resume(Discover, names, **options) == 3
    with pytest.raises(ValueError, match=r"other settings \(count was 3, now 2\)"):
        Discover(**options, output=tmp_path / "resumed", count=2, resume=True).run()


def test_images_of_same_name_get_own_results(tmp_path):
    for name in ("a/cat.png", "b/cat.png", "b/cat.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(PICTURES["cat"]).save(tmp_path / name)
    common = {"model": MODEL, "size": 32, "methods": ("lost",), "output": tmp_path / "out"}
    Discover(inputs=(tmp_path / "a", tmp_path / "b"), **common).run()
    with pytest.raises(ValueError, match="several images would write"):
        Discover(inputs=(tmp_path / "a", tmp_path / "a"), model=MODEL, output=tmp_path / "twice").run()
    images = json.loads((tmp_path / "out" / "lost_images.json").read_text())["images"]
    assert [image["file_name"] for image in images] == ["a/cat.png", "b/cat.jpg", "b/cat.png"]
    masks = tmp_path / "out" / "masks" / "lost"
    assert {file.relative_to(masks).as_posix() for file in masks.rglob("*.png")} == {
        "a/cat.png",
        "b/cat_jpg.png",
        "b/cat_png.png",
    }
