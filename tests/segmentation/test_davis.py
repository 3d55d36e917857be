"""DAVIS folders, what is kept of predictions, and the command from frames to scores."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from dino_model import images
from dino_model.predictor import AttentionPredictor
from dino_model.weights import load_model
from segmentation.commands.davis import Davis
from segmentation.commands.video import Video
from segmentation.datasets import (
    DavisError,
    open_davis,
    read_first_mask,
)
from segmentation.labels import LabelError, read_labels, write_mask_png
from segmentation.propagation import CRW, DINO, OFFICIAL_STD, official_std, propagate_frames
from segmentation.video import VideoError

FRAMES = 5
SIZE = (64, 128)


@pytest.fixture
def davis(tmp_path: Path) -> Path:
    """A DAVIS-2017 folder of two sequences: a textured box that moves over a textured ground."""
    root = tmp_path / "DAVIS"
    (root / "ImageSets" / "2017").mkdir(parents=True)
    (root / "ImageSets" / "2017" / "val.txt").write_text("bear\ncows\n")
    rng = np.random.default_rng(0)
    for name in ("bear", "cows"):
        ground, thing = (rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in (SIZE, (24, 24)))
        for number in range(FRAMES):
            frame, mask = ground.copy(), np.zeros(SIZE, np.uint8)
            place = slice(16, 40), slice(16 + 8 * number, 40 + 8 * number)
            frame[place], mask[place] = thing, 1
            folder = root / "JPEGImages" / "480p" / name
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(frame).save(folder / f"{number:05d}.jpg", quality=95)
            (root / "Annotations" / "480p" / name).mkdir(parents=True, exist_ok=True)
            write_mask_png(root / "Annotations" / "480p" / name / f"{number:05d}.png", mask)
    return root


def command(davis: Path, output: Path, **options: object) -> Davis:
    settings = {"features": "color", "size": 64, **options}
    return Davis(output=output, root=davis, **settings)  # type: ignore[arg-type]


# --- folders


def test_open_davis_lists_sequences(davis: Path):
    clip, other = open_davis(davis)
    assert (clip.name, other.name) == ("bear", "cows")
    assert open_davis(davis, sequences=["cows"]) == [other]
    assert [frame.name for frame in clip.frames] == [f"{number:05d}.jpg" for number in range(FRAMES)]
    assert clip.masks[0].name == "00000.png"


def test_wrong_root_or_list_is_named(davis: Path):
    for wrong in (davis.parent, davis / "ImageSets", davis / "Annotations" / "480p" / "bear"):
        with pytest.raises(DavisError, match=rf"2017.val\.txt is missing; .*{davis} looks right"):
            open_davis(wrong)
    with pytest.raises(DavisError, match=r"test-dev\.txt is missing; lists there: val"):
        open_davis(davis, split="test-dev")
    (davis / "ImageSets" / "2017" / "val.txt").write_text("horse\n")
    with pytest.raises(DavisError, match=r"480p.horse is missing; restore it, or name the others"):
        open_davis(davis)
    (davis / "ImageSets" / "2017" / "val.txt").write_text("\n")
    with pytest.raises(DavisError, match=r"val\.txt is empty"):
        open_davis(davis)


def test_wrong_files_of_sequence_are_named(davis: Path):
    with pytest.raises(DavisError, match=r"'horse' is not in .*val\.txt; it has bear, cows"):
        open_davis(davis, sequences=["horse"])
    masks, frames = davis / "Annotations" / "480p" / "bear", davis / "JPEGImages" / "480p" / "bear"
    (frames / "00004.jpg").rename(frames / "00003a.txt")
    with pytest.raises(DavisError, match=r"00004\.png has no frame in"):
        open_davis(davis)
    (frames / "00003a.txt").rename(frames / "00004.jpg")
    (masks / "00002.png").unlink()
    with pytest.raises(VideoError, match=r"jump from 00001\.png to 00003\.png"):
        open_davis(davis)
    (frames / "00002.jpg").unlink()
    with pytest.raises(VideoError, match=r"jump from 00001\.jpg to 00003\.jpg"):
        open_davis(davis)
    (davis / "Annotations" / "480p" / "cows" / "00000.png").unlink()
    with pytest.raises(DavisError, match=r"first mask .*00000\.png is missing"):
        open_davis(davis, sequences=["cows"])


def test_first_mask_of_wrong_size_or_labels_is_named(davis: Path):
    file = davis / "first.png"
    wrong = {
        r"first\.png is 100x64 pixels, the frames are 128x64": np.ones((64, 100), np.uint8),
        "--binary": np.full(SIZE, 255, np.uint8),
        "every pixel is 0": np.zeros(SIZE, np.uint8),
    }
    for message, labels in wrong.items():
        write_mask_png(file, labels)
        with pytest.raises(LabelError, match=message):
            read_first_mask(file, SIZE)


# --- the command


def test_davis_writes_masks_and_scores(davis: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    output = tmp_path / "out"
    command(davis, output, json=tmp_path / "scores.json").run()
    printed = capsys.readouterr().out
    assert "preset dino" in printed
    assert "2/2 cows" in printed
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert set(scores["per_object"]) == {"bear_1", "cows_1"}
    assert scores["dataset"]["J_mean"] > 0.7
    assert scores["protocol"]["topk"] == 5
    assert len(list((output / "bear").glob("*.png"))) == FRAMES
    with Image.open(output / "bear" / "00002.png") as mask:
        assert mask.mode == "P"
        assert mask.size == (128, 64)
    assert (output / "overview.png").is_file()
    COCO(output / "masks_images.json").loadRes(str(output / "masks.json"))


@pytest.mark.parametrize("damage", ["cut", "small"])
def test_damaged_sequence_is_skipped_and_computed_on_resume(davis: Path, tmp_path: Path, damage: str, capsys):
    frame, output = davis / "JPEGImages" / "480p" / "cows" / "00003.jpg", tmp_path / "out"
    whole = frame.read_bytes()
    if damage == "cut":
        frame.write_bytes(whole[:200])
    else:
        Image.new("RGB", (100, 64)).save(frame)
    message = {"cut": r"cows.00003\.jpg is damaged or cut short", "small": "cows: frame 3 is 64x100"}[damage]
    with pytest.raises(ValueError, match=rf"skipped 1 of 2 sequences: .*{message}"):
        command(davis, output, json=tmp_path / "scores.json").run()
    assert list(json.loads((tmp_path / "scores.json").read_text())["not_scored"]) == ["cows"]
    kept = (output / "bear" / "00001.png").read_bytes()
    write_mask_png(output / "bear" / "00001.png", np.zeros(SIZE, np.uint8))
    frame.write_bytes(whole)
    with pytest.raises(ValueError, match="Pass --resume"):
        command(davis, output).run()
    with pytest.raises(ValueError, match="preset was 'dino', now 'crw'"):
        command(davis, output, preset="crw", resume=True).run()
    command(davis, output, resume=True).run()
    assert (output / "bear" / "00001.png").read_bytes() == kept  # the changed mask is computed again
    command(davis, output, resume=True).run()
    assert "2/2 cows: 5 frames, finished before" in capsys.readouterr().out


def test_wrong_first_mask_or_scores_are_refused_before_work(davis: Path, tmp_path: Path):
    for mask in (davis / "Annotations" / "480p").glob("*/0000[1-9].png"):
        mask.unlink()
    with pytest.raises(DavisError, match="no masks beyond the first"):
        command(davis, tmp_path / "out", json=tmp_path / "scores.json").run()
    write_mask_png(davis / "Annotations" / "480p" / "cows" / "00000.png", np.ones((3, 3), np.uint8))
    with pytest.raises(LabelError, match="must be of one size"):
        command(davis, tmp_path / "out").run()
    assert not (tmp_path / "out").exists()


def test_binary_masks_and_sequences_without_truth_are_handled(davis: Path, tmp_path: Path):
    for file in (davis / "Annotations/480p").rglob("*.png"):
        write_mask_png(file, np.where(read_labels(file) > 0, 255, 0).astype(np.uint8))
    for mask in sorted((davis / "Annotations/480p/cows").iterdir())[1:]:
        mask.unlink()
    options = {"features": "copy", "binary": True, "json": tmp_path / "scores.json"}
    command(davis, tmp_path / "out", **options).run()
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert list(scores["per_object"]) == ["bear_1"]
    assert list(scores["not_scored"]) == ["cows"]


@pytest.mark.parametrize(("precision", "expected"), [("auto", "fp32"), ("bf16", "bf16")])
def test_propagation_runs_in_fp32_by_default(davis, tmp_path, monkeypatch, precision, expected):
    monkeypatch.setattr("dino_model.device.has_bf16", lambda device: True)
    frames, mask = davis / "JPEGImages/480p/bear", davis / "Annotations/480p/bear/00000.png"
    options = {"precision": precision, "model": "random:vit_tiny/16", "size": 64}
    command(davis, tmp_path / "davis", features="model", sequences=("bear",), **options).run()
    Video(frames, output=tmp_path / "labels", mask=mask, **options).run()
    for name in ("davis", "labels"):
        assert json.loads((tmp_path / name / "provenance.json").read_text())["precision"] == expected


def test_bf16_changes_few_labels_of_real_frames(data_root: Path):
    (clip,) = open_davis(data_root / "DAVIS2016", sequences=["goat"])
    mask, model, found = read_labels(clip.masks[0]), load_model(), {}
    for precision in ("fp32", "bf16"):
        source = AttentionPredictor(
            model,
            size=192,
            resize="davis",
            precision=precision,
            device="cpu",
            std=official_std(model, DINO),
        )
        frames = (images.read(frame) for frame in clip.frames[:3])
        found[precision] = np.stack(list(propagate_frames(frames, mask, source)))
    assert official_std(model, DINO) == OFFICIAL_STD
    assert official_std(model, CRW) is None
    assert (found["fp32"][-1] != mask).mean() > 0.01  # the goat walks
    assert (found["fp32"] != found["bf16"]).mean((1, 2)).max() <= 0.001


def test_copied_first_mask_scores_reference_on_real_frames(data_root: Path, tmp_path: Path):
    scores = tmp_path / "scores.json"
    Davis(output=tmp_path / "out", root=data_root / "DAVIS2016", features="copy", json=scores).run()
    assert json.loads(scores.read_text())["dataset"]["J&F_mean"] == pytest.approx(0.400, abs=5e-4)
