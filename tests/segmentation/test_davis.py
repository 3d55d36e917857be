"""DAVIS folders, and the command from frames to scores."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dino_model.data import images
from dino_model.inference.predictor import AttentionPredictor
from dino_model.models.load import load_model
from segmentation import drawing
from segmentation.annotations import MaskReader, read_labels
from segmentation.commands.davis import Davis
from segmentation.commands.video import Video
from segmentation.datasets import open_davis, read_frame_mask
from segmentation.labels import DataError, write_mask_png
from segmentation.propagation import CRW, DINO, OFFICIAL_STD, official_std
from segmentation.tracking import propagate_masks
from segmentation.video import draw_labels
from tests.segmentation.coco import load_results

FRAMES = 7
SIZE = (64, 128)


@pytest.fixture
def davis(tmp_path: Path) -> Path:
    """A DAVIS-2016 folder of two sequences: a textured box that moves over a textured background."""
    root = tmp_path / "DAVIS"
    (root / "ImageSets" / "2017").mkdir(parents=True)
    (root / "ImageSets" / "2017" / "val.txt").write_text("bear\ncows\n")
    rng = np.random.default_rng(0)
    for name in ("bear", "cows"):
        folders = root / "JPEGImages" / "480p" / name, root / "Annotations" / "480p" / name
        for folder in folders:
            folder.mkdir(parents=True)
        background, box = (rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in (SIZE, (24, 24)))
        for number in range(FRAMES):
            frame, mask = background.copy(), np.zeros(SIZE, np.uint8)
            place = slice(16, 40), slice(16 + 8 * number, 40 + 8 * number)
            frame[place], mask[place] = box, 1
            Image.fromarray(frame).save(folders[0] / f"{number:05d}.jpg", quality=95)
            write_mask_png(folders[1] / f"{number:05d}.png", mask)
    return root


def command(davis: Path, output: Path, **options: object) -> Davis:
    settings = {"features": "color", "size": 64, **options}
    return Davis(output=output, root=davis, **settings)  # type: ignore[arg-type]


def test_open_davis_lists_sequences_or_names_wrong_list(davis):
    clip, other = open_davis(davis)
    assert (clip.name, other.name, clip.masks[0].name) == ("bear", "cows", "00000.png")
    assert open_davis(davis, sequences=["cows"]) == [other]
    assert [frame.name for frame in clip.frames] == [f"{number:05d}.jpg" for number in range(FRAMES)]
    for wrong in (davis.parent, davis / "ImageSets", davis / "Annotations" / "480p" / "bear"):
        with pytest.raises(DataError, match=rf"2017.val\.txt is missing; .*{davis} looks right"):
            open_davis(wrong)
    with pytest.raises(DataError, match=r"test-dev\.txt is missing; pass --split with one of 2017/val"):
        open_davis(davis, split="test-dev")
    (davis / "ImageSets/480p").mkdir()
    lines = [f"/JPEGImages/480p/cows/{n:05d}.jpg /Annotations/480p/cows/{n:05d}.png" for n in range(FRAMES)]
    (davis / "ImageSets/480p/val.txt").write_text("\n".join(lines))
    assert open_davis(davis, split="480p/val") == [other]  # as in DAVIS 2016
    with pytest.raises(DataError, match=r"'horse' is not in .*val\.txt; it has bear, cows"):
        open_davis(davis, sequences=["horse"])
    for listed, message in (("horse\n", r"480p.horse is missing; restore it"), ("\n", r"val\.txt is empty")):
        (davis / "ImageSets" / "2017" / "val.txt").write_text(listed)
        with pytest.raises(DataError, match=message):
            open_davis(davis)


def test_youtube_vos_has_sequences_and_classes_of_its_meta_json(davis, tmp_path):
    for kind in ("JPEGImages", "Annotations"):
        (davis / kind / "480p/cows").rename(davis / kind / "cows")
    for number in range(FRAMES):
        if number != 2:
            (davis / f"Annotations/cows/{number:05d}.png").unlink()
    objects = {"1": {"category": "cow", "frames": ["00002"]}}
    (davis / "meta.json").write_text(json.dumps({"videos": {"cows": {"objects": objects}}}))
    (davis / "ImageSets").rename(tmp_path / "lists")  # its lists would go first
    with pytest.raises(DataError, match="--objects appearance"):
        open_davis(davis)
    (clip,) = open_davis(davis, appearance=True)
    assert (clip.objects, clip.has_truth, len(clip.masks)) == ("1 cow", False, 1)
    command(davis, tmp_path / "out", objects="appearance").run()
    found = [read_labels(tmp_path / f"out/cows/{number:05d}.png").any() for number in range(FRAMES)]
    assert found == [False, False, *[True] * 5]
    (davis / "meta.json").write_text("{}")
    with pytest.raises(DataError, match="cannot be read as meta"):
        open_davis(davis)


def test_missing_file_of_sequence_is_named(davis):
    wrong = {
        "JPEGImages/480p/bear/00004.jpg": r"00004\.png has no frame in",
        "JPEGImages/480p/bear/00002.jpg": r"00002\.png has no frame in",
        "Annotations/480p/bear/00000.png": r"first mask .*00000\.png is missing",
    }
    for missing, message in wrong.items():
        (davis / missing).rename(davis / "moved")
        with pytest.raises(DataError, match=message):
            open_davis(davis)
        (davis / "moved").rename(davis / missing)


def test_first_mask_of_wrong_size_or_labels_is_named(tmp_path):
    file, wrong = tmp_path / "first.png", {"--binary": np.full(SIZE, 255), "every pixel is 0": np.zeros(SIZE)}
    wrong[r"first\.png is 100x64 pixels, the frames 128x64"] = np.ones((64, 100))
    for message, labels in wrong.items():
        write_mask_png(file, labels.astype(np.uint8))
        with pytest.raises(DataError, match=message):
            read_frame_mask(MaskReader([file]), file, SIZE)


def test_davis_writes_masks_and_scores(davis, tmp_path, capsys):
    output = tmp_path / "out"
    for number, name in enumerate(("bear", "cows")):  # each with its own color of label 1
        for file in sorted((davis / "Annotations/480p" / name).glob("*.png")):
            write_mask_png(file, read_labels(file), np.full((256, 3), 100 + number, np.uint8))
    command(davis, output, json=tmp_path / "scores.json").run()
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert list(scores["per_object"]) == ["bear_1", "cows_1"]
    assert scores["dataset"]["J_mean"] > 0.7
    assert scores["protocol"]["topk"] == 5
    assert len(list((output / "bear").glob("*.png"))) == FRAMES
    with Image.open(output / "bear" / "00002.png") as mask:
        assert (mask.mode, mask.size) == ("P", (128, 64))
    with Image.open(output / "cows" / "00002.png") as mask:
        assert mask.getpalette() == [101] * 768
    load_results(output)
    printed, rows = capsys.readouterr().out.splitlines(), []
    columns = ("J&F_mean", "J_mean", "J_recall", "J_decay", "F_mean", "F_recall", "F_decay")
    for name, row in (scores["per_sequence"] | {"all": scores["dataset"]}).items():
        assert [name, *(f"{100 * row[column]:.1f}" for column in columns)] in [
            line.split() for line in printed
        ]
    for name in ("bear", "cows"):
        titles = [f"{name}, J&F {100 * scores['per_sequence'][name]['J&F_mean']:.1f}, frame 00000"]
        titles += [f"0000{number}" for number in (2, 3, 4, 6)]  # five at about even distances
        drawn = [
            draw_labels(images.read(davis / f"JPEGImages/480p/{name}/{title[-5:]}.jpg"), labels, [1], 480)
            for title in titles
            for labels in [read_labels(output / name / f"{title[-5:]}.png")]
        ]
        rows.append(list(zip(titles, drawn, strict=True)))
    overview = np.array(Image.open(output / "overview.png"))
    np.testing.assert_array_equal(overview, drawing.contact_sheet(rows))


def test_scores_of_masks_without_truth_are_refused_before_work(davis, tmp_path):
    for mask in (davis / "Annotations" / "480p").glob("*/0000[1-9].png"):
        mask.unlink()
    with pytest.raises(DataError, match="no masks beyond the first"):
        command(davis, tmp_path / "out", json=tmp_path / "scores.json").run()
    assert not (tmp_path / "out").exists()


def test_binary_masks_and_sequences_without_truth_are_handled(davis, tmp_path):
    for file in (davis / "Annotations/480p").rglob("*.png"):
        write_mask_png(file, np.where(read_labels(file) > 0, 255, 0).astype(np.uint8))
    for mask in sorted((davis / "Annotations/480p/cows").iterdir())[1:]:
        mask.unlink()
    options = {"features": "copy", "binary": True, "json": tmp_path / "scores.json"}
    command(davis, tmp_path / "out", **options).run()
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert (list(scores["per_object"]), list(scores["not_scored"])) == (["bear_1"], ["cows"])


@pytest.mark.parametrize("features", ["color", "copy"])
def test_objects_that_appear_later_are_followed_from_their_first_mask(davis, tmp_path, features):
    for number in range(FRAMES):  # object 2 is the background's corner, from frame 2 on
        file = davis / f"Annotations/480p/cows/{number:05d}.png"
        labels = read_labels(file).copy()
        labels[48:, 96:] = 2 * (number >= 2)
        write_mask_png(file, labels)
    options = {"features": features, "objects": "appearance", "json": tmp_path / "scores.json"}
    command(davis, tmp_path / "out", **options).run()
    found = [read_labels(tmp_path / f"out/cows/{number:05d}.png")[48:, 96:] for number in range(FRAMES)]
    assert [int((labels == 2).mean() > 0.8) for labels in found] == [0, 0, *[1] * 5]
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert scores["protocol"]["objects"].startswith("every label of the true masks")
    assert list(scores["per_object"]) == ["bear_1", "cows_1", "cows_2"]
    assert len(scores["per_object"]["cows_2"]["J"]) == 4
    assert scores["per_object"]["cows_2"]["J_mean"] > 0.8


@pytest.mark.parametrize(("precision", "expected"), [("auto", "fp32"), ("bf16", "bf16")])
def test_propagation_runs_in_fp32_by_default(davis, tmp_path, monkeypatch, precision, expected):
    monkeypatch.setattr("dino_model.runtime.device.has_bf16", lambda device: True)
    frames, mask = davis / "JPEGImages/480p/bear", davis / "Annotations/480p/bear/00000.png"
    options = {"precision": precision, "model": "random:vit_tiny/16", "size": 64}
    command(davis, tmp_path / "davis", features="model", sequences=("bear",), **options).run()
    Video(frames, output=tmp_path / "labels", mask=(str(mask),), **options).run()
    files = (tmp_path / name / "provenance.json" for name in ("davis", "labels"))
    assert [json.loads(file.read_text())["precision"] for file in files] == [expected] * 2


def test_bf16_changes_few_labels_of_real_frames(data_root):
    (clip,) = open_davis(data_root / "DAVIS2016", sequences=["goat"])
    mask, model, found = read_labels(clip.masks[0]), load_model(), {}
    settings = {"size": 192, "resize": "davis", "device": "cpu", "std": official_std(model, DINO)}
    for precision in ("fp32", "bf16"):
        source = AttentionPredictor(model, precision=precision, **settings)
        frames = [images.read(frame) for frame in clip.frames[:3]]
        found[precision] = np.stack(
            list(propagate_masks(lambda *_, frames=frames: frames, {0: mask}, source))
        )
    assert official_std(model, DINO) == OFFICIAL_STD
    assert official_std(model, CRW) is None
    assert (found["fp32"][-1] != mask).mean() > 0.01  # the goat walks
    assert (found["fp32"] != found["bf16"]).mean((1, 2)).max() <= 0.001


def test_copied_first_mask_scores_reference_on_real_frames(data_root, tmp_path):
    scores = tmp_path / "scores.json"
    Davis(output=tmp_path / "out", root=data_root / "DAVIS2016", features="copy", json=scores).run()
    assert json.loads(scores.read_text())["dataset"]["J&F_mean"] == pytest.approx(0.400, abs=5e-4)
