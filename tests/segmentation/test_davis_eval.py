"""Scores of mask folders, compared with an evaluator that holds whole sequences as arrays."""

import json
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from benchmarks.score import contour_accuracy as plain_contour_accuracy
from benchmarks.score import region_similarity as plain_region_similarity
from segmentation.annotations import MaskRules, read_labels
from segmentation.davis_eval import score_folders
from segmentation.labels import DataError, write_mask_png
from segmentation.metrics import contour_accuracy, jaccard
from tests.commands import segment

Write = Callable[[str, Sequence[np.ndarray]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """`write("truth/dog", masks)`: a folder of numbered PNGs; returns the folder above it."""

    def into(name: str, masks: Sequence[np.ndarray]) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        for number, mask in enumerate(masks):
            write_mask_png(folder / f"{number:05d}.png", np.asarray(mask, np.uint8))
        return folder.parent

    return into


def boxes(frames: int, shift: int = 0, labels: Sequence[int] = (1, 2), size: tuple[int, int] = (40, 60)):
    """Draw a box for each label that moves a pixel a frame; `shift` moves all boxes."""
    masks = np.zeros((frames, *size), np.uint8)
    for frame, mask in enumerate(masks):
        for index, label in enumerate(labels):
            top, left = 4 + 14 * index + shift, 3 + frame % 30 + 2 * shift
            mask[top : top + 10, left : left + 12 + index] = label
    return masks


def test_scores_equal_whole_arrays_and_their_means(write):
    rng = np.random.default_rng(0)
    for name, size in (("wide", (60, 90)), ("tall", (83, 41))):
        truth, guess = boxes(7, size=size), boxes(7, 2, size=size)
        guess[:] = np.where(rng.random(guess.shape) < 0.1, rng.integers(0, 3, guess.shape), guess)
        guess[3], guess[4] = 0, 2
        truth[2, 30:, 30:] = 255  # background
        truth[3:, :3, :3] = 3  # not in the first mask
        write(f"truth/{name}", truth)
        write(f"guess/{name}", guess)
    folders = write("truth/one", boxes(3, labels=(1,))), write("guess/one", boxes(3, labels=(1,)))
    scores = score_folders(*folders)
    assert list(scores["per_object"]) == ["one_1", "tall_1", "tall_2", "wide_1", "wide_2"]
    for name, found in scores["per_object"].items():
        sequence, label = name.split("_")
        files = (sorted((folder / sequence).iterdir())[1:-1] for folder in folders)
        truth, guess = (np.stack([read_labels(file) for file in each]) == int(label) for each in files)
        np.testing.assert_allclose(found["J"], plain_region_similarity(truth, guess), rtol=0, atol=1e-9)
        plain_f = [plain_contour_accuracy(*pair) for pair in zip(guess, truth, strict=True)]
        np.testing.assert_allclose(found["F"], plain_f, rtol=0, atol=1e-9)
    for prefix, means in (("", scores["dataset"]), ("wide", scores["per_sequence"]["wide"])):
        objects = [each for name, each in scores["per_object"].items() if name.startswith(prefix)]
        j, f = (np.mean([np.mean(each[kind]) for each in objects]) for kind in "JF")
        assert [means[key] for key in ("J_mean", "F_mean", "J&F_mean")] == pytest.approx([j, f, (j + f) / 2])


def test_binary_masks_score_one_object(write):
    folders = write("truth/a", boxes(5, labels=(255,))), write("guess/a", boxes(5, labels=(1,)))
    with pytest.raises(DataError, match="--binary"):
        score_folders(*folders)
    assert score_folders(*folders, rules=MaskRules(1))["dataset"]["J&F_mean"] == 1


def test_wrong_predictions_are_named(write):
    masks = boxes(6, labels=(1, 7))
    truth, guess = write("truth/a", masks), write("guess/a", masks)
    file, right = guess / "a" / "00003.png", (guess / "a" / "00003.png").read_bytes()
    changes: list[tuple[Callable[[], object], str]] = [
        (file.unlink, r"1 of 4 predictions of a are missing, the first is .*00003\.png"),
        (lambda: write_mask_png(file, masks[0, :, 1:]), r"3\.png is 59x40 pixels, its ground truth 60x40"),
        (lambda: write_mask_png(file, masks[0] // 7 * 8), r"has label 8, but the objects are 1 to 7"),
        (lambda: write_mask_png(file, masks[0] // 7 * 255), r"has 0 and 255 only, others have labels"),
        (lambda: file.write_bytes(right[:60]), r"00003\.png cannot be read"),
    ]
    for change, message in changes:
        change()
        with pytest.raises(DataError, match=message):
            score_folders(truth, guess)
    with pytest.raises(DataError, match=r"'c' is not in .*truth; it has a"):
        score_folders(truth, guess, sequences=["c"])
    with pytest.raises(DataError, match="at least 3"):
        score_folders(write("short/a", boxes(2)), guess)
    many = write("many/a", [np.arange(2400).reshape(40, 60) % 25] * 6)
    with pytest.raises(DataError, match="24 proposals; at most 20"):
        score_folders(whole := write("whole/a", masks), many, task="unsupervised")
    most = write("most/a", [np.arange(2400).reshape(40, 60) % 21] * 6)  # 20 proposals
    assert score_folders(whole, most, task="unsupervised")["per_object"]


def place_later_objects(guessed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Make truth with objects 1 and 3, from the third frame 2 and 4, and a guess that may have 2."""
    truth, guess = boxes(6, labels=(1, 3)), boxes(6, 1, labels=(1, 3))
    truth[2:, 30:38, 40:50] = 2
    truth[2:, :4, 40:50] = 4
    guess[2:, 31:38, 42:50] = 2 * guessed
    return truth, guess


def test_predictions_without_ground_truth_are_named(write):
    truth, guess = place_later_objects(True)
    folders = write("truth/a", truth), write("guess/a", guess)
    write("guess/b", guess)
    assert score_folders(*folders)["notes"][-1] == "not scored: 1 folder without ground truth: b"


@pytest.mark.parametrize("guessed", [True, False])
@pytest.mark.parametrize("task", ["semi-supervised", "unsupervised"])
def test_later_objects_score_as_officially(write, guessed, task):
    truth, guess = place_later_objects(guessed)
    scores = score_folders(write("truth/a", truth), write("guess/a", guess), task=task)
    assert list(scores["per_object"]) == ["a_1", "a_2", "a_3"]
    if task == "unsupervised":
        expected = plain_unsupervised(truth, guess, (1, 2, 3), (1, 2, 3))
    else:  # of frames 1 to 4
        pairs = [[(guess[t] == label, truth[t] == label) for t in range(1, 5)] for label in (1, 2, 3)]
        expected = np.mean([(float(jaccard(*m)) + contour_accuracy(*m)) / 2 for each in pairs for m in each])
    assert scores["dataset"]["J&F_mean"] == pytest.approx(expected, abs=1e-12)
    assert scores["notes"] == [
        "a: the first mask lacks object 2, which counts as officially",
        "a: object 4 first appears in 00002.png and is not scored (see --objects)",
    ]


def test_objects_are_scored_after_their_appearance(write):
    truth, guess = place_later_objects(True)
    truth[5, 20:22, 20:22] = 5  # in the last mask only
    guess[truth == 4] = 4
    folders = write("truth/a", truth), write("guess/a", guess)
    scores = score_folders(*folders, objects="appearance")
    assert {name: len(each["J"]) for name, each in scores["per_object"].items()} == {
        **{"a_1": 5, "a_2": 3, "a_3": 5, "a_4": 3}
    }
    assert scores["per_object"]["a_4"]["J"] == [1, 1, 1]
    assert scores["protocol"]["objects"] == "every label of the true masks"
    assert scores["notes"] == ["a: object 5 appears in the last mask and is not scored"]
    with pytest.raises(DataError, match="not unsupervised"):
        score_folders(*folders, objects="appearance", task="unsupervised")


@pytest.mark.parametrize("kept", [(0, 5, 10, 12), (0, 3, 4, 12), (0, 1, 12)])
def test_sparse_truth_is_scored_on_the_frames_it_has(write, kept):
    truth, guess = boxes(13), boxes(13, 1)
    folders = write("truth/a", truth), write("guess/a", guess)
    dense = score_folders(*folders)["per_object"]["a_2"]["J"]
    for number in set(range(13)) - set(kept):
        (folders[0] / "a" / f"{number:05d}.png").unlink()
    scores = score_folders(*folders)
    assert scores["per_object"]["a_2"]["J"] == [dense[number - 1] for number in kept[1:-1]]
    assert scores["notes"] == [
        f"a: {len(kept)} true masks for 13 predictions; scored on the frames they have"
    ]


def test_wrong_folder_is_named(write, tmp_path):
    truth, guess = write("DAVIS/Annotations/480p/a", boxes(5)), write("guess/a", boxes(5))
    with pytest.raises(DataError, match="480p looks right"):
        score_folders(tmp_path / "DAVIS", guess)
    with pytest.raises(DataError, match="does not exist"):
        score_folders(truth, tmp_path / "nothing")
    with pytest.raises(DataError, match=rf"holds no sequences of predictions; .*{guess} looks right"):
        score_folders(truth, guess / "a")
    with pytest.raises(DataError, match="it holds PNGs itself: move them into a folder in it"):
        score_folders(truth / "a", guess)
    empty = boxes(5)
    empty[0] = 0
    with pytest.raises(DataError, match=r"marks no object; pass --binary .* or --objects appearance"):
        score_folders(write("late/a", empty), guess)


def test_command_scores_list_and_names_faulty_sequences(write, tmp_path, capsys):
    for name in "abc":
        truth, guess = write(f"truth/{name}", boxes(5)), write(f"guess/{name}", boxes(5, 1))
    (guess / "b" / "00002.png").unlink()
    listed, file = tmp_path / "val.txt", tmp_path / "scores.json"
    listed.write_text("c\nb\n")
    options = {"--ground-truth": truth, "--predictions": guess, "--list": listed, "--json": file}
    words = [str(word) for option in options.items() for word in option]
    with pytest.raises(DataError, match="1 sequences are not scored: b"):
        segment(["score", *words])
    out = capsys.readouterr().out
    scores = json.loads(file.read_text())
    assert list(scores["per_sequence"]) == ["c"]
    assert "1 of 3 predictions of b are missing" in scores["not_scored"]["b"]
    assert f"{scores['dataset']['J&F_mean'] * 100:.1f}" in out


def plain_unsupervised(truth: np.ndarray, guess: np.ndarray, labels: Sequence[int], proposals: Sequence[int]):
    """Try every one-to-one matching: the largest J&F over the objects."""
    guess = np.where(truth == 255, 0, guess)
    pairs = {}
    for proposal in proposals:
        for label in labels:
            masks = [(guess[t] == proposal, truth[t] == label) for t in range(len(truth))]
            pairs[proposal, label] = np.mean([(float(jaccard(*m)) + contour_accuracy(*m)) / 2 for m in masks])
    orders = permutations(proposals, len(labels))
    return max(float(np.mean([pairs[pair] for pair in zip(order, labels, strict=True)])) for order in orders)


@pytest.mark.parametrize("proposals", [(5, 3, 8), (7, 1), (9,)])
def test_unsupervised_score_matches_proposals_to_objects(write, proposals):
    rng = np.random.default_rng(len(proposals))
    truth, moved = boxes(5), boxes(5, 1)
    guess = np.where(rng.random(truth.shape) < 0.2, proposals[0], 0)
    for label, proposal in zip((2, 1), proposals[-2:], strict=False):
        guess[moved == label] = proposal
    truth[:, 0, :7] = 255
    scores = score_folders(write("truth/a", truth), write("guess/a", guess), task="unsupervised")
    expected = plain_unsupervised(truth, guess, (1, 2), [*proposals, 254])  # 254 is nowhere
    assert scores["dataset"]["J&F_mean"] == pytest.approx(expected, abs=1e-12)
    assert [len(found["J"]) for found in scores["per_object"].values()] == [5, 5]


@pytest.mark.parametrize("last", [2, 3])
def test_number_between_proposals_is_an_empty_proposal_and_the_next_one_is_none(write, last):
    truth, guess = boxes(5), np.zeros((5, 40, 60), np.uint8)
    truth[1:][truth[1:] == 2] = 0  # an empty mask is right in four of five frames
    guess[truth == 1], guess[:, 32:38, 50:58] = 1, last
    scores = score_folders(write("truth/a", truth), write("guess/a", guess), task="unsupervised")
    expected = plain_unsupervised(truth, guess, (1, 2), range(1, last + 1))
    assert scores["dataset"]["J&F_mean"] == pytest.approx(expected, abs=1e-12)
