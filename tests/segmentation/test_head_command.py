"""The command `head` on driving scenes, COCO and VOC masks."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from skimage import data

from dino_model.data import images
from dino_model.inference.classifier import read_classifier
from segmentation import drawing, heads
from segmentation.annotations import read_labels
from segmentation.commands.head import Apply, Curve, Fit, HeadScore
from segmentation.heads import PatchTask
from segmentation.labels import DataError, write_mask_png
from segmentation.video import VideoWriter
from segmentation.video_input import VideoFile

MODEL = "random:vit_tiny/16"


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    """Train linear heads for 100 steps: tests of the fit itself are in `test_heads`."""
    monkeypatch.setattr(heads, "STEPS", 100)


@pytest.fixture
def camvid(data_root, tmp_path) -> tuple[dict, Path, Path]:
    """Driving scenes: images and masks as options, four names to fit on, three to score."""
    root = data_root / "camvid"
    for name, count in (("train", 4), ("test", 3)):
        names = (root / f"{name}.txt").read_text().split()
        (tmp_path / f"{name}.txt").write_text("\n".join(names[:count]))
    masks = {"images": root / "images", "masks": root / "masks"}
    return masks, tmp_path / "train.txt", tmp_path / "test.txt"


@pytest.fixture
def cups(tmp_path) -> dict:
    """Two images whose left half is label 1, and a strip of it void, as options."""
    options = {folder: tmp_path / folder for folder in ("images", "masks")}
    labels = np.zeros((96, 128), np.uint8)
    labels[:, :64], labels[:, 60:68] = 1, 255
    for folder in options.values():
        folder.mkdir()
    for name, image in {"cup": data.coffee(), "cat": data.cat()}.items():
        Image.fromarray(image[:96, :128]).save(options["images"] / f"{name}.png")
        write_mask_png(options["masks"] / f"{name}.png", labels)
    return options


def fit(masks: dict, folder: Path, **options) -> "heads.SavedHead":
    file = folder / "head.safetensors"
    Fit(**masks, model=MODEL, size=96, output=file, overwrite=True, **options).run()
    return read_classifier(file, PatchTask)


def test_fit_apply_and_score_agree_on_driving_scenes(camvid, data_root, tmp_path):
    masks, train, test = camvid
    file, classes, out = tmp_path / "head.safetensors", data_root / "camvid" / "classes.txt", tmp_path / "out"
    Fit(**masks, image_list=train, classes=classes, background="none", size=224, output=file).run()
    head, names = read_classifier(file, PatchTask).task, test.read_text().split()
    assert head.names == tuple(classes.read_text().split())
    HeadScore(**masks, image_list=test, head=file, json=tmp_path / "scores.json").run()
    scores = json.loads((tmp_path / "scores.json").read_text())
    Apply(inputs=tuple(masks["images"] / f"{name}.jpg" for name in names), head=file, output=out).run()
    folders = masks["masks"], out / "masks"
    truth, found = (np.stack([read_labels(folder / f"{name}.png") for name in names]) for folder in folders)
    iou = {}
    for label, name in enumerate(head.names):
        union = ((truth == label) | (found == label)) & (truth != 255)
        if union.any():
            iou[name] = 100 * (union & (truth == found)).sum() / union.sum()
    assert scores["iou"] == pytest.approx(iou)
    assert scores["miou"] == pytest.approx(np.mean(list(iou.values())))
    assert scores["iou"]["road"] > 40
    palettes = [Image.open(folder / f"{names[0]}.png").getpalette() for folder in folders]
    assert palettes[0][:33] == palettes[1][:33]
    image, colors = images.read(masks["images"] / f"{names[0]}.jpg"), np.reshape(palettes[1], (-1, 3))
    tinted = np.rint(image * 0.5 + colors[found[0]] * 0.5).astype(np.uint8)
    legend = [(name, colors[label]) for label, name in enumerate(head.names) if label in head.labels]
    drawing.save_image(tmp_path / "expected.jpg", drawing.with_legend(tinted, legend))
    overlay = out / "overlays" / f"{names[0]}.jpg"
    np.testing.assert_allclose(
        images.read(overlay).astype(int), images.read(tmp_path / "expected.jpg"), atol=4
    )


def test_size_follows_from_the_images_unless_it_is_given(cups, tmp_path, monkeypatch, capsys):
    for largest, size, expected in ((480, 0, 96), (64, 0, 64), (64, 128, 128)):
        monkeypatch.setattr("segmentation.commands.head.LARGEST_SIZE", largest)
        file = tmp_path / f"{largest}-{size}.safetensors"
        Fit(**cups, model=MODEL, size=size, output=file).run()
        assert read_classifier(file, PatchTask).task.size == expected
        decided = f"size: {expected} pixels; the median short side of the images is 96"
        assert (decided in capsys.readouterr().out) == (size == 0)
    sides = [40 if number % 2 else 30 + number % 10 for number in range(32)]
    few = [SimpleNamespace(read=lambda side=side: np.zeros((side, 90, 3))) for side in sides for _ in "ab"]
    assert Fit(**cups, output=file).chosen_size(few) == np.median(sides)


def test_curve_scores_models_and_baseline_by_number_of_masks(camvid, tmp_path):
    file, (masks, train, test) = tmp_path / "curve.json", camvid
    options, head = {"size": 64, "kind": "knn"}, tmp_path / "head.safetensors"
    Curve(**masks, image_list=train, test=test, json=file, models=(MODEL,), counts=(2,), **options).run()
    result = json.loads(file.read_text())
    miou = result["miou"]
    assert result["images"] == len(test.read_text().split())
    assert set(miou) == {MODEL, "color and position"}
    assert all(list(row) == ["2", "4"] for row in miou.values())
    assert all(0 < value < 100 for row in miou.values() for value in row.values())
    train.write_text("\n".join(train.read_text().split()[::2]))  # two of four, evenly
    Fit(**masks, image_list=train, model=MODEL, output=head, **options).run()
    HeadScore(**masks, image_list=test, head=head, json=file).run()
    assert json.loads(file.read_text())["miou"] == pytest.approx(miou[MODEL]["2"])


def test_foreground_of_one_class_keeps_void(cups, tmp_path):
    plain, foreground = (fit(cups, tmp_path, foreground=only) for only in (False, True))
    assert torch.equal(foreground.classifier.weight, plain.classifier.weight)


def test_voc_masks_become_foreground(data_root, tmp_path):
    voc, few = data_root / "VOCdevkit" / "VOC2012", tmp_path / "few.txt"
    few.write_text("\n".join((voc / "ImageSets/Segmentation/val.txt").read_text().split()[:3]))
    masks = {"images": voc / "JPEGImages", "masks": voc / "SegmentationClass"}
    by_class, head = (
        fit(masks, tmp_path, image_list=few, classes=Path("voc"), kind="logistic", foreground=only)
        for only in (False, True)
    )
    assert by_class.task.names[:4] == ("background", "aeroplane", "bicycle", "bird")
    assert (head.task.names, head.task.labels) == (("background", "foreground"), (0, 1))


def test_coco_file_gives_the_head_of_equal_pngs(cups, tmp_path):
    size, polygon = {"height": 96, "width": 128}, [[0, 0, 60, 0, 60, 96, 0, 96]]
    crowd = {"size": [96, 128], "counts": [60 * 96, 8 * 96, 60 * 96]}
    listed = [{"id": number, "file_name": name} | size for number, name in enumerate(("cup.png", "cat.png"))]
    content = {
        "images": listed,
        "annotations": [
            {"image_id": number, "category_id": 1, "segmentation": shape, "iscrowd": int(shape is crowd)}
            for number in (0, 1)
            for shape in (polygon, crowd)
        ],
        "categories": [{"id": 1, "name": "left"}],
    }
    file = tmp_path / "coco.json"
    file.write_text(json.dumps(content))
    pngs, coco = (fit(cups | {"masks": masks}, tmp_path) for masks in (cups["masks"], file))
    assert coco.classes == ("background", "left")
    torch.testing.assert_close(coco.classifier.weight, pngs.classifier.weight, rtol=0, atol=1e-6)


def test_damaged_annotation_is_skipped_after_the_fit(cups, tmp_path, capsys):
    size, polygon = {"height": 96, "width": 128}, [[0, 0, 60, 0, 60, 96, 0, 96]]
    shapes = {"cup": polygon, "cat": None}
    content = {
        "images": [{"id": name, "file_name": f"images/{name}.png"} | size for name in shapes],
        "annotations": [
            {"id": 3, "image_id": n, "category_id": 0, "segmentation": s} for n, s in shapes.items()
        ],
        "categories": [{"id": 0, "name": "left"}],
    }
    (tmp_path / "coco.json").write_text(json.dumps(content))
    with pytest.raises(
        ValueError, match=r"skipped 1 of 2 annotations: .* annotation 3 of cat\.png: it has no seg"
    ):
        fit(cups | {"masks": tmp_path / "coco.json"}, tmp_path, skip_damaged=True)
    assert read_classifier(tmp_path / "head.safetensors", PatchTask).task.names == ("background", "left")
    assert "1 = id 0" in capsys.readouterr().out
    with pytest.raises(ValueError, match="No head is written"):
        fit(cups | {"masks": tmp_path / "coco.json"}, tmp_path)


@pytest.mark.parametrize(
    ("options", "space", "names"),
    [
        ({"binary": True}, "value", ["background", "foreground"]),
        ({"threshold": 100}, "value", ["background", "foreground"]),
        ({}, "color", ["background", "#0000ff", "#ff0000"]),
        ({}, "value", ["background", "id 7", "id 900"]),
    ],
)
def test_masks_of_other_forms_are_read_alike_by_fit_and_score(cups, tmp_path, options, space, names):
    left = np.zeros((96, 128), np.uint8)
    left[:, :64] = 1
    files = [cups["masks"] / f"{name}.png" for name in ("cat", "cup")]
    for file, value in zip(files, (7, 900) if "id 7" in names else (0xFF0000, 0x0000FF), strict=True):
        color = np.array([value >> 16, value >> 8 & 255, value & 255], np.uint8)
        stored = left * np.uint16(value) if "id 7" in names else left[..., None] * color
        Image.fromarray(left * np.uint8(255) if options else stored).save(file)
    task = fit(cups, tmp_path, **options).task
    assert (task.names, task.masks["space"]) == (tuple(names), space)
    (tmp_path / "one.txt").write_text("cup\n")
    HeadScore(
        **cups, image_list=tmp_path / "one.txt", head=tmp_path / "head.safetensors", json=tmp_path / "s.json"
    ).run()
    iou = json.loads((tmp_path / "s.json").read_text())["iou"]
    assert set(iou) - {names[-1]} >= {names[0]}
    for file in files:
        Image.fromarray(left * np.uint8(255)).save(file)
    if not options:
        with pytest.raises(DataError, match="--binary if it marks an object"):
            fit(cups, tmp_path)


def test_head_refuses_another_model_and_names_broken_masks_and_unknown_classes(cups, tmp_path, capsys):
    (cups["masks"] / "cat.png").write_bytes(b"no png")
    message = r"skipped 1 of 2 images: .*cat\.png is not an image of PNG"
    with pytest.raises(ValueError, match=rf"{message}.*No head is written; --skip-damaged"):
        fit(cups, tmp_path)
    assert not (tmp_path / "head.safetensors").exists()
    with pytest.raises(ValueError, match=message):
        fit(cups, tmp_path, skip_damaged=True)
    assert read_classifier(tmp_path / "head.safetensors", PatchTask).task.labels == (0, 1)
    head = tmp_path / "head.safetensors"
    with pytest.raises(ValueError, match="fitted to other weights of 'random:vit_tiny/16'"):
        HeadScore(**cups, head=head, model="random:vit_tiny/8").run()
    write_mask_png(cups["masks"] / "cat.png", np.full((96, 128), 5, np.uint8))
    HeadScore(**cups, head=head).run()
    assert "warning: no mask of the fit has class 5, whose IoU of 0 counts" in capsys.readouterr().out


def test_apply_segments_every_frame_of_a_video_and_skips_damaged(cups, tmp_path):
    out, clip, names = tmp_path / "out", tmp_path / "clip.mp4", tmp_path / "names.txt"
    names.write_text("traffic light\ntraffic sign\n")
    assert fit(cups, tmp_path, classes=names, background="none").classes == ("traffic light", "traffic sign")
    with VideoWriter(clip, 5) as writer:
        for shift in range(3):
            writer.write(data.cat()[shift : shift + 96, :128])
    inputs = (clip, cups["images"], tmp_path / "bad.mp4")
    inputs[-1].write_text("no video")
    options = {"inputs": inputs, "head": tmp_path / "head.safetensors", "output": out}
    with pytest.raises(ValueError, match=r"skipped 1 of 4 inputs: .*bad\.mp4"):
        Apply(**options).run()
    assert sorted(file.name for file in (out / "masks").glob("*.png")) == ["cat.png", "cup.png"]
    masks = sorted((out / "masks" / "clip").iterdir())
    assert [mask.name for mask in masks] == ["00000.png", "00001.png", "00002.png"]
    assert all(read_labels(mask).shape == (96, 128) for mask in masks)
    assert len(list(VideoFile(out / "overlays" / "clip.webm"))) == 3
