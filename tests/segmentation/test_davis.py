"""DAVIS folders, what is kept of predictions, and the command from frames to scores."""

import json
import shutil
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
from segmentation.labels import read_labels, write_mask_png
from segmentation.propagation import DINO, OFFICIAL_STD, official_std, propagate_frames
from segmentation.video import VideoError, VideoFile

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


def test_sequences_are_those_of_the_list(davis: Path):
    assert open_davis(davis).sequences == ("bear", "cows")
    assert open_davis(davis, sequences=["cows"]).sequences == ("cows",)
    clip = open_davis(davis).clip("bear")
    assert [frame.name for frame in clip.frames] == [f"{number:05d}.jpg" for number in range(FRAMES)]
    assert clip.first_mask.name == "00000.png"


def test_the_lists_of_davis_2016_name_frames(davis: Path):
    (davis / "ImageSets" / "480p").mkdir()
    (davis / "ImageSets" / "480p" / "val.txt").write_text(
        "/JPEGImages/480p/cows/00000.jpg /Annotations/480p/cows/00000.png\n"
        "/JPEGImages/480p/cows/00001.jpg /Annotations/480p/cows/00001.png\n"
    )
    found = open_davis(davis, year=2016)
    assert found.sequences == ("cows",)
    assert found.binary
    (davis / "ImageSets" / "2017" / "val.txt").unlink()
    (davis / "ImageSets" / "2017").rmdir()
    with pytest.raises(DavisError, match="--year 2016"):
        open_davis(davis)


def test_a_wrong_root_names_the_right_one(davis: Path):
    sequence = davis / "Annotations" / "480p" / "bear"
    for wrong in (davis.parent, davis / "ImageSets", davis / "JPEGImages" / "480p", sequence):
        with pytest.raises(DavisError, match=rf"2017.val\.txt is missing; pass {davis}, which has it"):
            open_davis(wrong)
    with pytest.raises(DavisError, match="holds ImageSets, JPEGImages and Annotations"):
        open_davis(davis / "nowhere" / "near" / "it" / "all")


def test_what_is_wrong_with_a_list_is_told(davis: Path):
    with pytest.raises(DavisError, match=r"test-dev\.txt is missing; lists there, for --split: val"):
        open_davis(davis, split="test-dev")
    with pytest.raises(DavisError, match=r"480p.horse is missing; restore it, or name the others"):
        open_davis(davis).clip("horse")
    with pytest.raises(DavisError, match=r"JPEGImages.1080p is missing; folders there: 480p"):
        open_davis(davis, resolution="1080p").clip("bear")
    listed = davis / "ImageSets" / "2017" / "val.txt"
    listed.write_bytes(b"\xff\xfe\x00bear")
    with pytest.raises(DavisError, match=r"val\.txt is no text"):
        open_davis(davis)
    listed.write_text("\n")
    with pytest.raises(DavisError, match=r"val\.txt is empty"):
        open_davis(davis)


def test_what_does_not_fit_in_a_sequence_is_named(davis: Path):
    with pytest.raises(DavisError, match=r"'horse' is not in .*val\.txt; it has bear, cows"):
        open_davis(davis, sequences=["horse"])
    masks, frames = davis / "Annotations" / "480p" / "bear", davis / "JPEGImages" / "480p" / "bear"
    (frames / "00004.jpg").rename(frames / "00003a.txt")
    with pytest.raises(DavisError, match=r"00004\.png has no frame in"):
        open_davis(davis).clip("bear")
    (frames / "00003a.txt").rename(frames / "00004.jpg")
    (masks / "00002.png").unlink()
    with pytest.raises(VideoError, match=r"jump from 00001\.png to 00003\.png"):
        open_davis(davis).clip("bear")
    (frames / "00002.jpg").unlink()
    with pytest.raises(VideoError, match=r"jump from 00001\.jpg to 00003\.jpg"):
        open_davis(davis).clip("bear")
    assert len(open_davis(davis).clip("bear", allow_gaps=True).frames) == FRAMES - 1
    (masks / "00000.png").unlink()
    with pytest.raises(DavisError, match=r"first mask .*00000\.png is missing"):
        open_davis(davis).clip("bear", allow_gaps=True)


def test_a_first_mask_must_fit_its_frame(davis: Path):
    clip = open_davis(davis).clip("bear")
    write_mask_png(clip.first_mask, np.ones((64, 100), np.uint8))
    with pytest.raises(DavisError, match=r"00000\.png is 100x64 pixels, the frame 00000\.jpg 128x64"):
        read_first_mask(clip)
    write_mask_png(clip.first_mask, np.full(SIZE, 255, np.uint8))
    with pytest.raises(DavisError, match="--year 2016 or --binary"):
        read_first_mask(clip)
    write_mask_png(clip.first_mask, np.zeros(SIZE, np.uint8))
    with pytest.raises(DavisError, match="every pixel is 0"):
        read_first_mask(clip)


