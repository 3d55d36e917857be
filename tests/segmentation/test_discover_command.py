"""The command `discover`: images, VOC boxes, folders with masks, bad input."""

import csv
import json

import numpy as np
import pytest
from PIL import Image

from dino_model import photographs
from dino_model.inference.predictor import AttentionPredictor
from segmentation import datasets, discovery, discovery_eval
from segmentation.commands.common import list_inputs, open_inputs
from segmentation.commands.discover import Discover
from segmentation.masks import Box
from tests.segmentation.coco import load_results

MODEL = "random:vit_tiny/16"
NAMES = "cat", "cup"


@pytest.fixture
def masked(devkit) -> dict:
    """Images with masks, as options of the command."""
    folder = devkit / "VOC2012"
    inputs = tuple(folder / "JPEGImages" / f"{name}.jpg" for name in NAMES)
    return {"inputs": inputs, "masks": folder / "SegmentationClass", "model": MODEL}


def test_min_confidence_leaves_images_without_an_object(tmp_path, capsys):
    Image.new("RGB", (64, 64), "gray").save(tmp_path / "plain.png")
    Image.fromarray(photographs.image("duck")).save(tmp_path / "duck.png")
    options = {"inputs": (tmp_path,), "size": 64, "methods": ("tokencut",), "min_confidence": 0.3}
    Discover(**options, output=tmp_path / "out").run()
    assert "images without an object: tokencut 1" in capsys.readouterr().out
    (found,) = json.loads((tmp_path / "out" / "tokencut.json").read_text())
    assert 0.3 <= found["score"] <= 1
    assert not np.array(Image.open(tmp_path / "out" / "masks" / "tokencut" / "plain.png")).any()


@pytest.mark.parametrize(("year", "lost", "tokencut"), [(7, "61.9", "68.8"), (12, "64.0", "72.1")])
def test_corloc_is_printed_beside_that_of_the_papers(devkit, tmp_path, capsys, year, lost, tokencut):
    (devkit / "VOC2012").rename(devkit / f"VOC20{year:02}")
    options = {"dataset": f"voc{year:02}", "root": devkit, "model": MODEL, "output": tmp_path / "out"}
    Discover(**options, methods=("lost", "tokencut", "maskcut")).run()
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert rows["lost"].endswith(f"published CorLoc, DINO ViT-S/16: {lost}")
    assert rows["tokencut"].endswith(f"published CorLoc, DINO ViT-S/16: {tokencut}")
    assert "published" not in rows["maskcut"]


def test_corloc_counts_boxes_over_objects(devkit, tmp_path):
    file, out = tmp_path / "scores.json", tmp_path / "out"
    options = {"dataset": "voc12", "root": devkit, "model": MODEL, "output": out, "json": file}
    Discover(**options, methods=("attention",), head=0).run()
    scores = json.loads(file.read_text())
    assert scores["protocol"]["resize"] == "pad"
    results = load_results(out, "attention")
    boxes = [record["bbox"] for record in results.loadAnns(results.getAnnIds())]
    found = [
        discovery_eval.is_localized(Box(x, y, x + w, y + h), [Box(0, 0, 160, 119)]) for x, y, w, h in boxes
    ]
    assert scores["scores"]["attention"]["corloc"] == pytest.approx(100 * np.mean(found))
    rows = csv.DictReader((out / "per_image.csv").read_text().splitlines())
    assert [row["localized"] for row in rows] == list(map(str, found))


def test_voc_boxes_start_at_pixel_one(devkit):
    file = devkit / "VOC2012" / "Annotations" / "cat.xml"
    assert datasets.read_voc_boxes(file) == [Box(0, 0, 160, 119)]
    file.write_text("<annotation><object><bndbox>")
    with pytest.raises(ValueError, match=r"cat\.xml cannot be read as a VOC annotation"):
        datasets.read_voc_boxes(file)


