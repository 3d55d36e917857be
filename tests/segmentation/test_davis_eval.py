"""Scores of mask folders, judged by an evaluator that holds whole sequences as arrays."""

import json
import re
import sys
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from benchmarks.score import contour_accuracy as plain_contour_accuracy
from benchmarks.score import region_similarity as plain_region_similarity
from segmentation import davis_eval
from segmentation.__main__ import main
from segmentation.commands.score import Score
from segmentation.datasets import DavisError
from segmentation.davis_eval import Task, score_folders
from segmentation.labels import LabelError, read_labels, write_mask_png
from segmentation.metrics import contour_accuracy, jaccard
from segmentation.video import VideoError

Write = Callable[[str, Sequence[np.ndarray]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """`write("truth/dog", masks)`: a folder of numbered PNGs; returns the folder above it."""

    def into(name: str, masks: Sequence[np.ndarray]) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        for number, mask in enumerate(masks):
            write_mask_png(folder / f"{number:05d}.png", mask)
        return folder.parent

    return into


def boxes(
    frames: int, shift: int = 0, labels: Sequence[int] = (1, 2), size: tuple[int, int] = (40, 60)
) -> list:
    """One box per label, moving a pixel a frame; `shift` puts all of them elsewhere."""
    masks = []
    for frame in range(frames):
        mask = np.zeros(size, np.uint8)
        for index, label in enumerate(labels):
            top, left = 4 + 14 * index + shift, 3 + frame % 30 + 2 * shift
            mask[top : top + 10, left : left + 12 + index] = label
        masks.append(mask)
    return masks


def test_scores_are_those_of_whole_arrays(write: Write):
    rng = np.random.default_rng(0)
    for name, size in (("wide", (60, 90)), ("tall", (83, 41))):
        truth = boxes(7, size=size)
        guess = [
            np.where(rng.random(size) < 0.1, rng.integers(0, 3, size), mask)
            for mask in boxes(7, 2, size=size)
        ]
        guess[3][:] = 0
        guess[4][:] = 2
        write(f"truth/{name}", truth)
        write(f"guess/{name}", [mask.astype(np.uint8) for mask in guess])
    truth_folder, guess_folder = write("truth/empty", boxes(3)), write("guess/empty", boxes(3))
    found = {one.name: one for one in score_folders(truth_folder, guess_folder).objects}
    assert len(found) == 6
    for name, one in found.items():
        sequence, label = name.rsplit("_", 1)
        truth, guess = (
            np.stack([read_labels(file) for file in sorted((folder / sequence).iterdir())][1:-1])
            == int(label)
            for folder in (truth_folder, guess_folder)
        )
        np.testing.assert_allclose(one.J, plain_region_similarity(truth, guess), rtol=0, atol=1e-9)
        plain_f = [plain_contour_accuracy(*pair) for pair in zip(guess, truth, strict=True)]
        np.testing.assert_allclose(one.F, plain_f, rtol=0, atol=1e-9)


def test_means_are_over_objects_and_not_over_sequences(write: Write):
    write("truth/two", boxes(5))
    write("guess/two", boxes(5))
    truth, guess = (
        write("truth/one", boxes(5, labels=(1,))),
        write("guess/one", boxes(5, 100 // 20, labels=(1,))),
    )
    found = score_folders(truth, guess)
    poor = found.per_sequence["one"]["J_mean"]
    assert poor < 1
    assert found.dataset["J_mean"] == pytest.approx((1 + 1 + poor) / 3)
    assert found.dataset["J&F_mean"] == pytest.approx((found.dataset["J_mean"] + found.dataset["F_mean"]) / 2)


def test_first_and_last_frame_are_not_scored(write: Write):
    guess = boxes(6)
    guess[0][:], guess[-1][:] = 0, 0
    found = score_folders(write("truth/a", boxes(6)), write("guess/a", guess))
    assert found.dataset["J&F_mean"] == 1
    assert len(found.objects[0].J) == 4


def test_more_than_256_frames_have_a_decay(write: Write):
    truth, guess = boxes(300, labels=(1,)), boxes(300, labels=(1,))
    for number in range(150, 300):
        guess[number][:] = 0
    found = score_folders(write("truth/long", truth), write("guess/long", guess))
    assert found.dataset["J_decay"] == 1
    assert found.dataset["J_mean"] == pytest.approx(149 / 298)


def test_void_is_background_with_a_first_mask_and_nothing_without(write: Write):
    truth, guess = boxes(5, labels=(1,)), boxes(5, labels=(1,))
    for mask, other in zip(truth, guess, strict=True):
        mask[30:, 40:] = 255
        other[30:, 40:] = 1
    folders = write("truth/a", truth), write("guess/a", guess)
    assert score_folders(*folders).dataset["J_mean"] < 0.5
    assert score_folders(*folders, task="unsupervised").dataset["J_mean"] == 1


def test_an_object_that_comes_late_is_not_scored(write: Write):
    truth = boxes(6)
    truth[0][truth[0] == 2] = 0
    found = score_folders(write("truth/a", truth), write("guess/a", boxes(6, labels=(1,))))
    assert [one.name for one in found.objects] == ["a_1"]
    assert found.dataset["J_mean"] == 1


def test_labels_may_skip_numbers_and_none_is_given_away(write: Write):
    found = score_folders(
        write("truth/a", boxes(5, labels=(2, 9))), write("guess/a", boxes(5, 1, labels=(2, 9)))
    )
    assert [one.name for one in found.objects] == ["a_2", "a_9"]
    assert found.dataset["J_mean"] < 1


def test_an_object_that_is_gone_counts_as_found_when_nothing_is_said(write: Write):
    truth = boxes(6)
    for mask in truth[2:]:
        mask[mask == 2] = 0
    found = score_folders(write("truth/a", truth), write("guess/a", truth))
    assert found.dataset["J&F_mean"] == 1


def plain_unsupervised(
    truth: np.ndarray, guess: np.ndarray, labels: Sequence[int], proposals: Sequence[int]
) -> float:
    """The best one-to-one matching by trying them all: J&F over the objects."""
    void = truth == 255
    pairs = {}
    for proposal in proposals:
        for label in labels:
            masks = [(guess[t] == proposal, truth[t] == label, void[t]) for t in range(len(truth))]
            pairs[proposal, label] = np.mean([(float(jaccard(*m)) + contour_accuracy(*m)) / 2 for m in masks])
    orders = permutations(proposals, len(labels))
    return max(float(np.mean([pairs[pair] for pair in zip(order, labels, strict=True)])) for order in orders)


@pytest.mark.parametrize("proposals", [(5, 3, 8), (7, 1)], ids=["more than objects", "as many"])
def test_proposals_are_matched_to_objects_for_the_best_score(write: Write, proposals: tuple[int, ...]):
    rng = np.random.default_rng(len(proposals))
    truth = boxes(5)
    guess = [np.where(rng.random((40, 60)) < 0.2, proposals[0], mask * 0) for mask in truth]
    for made, mask in zip(guess, boxes(5, 1), strict=True):
        for label, proposal in zip((2, 1), proposals[-2:], strict=True):
            made[mask == label] = proposal
    guess = [mask.astype(np.uint8) for mask in guess]
    for mask in truth:
        mask[0, :7] = 255
    found = score_folders(write("truth/a", truth), write("guess/a", guess), task="unsupervised")
    expected = plain_unsupervised(np.stack(truth), np.stack(guess), (1, 2), proposals)
    assert found.dataset["J&F_mean"] == pytest.approx(expected, abs=1e-12)
    assert [one.name for one in found.objects] == ["a_1", "a_2"]
    assert len(found.objects[0].J) == 5


def test_rows_of_unsupervised_scores_carry_the_name_of_the_object(write: Write):
    swapped = [np.array([0, 2, 1], np.uint8)[mask] for mask in boxes(5)]
    for mask in swapped:
        mask[mask == 1] = 0  # nothing is proposed for object 2
    found = score_folders(write("truth/a", boxes(5)), write("guess/a", swapped), task="unsupervised")
    first, second = found.objects
    assert (first.name, first.J.mean()) == ("a_1", 1.0)
    assert (second.name, second.J.mean()) == ("a_2", 0.0)


@pytest.mark.parametrize("task", get_args(Task))
def test_every_mask_is_read_once_but_the_first_of_the_truth(
    write: Write, task: Task, monkeypatch: pytest.MonkeyPatch
):
    read: list[Path] = []

    def spy(path: Path, *, binary: bool = False) -> np.ndarray:
        read.append(path)
        return read_labels(path, binary=binary)

    monkeypatch.setattr(davis_eval, "read_labels", spy)
    truth, guess = write("truth/a", boxes(5)), write("guess/a", boxes(5))
    score_folders(truth, guess, task=task)
    first = truth / "a" / "00000.png"
    assert len(read) == len(set(read)) + read.count(first) - 1
    assert len(read) == (1 + 2 * 3 if task == "semi-supervised" else 1 + 2 * 5)


def test_binary_masks_are_one_object(write: Write):
    white = [mask * 255 for mask in boxes(5, labels=(1,))]
    folders = write("truth/a", white), write("guess/a", boxes(5, labels=(1,)))
    with pytest.raises(DavisError, match="--binary"):
        score_folders(*folders)
    assert score_folders(*folders, binary=True).dataset["J&F_mean"] == 1


def test_nothing_wrong_is_scored_silently(write: Write, tmp_path: Path):
    truth, guess = write("truth/a", boxes(6)), write("guess/a", boxes(6))
    write("truth/b", boxes(6))
    with pytest.raises(DavisError, match="no predictions of b"):
        score_folders(truth, guess)
    with pytest.raises(DavisError, match=r"'c' is not in .*truth; it has a, b"):
        score_folders(truth, guess, sequences=["c"])
    assert score_folders(truth, guess, sequences=["a"]).dataset["J_mean"] == 1
    (guess / "a" / "00003.png").unlink()
    with pytest.raises(DavisError, match=r"1 of 4 predictions of a are missing, the first is .*00003\.png"):
        score_folders(truth, guess, sequences=["a"])
    write_mask_png(guess / "a" / "00003.png", np.zeros((40, 61), np.uint8))
    with pytest.raises(DavisError, match=r"00003\.png is 61x40 pixels, its ground truth 60x40"):
        score_folders(truth, guess, sequences=["a"])
    write_mask_png(guess / "a" / "00003.png", np.full((40, 60), 4, np.uint8))
    with pytest.raises(DavisError, match=r"00003\.png has label 4.*\[0, 1, 2\]"):
        score_folders(truth, guess, sequences=["a"])
    (guess / "a" / "00003.png").write_bytes((guess / "a" / "00002.png").read_bytes()[:60])
    with pytest.raises(LabelError, match=r"00003\.png cannot be read"):
        score_folders(truth, guess, sequences=["a"])
    (truth / "a" / "00003.png").unlink()
    with pytest.raises(VideoError, match=r"from 00002\.png to 00004\.png"):
        score_folders(truth, guess, sequences=["a"])
    with pytest.raises(DavisError, match="at least 3"):
        score_folders(write("short/a", boxes(2)), guess)
    with pytest.raises(DavisError, match="protocol 'supervised'"):
        score_folders(truth, guess, task="supervised")  # type: ignore[arg-type]


def test_label_between_those_of_the_first_mask_is_named(write: Write):
    masks = boxes(4, labels=(1, 7))
    truth = write("truth/a", masks)
    assert score_folders(truth, write("guess/a", masks)).dataset["J_mean"] == 1
    masks[2] = np.where(masks[2] == 1, 3, masks[2]).astype(np.uint8)
    with pytest.raises(DavisError, match=r"00002\.png has label 3.*\[0, 1, 7\]"):
        score_folders(truth, write("wrong/a", masks))


def test_too_many_proposals_and_void_as_a_proposal_are_refused(write: Write):
    truth = write("truth/a", boxes(4))
    many = [np.arange(40 * 60, dtype=np.uint8).reshape(40, 60) % 23] * 4
    with pytest.raises(DavisError, match="propose 22 objects; the protocol allows 20"):
        score_folders(truth, write("many/a", many), task="unsupervised")
    void = [np.where(mask == 1, 255, mask).astype(np.uint8) for mask in boxes(4)]
    with pytest.raises(DavisError, match="label 255"):
        score_folders(truth, write("void/a", void), task="unsupervised")


def test_a_folder_one_level_up_or_down_names_the_right_one(write: Write, tmp_path: Path):
    truth = write("DAVIS/Annotations/480p/a", boxes(5))
    guess = write("guess/a", boxes(5))
    for wrong in (tmp_path / "DAVIS", truth.parent, truth / "a"):
        with pytest.raises(DavisError, match="480p looks right"):
            score_folders(wrong, guess)
    with pytest.raises(DavisError, match="does not exist"):
        score_folders(truth, tmp_path / "nothing")
    write_mask_png(
        guess / "overview.png", np.zeros((4, 4), np.uint8)
    )  # so that tmp_path looks right but is not
    for wrong in (tmp_path, guess / "a"):
        with pytest.raises(DavisError, match=rf"holds no sequences of predictions; {guess} looks right"):
            score_folders(truth, wrong)
    with pytest.raises(DavisError, match="one folder of PNGs per sequence, named as in the ground truth: a"):
        score_folders(truth, write("DAVIS/other/b", boxes(5)).parent / "other" / "b")


def test_the_command_writes_a_table_and_figures(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    truth, guess = write("truth/a", boxes(5)), write("guess/a", boxes(5, 1))
    Score(truth, guess, csv=tmp_path / "table.csv", json=tmp_path / "figures.json").run()
    printed = capsys.readouterr().out
    assert "semi-supervised" in printed
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert list(figures) == ["protocol", "dataset", "per_sequence", "per_object", "not_scored"]
    assert f"{figures['dataset']['J&F_mean'] * 100:.1f}" in printed
    table = (tmp_path / "table.csv").read_text().splitlines()
    assert table[0] == "level,name,J&F_mean,J_mean,J_recall,J_decay,F_mean,F_recall,F_decay"
    assert [line.split(",")[:2] for line in table[1:]] == [
        ["dataset", "all"],
        ["sequence", "a"],
        ["object", "a_1"],
        ["object", "a_2"],
    ]


def davis_root(truth: Path, tmp_path: Path, *names: str) -> Path:
    """A DAVIS-2017 root over a folder of true masks, whose list `val` has these names."""
    root = tmp_path / "DAVIS"
    (root / "ImageSets/2017").mkdir(parents=True)
    (root / "ImageSets/2017/val.txt").write_text("\n".join(names))
    (root / "Annotations").mkdir()
    (root / "Annotations/480p").symlink_to(truth)
    return root


def test_a_part_of_the_ground_truth_is_scored_by_list_split_or_request(write: Write, tmp_path: Path):
    for name in "abcd":
        truth = write(f"truth/{name}", boxes(5))
    for name in "bd":
        guess = write(f"guess/{name}", boxes(5, 1))
    expected = score_folders(truth, guess, sequences=["b", "d"]).as_json()
    root, listed = davis_root(truth, tmp_path, "b", "d"), tmp_path / "predicted.txt"
    listed.write_text("d\nb\n")
    with pytest.raises(DavisError, match=r"no predictions of 2 of 4 sequences \(a, c\): .*--allow-missing"):
        Score(truth, guess).run()
    ways = {
        "root": {"root": root},
        "list": {"ground_truth": truth, "listed": listed},
        "missing": {"ground_truth": truth, "allow_missing": True},
    }
    for name, way in ways.items():
        Score(predictions=guess, json=tmp_path / f"{name}.json", **way).run()
        found = json.loads((tmp_path / f"{name}.json").read_text())
        assert found["per_object"] == expected["per_object"]
        assert sorted(found["not_scored"]) == (["a", "c"] if name == "missing" else [])
    with pytest.raises(DavisError, match="either --ground-truth FOLDER or --root DAVIS"):
        Score(predictions=guess).run()
    with pytest.raises(DavisError, match=r"the list .*none\.txt cannot be read"):
        Score(truth, guess, listed=tmp_path / "none.txt").run()


def test_one_broken_sequence_does_not_stop_the_others(write: Write, tmp_path: Path, capsys):
    for name in ("fine", "gap", "nothing", "damaged"):
        masks = boxes(5) if name != "nothing" else [mask * 0 for mask in boxes(5)]
        truth, guess = write(f"truth/{name}", masks), write(f"guess/{name}", masks)
    (truth / "gap/00002.png").unlink()
    (guess / "damaged/00002.png").write_bytes(b"no mask")
    with pytest.raises(DavisError, match="3 sequences are not in the figures: gap, "):
        Score(truth, guess, json=tmp_path / "figures.json").run()
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert list(figures["per_sequence"]) == ["fine"]
    assert "from 00001.png to 00003.png" in figures["not_scored"]["gap"]
    assert "marks no object" in figures["not_scored"]["nothing"]
    assert "00002.png" in figures["not_scored"]["damaged"]
    printed = capsys.readouterr().out
    assert all(why in printed for why in figures["not_scored"].values())


def test_wrong_folder_at_the_command_line_is_one_sentence(tmp_path: Path, monkeypatch, capsys):
    arguments = ["score", "--ground-truth", str(tmp_path / "none"), "--predictions", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["segmentation", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    assert re.fullmatch(r"error: [^\n]* does not exist\n", capsys.readouterr().err)