# --- the command


def test_the_command_propagates_writes_and_scores(
    davis: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    output = tmp_path / "out"
    options = {"json": tmp_path / "scores.json", "csv": tmp_path / "scores.csv", "overlays": True}
    command(davis, output, **options).run()
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
    drawn = list(VideoFile(output / "overlays" / "bear.webm"))
    assert len(drawn) == FRAMES
    assert drawn[0].shape[0] > SIZE[0]  # a legend stands below the frame
    COCO(output / "masks_images.json").loadRes(str(output / "masks.json"))


def test_copied_masks_are_the_first_one_in_every_frame(davis: Path, tmp_path: Path):
    command(davis, tmp_path / "out", features="copy").run()
    first = read_labels(davis / "Annotations" / "480p" / "bear" / "00000.png")
    for number in range(FRAMES):
        np.testing.assert_array_equal(read_labels(tmp_path / "out" / "bear" / f"{number:05d}.png"), first)


def test_a_broken_frame_is_named_and_the_finished_sequence_stays(
    davis: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    frame = davis / "JPEGImages" / "480p" / "cows" / "00003.jpg"
    whole = frame.read_bytes()
    frame.write_bytes(whole[:200])
    message = r"skipped 1 of 2 sequences: .*cows.00003\.jpg is damaged or cut short"
    with pytest.raises(ValueError, match=message):
        command(davis, tmp_path / "out").run()
    assert not (tmp_path / "out" / "cows").exists()
    written = (tmp_path / "out" / "bear" / "00001.png").stat().st_mtime_ns
    frame.write_bytes(whole)
    with pytest.raises(ValueError, match="Pass --resume"):
        command(davis, tmp_path / "out").run()
    command(davis, tmp_path / "out", resume=True).run()
    assert "1/2 bear: 5 frames, finished before" in capsys.readouterr().out
    assert (tmp_path / "out" / "bear" / "00001.png").stat().st_mtime_ns == written


def test_a_frame_of_another_size_is_named_and_the_finished_sequence_stays(davis: Path, tmp_path: Path):
    frame = davis / "JPEGImages" / "480p" / "cows" / "00003.jpg"
    Image.new("RGB", (100, 64)).save(frame)
    with pytest.raises(ValueError, match=r"cows.00003\.jpg is 100x64 pixels, the first mask 128x64"):
        command(davis, tmp_path / "out").run()
    assert [entry.name for entry in (tmp_path / "out").iterdir() if entry.is_dir()] == ["bear"]


def test_predictions_of_other_settings_are_not_scored(davis: Path, tmp_path: Path):
    command(davis, tmp_path / "out").run()
    with pytest.raises(ValueError, match="preset was 'dino', now 'crw'"):
        command(davis, tmp_path / "out", preset="crw", resume=True).run()
    with pytest.raises(ValueError, match="features was 'color patches"):
        command(davis, tmp_path / "out", features="copy", resume=True).run()


def test_everything_is_checked_before_the_first_sequence_is_computed(davis: Path, tmp_path: Path):
    write_mask_png(davis / "Annotations" / "480p" / "cows" / "00000.png", np.ones((3, 3), np.uint8))
    with pytest.raises(DavisError, match="must be of one size"):
        command(davis, tmp_path / "out").run()
    with pytest.raises(IsADirectoryError):
        command(davis, tmp_path / "out", json=davis).run()
    assert not (tmp_path / "out").exists()


def test_any_frames_with_a_first_mask_will_do(
    davis: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    white = tmp_path / "white.png"
    labels = read_labels(davis / "Annotations" / "480p" / "bear" / "00000.png")
    Image.fromarray(labels * 255).save(white)
    settings = {
        "frames": davis / "JPEGImages" / "480p" / "bear",
        "mask": white,
        "features": "color",
        "size": 64,
    }
    with pytest.raises(DavisError, match="--binary"):
        Davis(output=tmp_path / "out", **settings).run()
    Davis(output=tmp_path / "out", binary=True, **settings).run()
    assert "not scored" in capsys.readouterr().out
    assert set(np.unique(read_labels(tmp_path / "out" / "bear" / "00004.png"))) == {0, 1}
    with pytest.raises(DavisError, match="either --root DAVIS, or --frames FOLDER with --mask FILE"):
        Davis(output=tmp_path / "out").run()


def test_a_test_set_without_truth_is_propagated_and_not_scored(
    davis: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for mask in (davis / "Annotations" / "480p").glob("*/0000[1-9].png"):
        mask.unlink()
    command(davis, tmp_path / "out").run()
    assert "not scored" in capsys.readouterr().out


def test_a_model_follows_too(davis: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[object] = []
    initialise = AttentionPredictor.__init__

    def spy(self: AttentionPredictor, *arguments: object, **options: object) -> None:
        seen.append(options["std"])
        initialise(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(AttentionPredictor, "__init__", spy)
    for preset in ("dino", "crw"):
        command(davis, tmp_path / preset, features="model", model="random:vit_tiny/16", preset=preset).run()
    assert seen == [OFFICIAL_STD, None]


def test_labels_are_carried_in_fp32_unless_bf16_is_asked_for(davis: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("dino_model.device.has_bf16", lambda device: True)
    used: list[str] = []
    initialise = AttentionPredictor.__init__

    def spy(self: AttentionPredictor, *arguments: object, **options: object) -> None:
        initialise(self, *arguments, **options)  # type: ignore[arg-type]
        used.append(self.precision)

    monkeypatch.setattr(AttentionPredictor, "__init__", spy)
    frames, mask = davis / "JPEGImages/480p/bear", davis / "Annotations/480p/bear/00000.png"
    small = {"model": "random:vit_tiny/16", "size": 64}
    for precision in ("auto", "bf16"):
        asked = {"precision": precision, **small}
        command(davis, tmp_path / f"davis-{precision}", features="model", sequences=("bear",), **asked).run()
        Video(frames, output=tmp_path / f"labels-{precision}", mask=mask, **asked).run()  # type: ignore[arg-type]
    Video(frames, output=tmp_path / "attention", views=("mean",), **small).run()  # type: ignore[arg-type]
    assert used == ["fp32", "fp32", "bf16", "bf16", "bf16"]  # auto twice, bf16 twice, auto for attention


def test_bf16_changes_at_most_a_thousandth_of_the_labels_of_the_next_frames(data_root: Path):
    clip = open_davis(data_root / "DAVIS2016").clip("goat")
    mask, model, found = read_first_mask(clip), load_model(), {}
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
    assert (found["fp32"][-1] != mask).mean() > 0.01  # the goat walks
    assert (found["fp32"] != found["bf16"]).mean((1, 2)).max() <= 0.001


def test_the_first_mask_copied_scores_40_on_the_development_frames(data_root: Path, tmp_path: Path):
    scores = tmp_path / "scores.json"
    Davis(output=tmp_path / "out", root=data_root / "DAVIS2016", features="copy", json=scores).run()
    assert json.loads(scores.read_text())["dataset"]["J&F_mean"] == pytest.approx(0.400, abs=5e-4)


def test_a_sequence_with_only_a_first_mask_keeps_no_other_from_being_scored(
    davis: Path, tmp_path: Path, capsys
):
    for mask in sorted((davis / "Annotations/480p/cows").iterdir())[1:]:
        mask.unlink()
    command(davis, tmp_path / "out", features="copy", json=tmp_path / "scores.json").run()
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert list(scores["per_sequence"]) == ["bear"]
    assert scores["not_scored"] == {"cows": "it has no mask beyond the first to compare with"}
    assert "it has no mask beyond the first to compare with" in capsys.readouterr().out


def test_scores_that_cannot_be_are_refused_before_the_work(davis: Path, tmp_path: Path):
    frames, mask = davis / "JPEGImages/480p/bear", davis / "Annotations/480p/bear/00000.png"
    for file in ("csv", "json"):
        options = {"frames": frames, "mask": mask, "features": "copy", file: tmp_path / "scores"}
        with pytest.raises(DavisError, match="no masks beyond the first to compare with"):
            Davis(output=tmp_path / "out", **options).run()  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_binary_masks_of_a_root_are_taken_as_asked(davis: Path, tmp_path: Path):
    for file in (davis / "Annotations/480p").rglob("*.png"):
        write_mask_png(file, np.where(read_labels(file) > 0, 255, 0).astype(np.uint8))
    with pytest.raises(DavisError, match="pass --year 2016 or --binary"):
        command(davis, tmp_path / "out", features="copy").run()
    command(davis, tmp_path / "out", features="copy", binary=True, json=tmp_path / "scores.json").run()
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert list(scores["per_object"]) == ["bear_1", "cows_1"]


def test_changed_or_removed_masks_are_computed_again_on_resume(davis: Path, tmp_path: Path):
    options = {"features": "copy", "sequences": ("bear",)}
    command(davis, tmp_path / "out", **options).run()
    mask = tmp_path / "out/bear/00001.png"
    kept = mask.read_bytes()
    write_mask_png(mask, np.zeros(SIZE, np.uint8))
    command(davis, tmp_path / "out", resume=True, **options).run()
    assert mask.read_bytes() == kept
    shutil.rmtree(tmp_path / "out/bear")
    command(davis, tmp_path / "out", resume=True, **options).run()
    assert mask.read_bytes() == kept