@pytest.mark.parametrize("refine", [False, True])
def test_scores_and_coco_files_are_those_of_written_masks(masked, tmp_path, refine):
    out, file, methods = tmp_path / "out", tmp_path / "scores.json", ("maskcut", "lost")
    Discover(**masked, output=out, json=file, methods=methods, refine=refine).run()
    scores = json.loads(file.read_text())
    assert scores["protocol"]["resize"] == "native"
    table = csv.DictReader((out / "per_image.csv").read_text().splitlines())
    rows = {(row["method"], row["image"]): row for row in table}
    for method in methods:
        loaded = load_results(out, method)
        for number, name in enumerate(NAMES, start=1):
            labels = np.array(Image.open(out / "masks" / method / f"{name}.png"))
            records = loaded.loadAnns(loaded.getAnnIds(imgIds=[number]))
            assert labels.max() == len(records)
            found = np.any([loaded.annToMask(one) for one in records], axis=0)
            np.testing.assert_array_equal(labels > 0, found)
            truth, row = np.array(Image.open(masked["masks"] / f"{name}.png")), rows[method, name]
            found, truth = found[truth != 255], truth[truth != 255] > 0
            assert float(row["iou"]) == pytest.approx((found & truth).sum() / (found | truth).sum())
            assert float(row["accuracy"]) == pytest.approx((found == truth).mean())
            assert (out / "overlays" / method / f"{name}.jpg").is_file()
        mean = 100 * np.mean([float(rows[method, name]["iou"]) for name in NAMES])
        assert scores["scores"][method]["iou"] == pytest.approx(mean)
        assert 0 < scores["scores"][method]["max_f_tokencut"] <= 100


@pytest.mark.parametrize("resize", ["pad", "native", "short-side"])
def test_written_labels_are_the_objects_of_the_patches_on_the_image(tmp_path, resize):
    image = photographs.image("duck")[:71, :101]
    Image.fromarray(image).save(tmp_path / "duck.png")
    options = {"model": MODEL, "resize": resize, "size": 64, "count": 2, "precision": "fp32"}
    methods = ("tokencut", "maskcut", "attention")
    out = tmp_path / "out"
    Discover(inputs=(tmp_path / "duck.png",), output=out, methods=methods, head=1, **options).run()
    predictor = AttentionPredictor(
        MODEL, resize="native" if resize == "pad" else resize, size=64, precision="fp32"
    )
    set_image = discovery.set_padded if resize == "pad" else discovery.set_resized
    placement = set_image(predictor, image)
    inputs = {"keys": discovery.last_keys(predictor), "attention": predictor.cls_attention()[1]}
    for method in methods:
        found = discovery.find_objects(method, inputs | {"mass": 0.6, "count": 2})
        expected = np.zeros((71, 101), np.uint8)
        for label in range(len(found), 0, -1):  # the first is on top
            expected[placement.mask(found[label - 1].mask)] = label
        labels = np.array(Image.open(out / "masks" / method / "duck.png"))
        np.testing.assert_array_equal(labels, expected)


def test_wrong_input_is_named(devkit, masked, tmp_path):
    wrong = {
        "one of the two": {},
        "--min-confidence is 1.01; expected -1 to 1": {**masked, "min_confidence": 1.01},
        "--min-confidence is -1.01; expected -1 to 1": {**masked, "min_confidence": -1.01},
        "--count is 0; expected at least 1": {**masked, "count": 0},
        "--methods names none": {**masked, "methods": ()},
        "VOCdevkit looks right": {"dataset": "voc12", "root": devkit / "VOC2012"},
        "--head is 9": {**masked, "methods": ("attention",), "head": 9},
    }
    for message, options in wrong.items():
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            Discover(**{"model": MODEL} | options, output=tmp_path / "new").run()
    Image.new("L", (5, 5)).save(masked["masks"] / "cat.png")
    with pytest.raises(ValueError, match=r"cat\.jpg is 5x5 pixels, its image 160x120"):
        Discover(**masked, output=tmp_path / "other").run()
    (masked["masks"] / "cup.png").unlink()
    with pytest.raises(ValueError, match=r"cup\.png is missing; nearest names there: .*--mask-name"):
        Discover(**masked | {"inputs": masked["inputs"][1:]}, output=tmp_path / "new").run()


def test_images_of_same_name_get_own_names(tmp_path):
    for name in ("a/cat.png", "b/cat.png", "b/cat.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (2, 2)).save(tmp_path / name)
    images = list_inputs(open_inputs([tmp_path / "a", tmp_path / "b"]))
    named = [(image.file_name, image.name) for image in images]
    assert named == [("a/cat.png", "a/cat"), ("b/cat.jpg", "b/cat_jpg"), ("b/cat.png", "b/cat_png")]
    Image.new("RGB", (2, 2)).save(tmp_path / "b/cat_jpg.png")
    with pytest.raises(ValueError, match="several images would write to 'cat_jpg'"):
        list_inputs(open_inputs([tmp_path / "b"]))
