"""`python -m segmentation head`: fit, apply, score and curve on driving scenes, COCO and VOC masks."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from skimage import data

from segmentation import heads
from segmentation.commands.head import Apply, Curve, Fit, Score
from segmentation.labels import read_labels, write_mask_png
from segmentation.video import VideoFile, VideoWriter

MODEL = "random:vit_tiny/16"


@pytest.fixture
def camvid(data_root) -> dict:
    """Images and masks of driving scenes, as options."""
    return {"images": data_root / "camvid" / "images", "masks": data_root / "camvid" / "masks"}


@pytest.fixture
def lists(data_root, tmp_path) -> tuple[Path, Path]:
    """Four names to fit on, three to score."""
    for name, count in (("train", 4), ("test", 3)):
        names = (data_root / "camvid" / f"{name}.txt").read_text().split()
        (tmp_path / f"{name}.txt").write_text("\n".join(names[:count]))
    return tmp_path / "train.txt", tmp_path / "test.txt"


@pytest.fixture
def cups(tmp_path) -> dict:
    """Two photographs whose left half is label 1, and a strip of it void, as options."""
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    for name, picture in {"cup": data.coffee(), "cat": data.cat()}.items():
        small = picture[:96, :128]
        Image.fromarray(small).save(tmp_path / "images" / f"{name}.png")
        labels = np.zeros(small.shape[:2], np.uint8)
        labels[:, :64], labels[:, 60:68] = 1, 255
        write_mask_png(tmp_path / "masks" / f"{name}.png", labels)
    return {"images": tmp_path / "images", "masks": tmp_path / "masks"}


def test_fit_apply_and_score_agree_on_driving_scenes(camvid, lists, data_root, tmp_path):
    train, test = lists
    file, classes = tmp_path / "head.safetensors", data_root / "camvid" / "classes.txt"
    Fit(**camvid, listed=train, classes=classes, size=224, output=file).run()
    head = heads.read_head(file)
    assert head.names == classes.read_text().split()
    Score(**camvid, listed=test, head=file, json=tmp_path / "scores.json").run()
    scores = json.loads((tmp_path / "scores.json").read_text())
    names = test.read_text().split()
    out = tmp_path / "out"
    Apply(inputs=tuple(camvid["images"] / f"{name}.jpg" for name in names), head=file, output=out).run()
    truth = np.stack([read_labels(camvid["masks"] / f"{name}.png") for name in names])
    found = np.stack([read_labels(out / "masks" / f"{name}.png") for name in names])
    assert found.shape == truth.shape
    iou = {}
    for label, name in enumerate(head.names):
        union = ((truth == label) | (found == label)) & (truth != 255)
        if union.any():
            iou[name] = 100 * (union & (truth == found)).sum() / union.sum()
    assert scores["iou"] == pytest.approx(iou)
    assert scores["miou"] == pytest.approx(np.mean(list(iou.values())))
    assert scores["iou"]["road"] > 40
    with (
        Image.open(camvid["masks"] / f"{names[0]}.png") as mask,
        Image.open(out / "masks" / f"{names[0]}.png") as own,
    ):
        assert own.getpalette()[:33] == mask.getpalette()[:33]
    assert (out / "overlays" / f"{names[0]}.jpg").is_file()


def test_curve_scores_models_and_baseline_by_number_of_masks(camvid, lists, tmp_path):
    file = tmp_path / "curve.json"
    options = {"models": (MODEL,), "counts": (1,), "size": 64, "kind": "knn"}
    Curve(**camvid, listed=lists[0], test=lists[1], json=file, **options).run()
    miou = json.loads(file.read_text())["miou"]
    assert {name: list(row) for name, row in miou.items()} == {
        MODEL: ["1", "4"],
        "color and position": ["1", "4"],
    }
    assert all(0 < value < 100 for row in miou.values() for value in row.values())


def test_voc_masks_become_foreground_and_keep_void(data_root, tmp_path):
    voc = data_root / "VOCdevkit" / "VOC2012"
    options = {"images": voc / "JPEGImages", "masks": voc / "SegmentationClass"}
    few = tmp_path / "few.txt"
    few.write_text("\n".join((voc / "ImageSets/Segmentation/val.txt").read_text().split()[:3]))
    for name, foreground in (("classes", False), ("foreground", True)):
        fit = {"foreground": foreground, "kind": "logistic", "size": 96, "model": MODEL}
        Fit(**options, listed=few, output=tmp_path / f"{name}.safetensors", **fit).run()
    by_class, head = (heads.read_head(tmp_path / f"{name}.safetensors") for name in ("classes", "foreground"))
    assert by_class.names[:4] == ["background", "aeroplane", "bicycle", "bird"]
    assert (head.names, head.classifier.labels) == (["background", "foreground"], (0, 1))


def test_coco_file_gives_the_head_of_equal_pngs(cups, tmp_path):
    area = [[0, 0, 60, 0, 60, 96, 0, 96]]
    crowd = {"size": [96, 128], "counts": [60 * 96, 8 * 96, 60 * 96]}
    content = {
        "images": [
            {"id": number, "file_name": f"{name}.png", "height": 96, "width": 128}
            for number, name in enumerate(("cup", "cat"))
        ],
        "annotations": [
            {"image_id": number, "category_id": 1, "segmentation": shape, "iscrowd": is_crowd}
            for number in (0, 1)
            for shape, is_crowd in ((area, 0), (crowd, 1))
        ],
        "categories": [{"id": 1, "name": "left"}],
    }
    (tmp_path / "coco.json").write_text(json.dumps(content))
    for name, masks in {"a": cups["masks"], "b": tmp_path / "coco.json"}.items():
        Fit(
            images=cups["images"], masks=masks, model=MODEL, size=96, output=tmp_path / f"{name}.safetensors"
        ).run()
    pngs, coco = (heads.read_head(tmp_path / f"{name}.safetensors") for name in "ab")
    assert coco.names == ["background", "left"]
    for name, array in pngs.classifier.arrays.items():
        np.testing.assert_allclose(coco.classifier.arrays[name], array, atol=1e-6)


def test_head_refuses_another_model(cups, tmp_path):
    file = tmp_path / "head.safetensors"
    Fit(**cups, model=MODEL, size=96, output=file).run()
    with pytest.raises(heads.HeadError, match=r"fitted on 'random:vit_tiny/16'.*other weights"):
        Score(**cups, head=file, model="random:vit_tiny/8").run()


def test_broken_mask_is_named_and_skipped(cups, tmp_path):
    (cups["masks"] / "cat.png").write_bytes(b"no png")
    file = tmp_path / "head.safetensors"
    with pytest.raises(ValueError, match=r"skipped 1 of 2 images: .*cat\.png is not a PNG"):
        Fit(**cups, model=MODEL, size=96, output=file).run()
    assert heads.read_head(file).classifier.labels == (0, 1)


def test_apply_segments_every_frame_of_a_video_and_resumes(cups, tmp_path, monkeypatch):
    file, out, clip = tmp_path / "head.safetensors", tmp_path / "out", tmp_path / "clip.mp4"
    Fit(**cups, model=MODEL, size=96, output=file).run()
    with VideoWriter(clip, 5) as writer:
        for shift in range(3):
            writer.write(data.cat()[shift : shift + 96, :128])
    apply = {"inputs": (clip, cups["images"]), "head": file, "output": out}
    Apply(**apply).run()
    masks = sorted((out / "masks" / "clip").iterdir())
    assert [mask.name for mask in masks] == ["00000.png", "00001.png", "00002.png"]
    assert all(read_labels(mask).shape == (96, 128) for mask in masks)
    assert len(list(VideoFile(out / "overlays" / "clip.webm"))) == 3
    monkeypatch.setattr(
        heads, "patch_features", lambda *_: pytest.fail("a finished input was segmented again")
    )
    Apply(**apply, resume=True).run()


def test_damaged_video_is_named_and_images_are_segmented(cups, tmp_path):
    file, names, clip = tmp_path / "head.safetensors", tmp_path / "names.txt", tmp_path / "bad.mp4"
    names.write_text("traffic light\ntraffic sign\n")
    clip.write_text("no video")
    Fit(**cups, model=MODEL, size=96, output=file, classes=names).run()
    assert heads.read_head(file).names == ["traffic light", "traffic sign"]
    with pytest.raises(ValueError, match=r"skipped 1 of 3 inputs: .*bad\.mp4"):
        Apply(inputs=(clip, cups["images"]), head=file, output=tmp_path / "out").run()
    assert len(list((tmp_path / "out" / "masks").glob("*.png"))) == 2
