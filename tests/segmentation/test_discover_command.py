"""`python -m segmentation discover`: photographs, VOC boxes, folders with masks, bad input."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO
from skimage import data

from segmentation import datasets, discovery
from segmentation.__main__ import main
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


@pytest.fixture
def masked(tmp_path) -> Path:
    """A folder of images and masks."""
    for kind in ("images", "masks"):
        (tmp_path / "set" / kind).mkdir(parents=True)
    for name, picture in PICTURES.items():
        Image.fromarray(picture).save(tmp_path / "set" / "images" / f"{name}.jpg")
        mask = np.zeros(picture.shape[:2], dtype=np.uint8)
        mask[20:70, 30:90] = 255
        Image.fromarray(mask).save(tmp_path / "set" / "masks" / f"{name}.png")
    return tmp_path / "set"


def test_photographs_get_masks_overlays_and_run_lengths_that_agree(tmp_path, capsys):
    photos = []
    for name, picture in PICTURES.items():
        photos.append(tmp_path / f"{name}.png")
        Image.fromarray(picture).save(photos[-1])
    out = tmp_path / "out"
    Discover(inputs=tuple(photos), model=MODEL, size=64, output=out, methods=("maskcut", "lost")).run()
    assert "resize short-side 64" in capsys.readouterr().out
    assert (out / "contact_sheet.png").is_file()
    for method in ("maskcut", "lost"):
        loaded = COCO(str(out / "images.json")).loadRes(str(out / f"{method}.json"))
        for number, (name, picture) in enumerate(PICTURES.items(), start=1):
            labels = np.array(Image.open(out / "masks" / method / f"{name}.png"))
            found = loaded.loadAnns(loaded.getAnnIds(imgIds=[number]))
            assert labels.shape == picture.shape[:2]
            assert labels.max() == len(found)
            union = np.any([loaded.annToMask(one) for one in found], axis=0)
            np.testing.assert_array_equal(labels > 0, union)
            assert (out / "overlays" / method / f"{name}.png").is_file()


def test_corloc_counts_boxes_that_cover_the_object(devkit, tmp_path):
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
        assert (row["localized"] == "True") == (discovery.box_jaccard(box, whole) >= 0.5)


def test_voc_boxes_are_read_from_pixel_one_and_difficult_ones_count(devkit):
    assert datasets.read_voc_boxes(devkit / "VOC2007" / "Annotations" / "cat.xml") == [Box(0, 0, 150, 99)]
    broken = devkit / "VOC2007" / "Annotations" / "cup.xml"
    broken.write_text("<annotation><object><bndbox>")
    with pytest.raises(ValueError, match=r"cup\.xml cannot be read as a VOC annotation"):
        datasets.read_voc_boxes(broken)


@pytest.mark.parametrize("refine", [False, True])
def test_a_folder_with_masks_gets_saliency_measures(masked, tmp_path, refine):
    file = tmp_path / "figures.json"
    options = {"model": MODEL, "output": tmp_path / "out", "json": file, "refine": refine}
    Discover(dataset=str(masked), **options, overlays=refine).run()
    assert len(list((tmp_path / "out" / "overlays").rglob("*.png"))) == (2 * 3 if refine else 0)
    figures = json.loads(file.read_text())
    assert figures["protocol"]["resize"] == "native"
    with (tmp_path / "out" / "per_image.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == 2 * 3
    for method, scores in figures["scores"].items():
        own = [row for row in rows if row["method"] == method]
        assert scores["iou"] == pytest.approx(100 * np.mean([float(row["iou"]) for row in own]))
        assert 0 < scores["max_f_tokencut"] <= 100
        assert 0 <= scores["accuracy"] <= 100


@pytest.mark.parametrize("refine", [False, True])
def test_a_figure_is_what_its_masks_say(masked, tmp_path, refine):
    out = tmp_path / "out"
    Discover(dataset=str(masked), model=MODEL, output=out, methods=("tokencut",), refine=refine).run()
    with (out / "per_image.csv").open() as table:
        rows = {row["image"]: row for row in csv.DictReader(table)}
    for name in PICTURES:
        found = np.array(Image.open(out / "masks" / "tokencut" / f"{name}.png")) > 0
        truth = np.array(Image.open(masked / "masks" / f"{name}.png")) > 0
        assert float(rows[name]["iou"]) == pytest.approx((found & truth).sum() / (found | truth).sum())
        assert float(rows[name]["accuracy"]) == pytest.approx((found == truth).mean())


def test_bad_input_is_named(devkit, masked, tmp_path):
    with pytest.raises(ValueError, match="one of the two"):
        Discover(model=MODEL, output=tmp_path / "new").run()
    with pytest.raises(ValueError, match="--methods names none"):
        Discover(dataset=str(masked), model=MODEL, methods=(), output=tmp_path / "new").run()
    with pytest.raises(FileNotFoundError, match="expected voc07, voc12 or an existing folder"):
        Discover(dataset="voc11", model=MODEL, output=tmp_path / "new").run()
    with pytest.raises(FileNotFoundError, match=r"holds no VOC2012/JPEGImages"):
        Discover(dataset="voc12", root=devkit, model=MODEL, output=tmp_path / "new").run()
    with pytest.raises(FileNotFoundError, match=r"VOCdevkit looks right"):
        Discover(dataset="voc07", root=devkit / "VOC2007", model=MODEL, output=tmp_path / "new").run()
    with pytest.raises(ValueError, match="--head is 9; this model has heads 0 to 2"):
        Discover(
            dataset=str(masked), model=MODEL, methods=("attention",), head=9, output=tmp_path / "out"
        ).run()
    Image.new("L", (5, 5)).save(masked / "masks" / "cat.png")
    with pytest.raises(ValueError, match=r"cat\.png is \(5, 5\), its image \(100, 150\)"):
        Discover(dataset=str(masked), model=MODEL, output=tmp_path / "other").run()
    (masked / "masks" / "cup.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"cup\.png is missing, though the data set lists cup"):
        Discover(dataset=str(masked), model=MODEL, output=tmp_path / "new").run()


def test_images_of_one_name_get_results_and_coco_names_of_their_own(tmp_path):
    for name in ("a/cat.png", "b/cat.png", "b/cat.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(PICTURES["cat"]).save(tmp_path / name)
    common = {"model": MODEL, "size": 32, "methods": ("lost",), "output": tmp_path / "out"}
    Discover(inputs=(tmp_path / "a", tmp_path / "b"), **common).run()
    images = json.loads((tmp_path / "out" / "images.json").read_text())["images"]
    assert [image["file_name"] for image in images] == ["a/cat.png", "b/cat.jpg", "b/cat.png"]
    masks = tmp_path / "out" / "masks" / "lost"
    assert {file.relative_to(masks).as_posix() for file in masks.rglob("*.png")} == {
        "a/cat.png",
        "b/cat_jpg.png",
        "b/cat_png.png",
    }


def test_long_image_is_skipped_and_named(tmp_path):
    for name, picture in PICTURES.items():
        Image.fromarray(picture).save(tmp_path / f"{name}.png")
    odd = np.random.default_rng(0).integers(0, 256, (20, 3000, 3), np.uint8)
    Image.fromarray(odd).save(tmp_path / "odd.png")
    with pytest.raises(ValueError, match=r"skipped 1 of 3 images: odd\.png: .*--size"):
        Discover(inputs=(tmp_path / "*.png",), model=MODEL, output=tmp_path / "out", methods=("lost",)).run()
    assert {file.stem for file in (tmp_path / "out/masks/lost").iterdir()} == {"cat", "cup"}


def test_a_broken_photograph_is_named_and_the_others_are_written(tmp_path):
    for name, picture in PICTURES.items():
        Image.fromarray(picture).save(tmp_path / f"{name}.png")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    photos = tuple(tmp_path / f"{name}.png" for name in ("cat", "broken", "cup"))
    with pytest.raises(ValueError, match=r"skipped 1 of 3 images: .*broken\.png is not"):
        Discover(inputs=photos, model=MODEL, size=64, output=tmp_path / "out").run()
    assert {file.stem for file in (tmp_path / "out/masks/lost").iterdir()} == {"cat", "cup"}
    assert (tmp_path / "out" / "contact_sheet.png").is_file()


def test_an_interrupted_run_goes_on_where_it_was_stopped(masked, tmp_path, monkeypatch):
    common = {"dataset": str(masked), "model": MODEL, "methods": ("lost", "tokencut")}
    file = {name: tmp_path / f"{name}.json" for name in ("whole", "resumed")}
    Discover(**common, output=tmp_path / "whole", json=file["whole"]).run()
    looked, find = [], Discover._find

    def stop_at_the_second(self, seen, settings):
        looked.append(seen.image.shape)
        if len(looked) == 2:
            raise KeyboardInterrupt
        return find(self, seen, settings)

    monkeypatch.setattr(Discover, "_find", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        Discover(**common, output=tmp_path / "resumed").run()
    assert (tmp_path / "resumed/masks/lost/cat.png").is_file()
    with (tmp_path / "resumed/progress.jsonl").open("a") as journal:
        journal.write('["cup", [')  # as a killed process leaves it
    Discover(**common, output=tmp_path / "resumed", json=file["resumed"], resume=True).run()
    assert len(looked) == 3
    assert file["whole"].read_text() == file["resumed"].read_text()
    for name in ("lost.json", "images.json", "per_image.csv", "contact_sheet.png"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "resumed" / name).read_bytes()
    with pytest.raises(ValueError, match=r"other settings \(tau was 0\.2, now 0\.3\)"):
        Discover(**common, output=tmp_path / "resumed", resume=True, tau=0.3).run()


def test_a_picture_that_changed_is_looked_at_again(masked, tmp_path):
    common = {"dataset": str(masked), "model": MODEL, "methods": ("lost",), "output": tmp_path / "out"}
    Discover(**common).run()
    Image.fromarray(PICTURES["cat"][:, ::-1]).save(masked / "images" / "cat.jpg")
    before = (tmp_path / "out/masks/lost/cat.png").read_bytes()
    Discover(**common, resume=True).run()
    assert (tmp_path / "out/masks/lost/cat.png").read_bytes() != before


def test_cached_features_need_no_model(masked, tmp_path, monkeypatch):
    common = {"dataset": str(masked), "model": MODEL, "cache": tmp_path / "cache", "head": 0}
    methods = ("lost", "attention")
    Discover(**common, methods=methods, output=tmp_path / "a").run()
    monkeypatch.setattr("dino_model.predictor.AttentionPredictor.set_image", None)
    Discover(**common, methods=methods, output=tmp_path / "b").run()
    assert (tmp_path / "a/lost.json").read_text() == (tmp_path / "b/lost.json").read_text()
    assert (tmp_path / "a/attention.json").read_text() == (tmp_path / "b/attention.json").read_text()


def test_a_broken_photograph_ends_the_command_in_one_sentence(tmp_path, monkeypatch, capsys):
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    arguments = [
        "discover",
        str(tmp_path / "broken.jpg"),
        "--model",
        MODEL,
        "--output",
        str(tmp_path / "out"),
    ]
    monkeypatch.setattr("sys.argv", ["segmentation", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    assert re.fullmatch(r"error: .*broken\.jpg is not .*", capsys.readouterr().err.splitlines()[-1])
