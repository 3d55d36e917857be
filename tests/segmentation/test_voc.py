"""The Jaccard similarity of attention on VOC 2012: data, protocol, scores, command."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dino_model.data import images
from segmentation import datasets, drawing, voc_eval
from segmentation.annotations import MaskRules, read_labels
from segmentation.commands.voc import Voc
from segmentation.datasets import Annotation
from segmentation.labels import write_mask_png
from segmentation.masks import bounding_box
from segmentation.voc_eval import VocProtocol
from tests.segmentation.coco import load_results

MODEL = "random:vit_tiny/16"
ANNOTATION = Annotation(  # two cats (class 8), and a dog (class 12); a void pixel
    classes=np.array([[8, 8, 0, 255], [8, 0, 0, 12], [0, 0, 8, 8]], np.uint8),
    objects=np.array([[1, 1, 0, 255], [1, 0, 0, 3], [0, 0, 2, 2]], np.uint8),
)


def test_every_target_has_its_best_head_and_void_counts_unless_excluded():
    heads = {head: ANNOTATION.objects == head + 1 for head in range(3)}
    score = voc_eval.score_masks("x", heads, ANNOTATION, VocProtocol(ground_truth="object"))
    found = [(target.label, target.category, target.head) for target in score.targets]
    assert found == [(1, 8, 0), (2, 8, 1), (3, 12, 2)]
    assert score.jaccard == 1.0
    for void, union in (("union", 12), ("exclude", 11)):
        score = voc_eval.score_masks(
            "x", {0: np.ones((3, 4), bool)}, ANNOTATION, VocProtocol(ground_truth="foreground", void=void)
        )
        assert score.jaccard == pytest.approx(6 / union)


def test_score_is_mean_over_regions_then_images():
    mask, empty = {0: ANNOTATION.objects == 1}, voc_eval.ImageScore("z", ())
    both = voc_eval.score_masks("x", mask, ANNOTATION, VocProtocol())
    alone = voc_eval.score_masks(
        "y", mask, Annotation(*[ANNOTATION.objects] * 2), VocProtocol(ground_truth="foreground")
    )
    assert both.jaccard == pytest.approx((3 / 5 + 0) / 2)
    assert [(target.label, target.category) for target in alone.targets] == [(1, 0)]
    assert voc_eval.mean_jaccard([both, alone, empty]) == pytest.approx(100 * (0.3 + 3 / 6) / 2)
    expected = {"foreground": (50.0, 1), "cat": (pytest.approx(60), 1), "dog": (0.0, 1)}
    assert voc_eval.per_class([both, alone]) == expected
    with pytest.raises(ValueError, match="nothing to score"):
        voc_eval.mean_jaccard([empty])


def test_protocol_is_that_of_the_paper_by_default():
    regions = {"mass": 0.6, "ground_truth": "class", "void": "union", "head": "best"}
    assert vars(VocProtocol()) == regions | {"resize": "squash", "size": 480, "block": -1, "split": "val"}


def test_attention_on_object_scores_one():
    classes = np.zeros((8, 8), dtype=np.uint8)
    classes[2:4, 4:8] = 8
    attention = np.full((2, 4, 4), 0.001, dtype=np.float32)
    attention[1, 1, 2:] = 1
    annotation = Annotation(classes, (classes > 0).astype(np.uint8))
    for head, jaccard, chosen in (("best", 1, 1), ("mean", 1, -1), (0, pytest.approx(0.1, abs=0.1), 0)):
        score = voc_eval.score_attention("x", attention, annotation, VocProtocol(mass=0.9, head=head))
        assert (score.jaccard, score.targets[0].head) == (jaccard, chosen)


def test_centered_box_has_half_of_each_side():
    assert bounding_box(voc_eval.centered_box((9, 15))) == (3, 2, 10, 6)
    assert voc_eval.centered_box((9, 15)).sum() == 7 * 4


def test_wrong_root_or_file_is_named(devkit):
    with pytest.raises(FileNotFoundError, match=r"holds no VOC2012/JPEGImages; .*VOCdevkit looks right"):
        datasets.find_voc(devkit / "VOC2012")
    with pytest.raises(datasets.DataError, match=r"trainval\.txt is missing; lists there: val"):
        datasets.list_voc_samples(devkit, "trainval")
    samples = datasets.list_voc_samples(devkit)
    with pytest.raises(ValueError, match=r"cat\.png is 160x120 pixels, its image 160x90"):
        datasets.VocMasks(samples, MaskRules()).read(samples[0], (90, 160))
    (devkit / "VOC2012" / "SegmentationObject" / "cup.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"cup\.png is missing, though val\.txt names cup"):
        datasets.list_voc_samples(devkit)


@pytest.mark.parametrize("ground_truth", ["class", "foreground"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_classes_need_no_objects_and_lists_may_have_a_mark(devkit, tmp_path, ground_truth, encoding):
    shutil.rmtree(devkit / "VOC2012" / "SegmentationObject")
    (devkit / "VOC2012/ImageSets/Segmentation/val.txt").write_text("cat\r\ncup 1\n", encoding=encoding)
    options = {"root": devkit, "baseline": "centered-box", "ground_truth": ground_truth}
    Voc(**options, output=tmp_path / "out", json=tmp_path / "voc.json").run()
    assert json.loads((tmp_path / "voc.json").read_text())["images"] == 2
    with pytest.raises(FileNotFoundError, match=r"SegmentationObject.cat\.png is missing"):
        Voc(**options | {"ground_truth": "object"}, output=tmp_path / "objects").run()


def test_class_masks_may_have_the_colors_of_voc_and_no_others(devkit):
    samples = datasets.list_voc_samples(devkit)
    before = [datasets.VocMasks(samples, MaskRules()).read(sample, (120, 160)).classes for sample in samples]
    for sample in samples:
        Image.open(sample.classes).convert("RGB").save(sample.classes)
    for sample, classes in zip(samples, before, strict=True):
        np.testing.assert_array_equal(
            datasets.VocMasks(samples, MaskRules()).read(sample, (120, 160)).classes, classes
        )
    Image.new("RGB", (160, 120), (255, 3, 9)).save(samples[0].classes)
    with pytest.raises(datasets.DataError, match=r"#ff0309, which has no label.*--ignore '#ff0309'"):
        datasets.VocMasks(samples, MaskRules())


def test_images_may_have_another_suffix(devkit):
    before = datasets.list_voc_samples(devkit)
    for sample, name in zip(before, ("cat.png", "cup.JPG", "sky.jpeg"), strict=True):
        sample.image.rename(sample.image.with_name(name))
    samples = datasets.list_voc_samples(devkit)
    assert [sample.file_name for sample in samples] == ["cat.png", "cup.JPG", "sky.jpeg"]
    assert [sample.files[1:] for sample in samples] == [sample.files[1:] for sample in before]


@pytest.mark.parametrize("folder", ["SegmentationClass", "SegmentationObject"])
def test_masks_with_a_palette_in_another_order_are_read_by_color(devkit, folder):
    samples = datasets.list_voc_samples(devkit)
    before = [datasets.VocMasks(samples, MaskRules()).read(sample, (120, 160)) for sample in samples]
    for sample in samples:
        mask = devkit / "VOC2012" / folder / f"{sample.name}.png"
        Image.open(mask).convert("RGB").quantize(4).save(mask)
    masks = datasets.VocMasks(samples[::-1], MaskRules())
    for sample, (classes, objects) in zip(samples, before, strict=True):
        found = masks.read(sample, (120, 160))
        np.testing.assert_array_equal(found.classes, classes)
        np.testing.assert_array_equal(found.objects, objects)


def test_lift_is_mean_of_all_heads_over_targets_then_images():
    objects = np.zeros((8, 8), dtype=np.uint8)
    objects[:4, :4], objects[4:, 4:] = 1, 2  # four of sixteen patches each
    annotation, protocol = (
        Annotation(np.where(objects, 8, objects), objects),
        VocProtocol(ground_truth="object", head=1),
    )
    attention = np.ones((2, 4, 4), dtype=np.float32)
    attention[0, :2, :2] = 9  # mean 5 on the first object
    score = voc_eval.score_attention("x", attention, annotation, protocol)
    assert [target.lift for target in score.targets] == pytest.approx([20 / 32 / 0.25, 4 / 32 / 0.25])
    even = voc_eval.score_attention("y", np.ones((2, 4, 4)), annotation, protocol)
    box = voc_eval.score_masks("z", {-1: objects > 0}, annotation, VocProtocol(ground_truth="object"))
    assert voc_eval.mean_lift([score, even, box]) == pytest.approx((1.5 + 1) / 2)
    assert voc_eval.mean_lift([box]) is None


def run(folder: Path, **options) -> dict:
    Voc(output=folder, json=folder.with_suffix(".json"), **options).run()
    return json.loads(folder.with_suffix(".json").read_text())


def test_voc_writes_scores_that_agree(devkit, tmp_path, capsys):
    out = tmp_path / "out"
    scores, printed = run(out, root=devkit, model=MODEL, size=64), capsys.readouterr().out
    assert f"Jaccard   {scores['jaccard']:.1f} %" in printed
    assert f"lift      {scores['lift']:.2f}" in printed
    assert "not VOC12 val" in printed
    assert "protocol: mass 0.6; ground_truth class; void union; head best; resize squash; size 64" in printed
    assert scores["protocol"] == vars(VocProtocol(size=64))
    assert (scores["images"], scores["images_without_target"]) == (2, 1)
    with (out / "per_image.csv").open() as file:
        rows = {row["image"]: row for row in csv.DictReader(file)}
    assert rows["sky"]["jaccard"] == ""
    assert rows["cup"]["labels"] == "5 8"
    mean = np.mean([float(rows[name]["jaccard"]) for name in ("cat", "cup")])
    assert scores["jaccard"] == pytest.approx(mean, abs=1e-3)
    loaded = load_results(out)
    (annotation,) = loaded.loadAnns(loaded.getAnnIds(catIds=[5]))
    assert 100 * annotation["score"] == pytest.approx(scores["per_class"]["bottle"]["jaccard"])
    assert set(np.unique(Image.open(out / "masks" / "cat.png"))) == {0, 8}
    assert sorted(file.name for file in (out / "overlays").iterdir()) == ["cat.jpg", "cup.jpg"]


def test_tables_and_drawings_are_those_of_the_chosen_masks(devkit, tmp_path, capsys):
    folder, rng, jaccards, names = devkit / "VOC2012", np.random.default_rng(0), {}, []
    box = np.zeros((40, 60), bool)
    box[10:30, 15:45] = True
    for number in range(18):
        name, truth = f"i{number:02d}", np.zeros((40, 60), np.uint8)
        truth[5 : 12 + number, 8 : 30 + number] = 8
        truth[36:, 50:] = 5 * (number == 3)  # outside of the box: 0
        Image.fromarray(rng.integers(0, 256, (40, 60, 3), np.uint8)).save(folder / f"JPEGImages/{name}.jpg")
        write_mask_png(folder / f"SegmentationClass/{name}.png", truth)
        each = [(box & (truth == label)).sum() / (box | (truth == label)).sum() for label in (5, 8)]
        jaccards[name] = each if number == 3 else each[1:]
        names.append(name)
    (folder / "ImageSets/Segmentation/val.txt").write_text("\n".join(names))
    out = tmp_path / "out"
    run(out, root=devkit, baseline="centered-box")
    means = {name: 100 * np.mean(each) for name, each in jaccards.items()}
    with (out / "per_image.csv").open() as file:
        rows = {row["image"]: row for row in csv.DictReader(file)}
    assert {name: float(row["jaccard"]) for name, row in rows.items()} == pytest.approx(means, abs=1e-4)
    assert rows["i03"]["jaccards"] == " ".join(f"{100 * value:.4f}" for value in jaccards["i03"])
    assert (rows["i03"]["labels"], rows["i03"]["heads"]) == ("5 8", "-1 -1")
    cats = 100 * np.mean([each[-1] for each in jaccards.values()])
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["bottle", "1", "0.0"] in printed
    assert ["cat", "18", f"{cats:.1f}"] in printed
    np.testing.assert_array_equal(read_labels(out / "masks/i05.png"), 8 * box)
    assert {*np.unique(read_labels(out / "masks/i03.png"))} == {0, 8}  # the better mask is on top
    ordered = sorted(names, key=lambda name: -means[name])
    cells = [
        (f"{word} {rank}: {name}, Jaccard {means[name]:.1f} %", images.read(out / f"overlays/{name}.jpg"))
        for word, chosen in (("best", ordered[:8]), ("worst", ordered[:-9:-1]))
        for rank, name in enumerate(chosen, start=1)
    ]
    sheet = drawing.contact_sheet([cells[start : start + 4] for start in range(0, 16, 4)])
    np.testing.assert_array_equal(images.read(out / "contact_sheet.png"), sheet)
    truth, image = (
        read_labels(folder / "SegmentationClass/i03.png"),
        images.read(folder / "JPEGImages/i03.jpg"),
    )
    drawn = drawing.overlay_masks(image, np.stack([box, box]), contour=0)
    white = np.full((1, 3), 255, np.uint8)
    drawn = drawing.overlay_masks(drawn, truth > 0, colors=white, opacity=0)
    entries = ["ground truth", "bottle: 0.0", f"cat: {100 * jaccards['i03'][1]:.1f}"]
    expected = drawing.with_legend(
        drawn, list(zip(entries, [white[0], *drawing.head_colors(2)], strict=True))
    )
    drawing.save_image(tmp_path / "expected.jpg", expected)
    assert (tmp_path / "expected.jpg").read_bytes() == (out / "overlays/i03.jpg").read_bytes()


def test_grid_equals_single_protocols(devkit, tmp_path):
    options = {"root": devkit, "model": MODEL, "size": 64}
    grid = run(tmp_path / "grid", **options, grid=True, mass=0.7)["grid"]
    assert {each["protocol"]["mass"] for each in grid} == {0.6, 0.7, 0.8}
    assert len(grid) == 3 * 3 * 2
    alone = run(tmp_path / "alone", **options, mass=0.8, ground_truth="object", void="exclude")
    (cell,) = [cell for cell in grid if cell["protocol"] == alone["protocol"]]
    assert cell["jaccard"] == pytest.approx(alone["jaccard"])


def test_centered_box_scores_reference_on_real_images(data_root, tmp_path):
    protocol = {"ground_truth": "object", "void": "exclude", "baseline": "centered-box"}
    scores = run(tmp_path / "out", root=data_root / "VOCdevkit", **protocol)
    # reference 20.4, measured before this project with other rounding of the box's sides
    assert scores["jaccard"] == pytest.approx(20.4, abs=0.1)
