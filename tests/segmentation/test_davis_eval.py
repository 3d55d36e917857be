"""Scores of mask folders, judged by an evaluator that holds whole sequences as arrays."""

import json
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from benchmarks.score import contour_accuracy as plain_contour_accuracy
from benchmarks.score import region_similarity as plain_region_similarity
from segmentation.__main__ import main
from segmentation.datasets import DavisError
from segmentation.davis_eval import score_folders
from segmentation.labels import read_labels, write_mask_png
from segmentation.metrics import contour_accuracy, jaccard

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


def test_scores_equal_whole_arrays(write: Write):
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


def test_means_are_over_objects(write: Write):
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


def test_first_and_last_frame_are_not_scored_and_void_is_background(write: Write):
    truth, guess = boxes(6), boxes(6)
    guess[0][:], guess[-1][:] = 0, 0
    truth[2][30:, 40:] = 255
    found = score_folders(write("truth/a", truth), write("guess/a", guess))
    assert found.dataset["J&F_mean"] == 1
    assert len(found.objects[0].J) == 4


def test_object_missing_in_first_mask_is_not_scored(write: Write):
    truth = boxes(6)
    truth[0][truth[0] == 2] = 0
    found = score_folders(write("truth/a", truth), write("guess/a", boxes(6, labels=(1,))))
    assert [one.name for one in found.objects] == ["a_1"]
    assert found.dataset["J_mean"] == 1


def test_binary_masks_score_one_object(write: Write):
    white = [mask * 255 for mask in boxes(5, labels=(1,))]
    folders = write("truth/a", white), write("guess/a", boxes(5, labels=(1,)))
    with pytest.raises(DavisError, match="--binary"):
        score_folders(*folders)
    assert score_folders(*folders, binary=True).dataset["J&F_mean"] == 1


def test_wrong_predictions_are_named(write: Write, tmp_path: Path):
    truth, guess = write("truth/a", boxes(6)), write("guess/a", boxes(6))
    write("truth/b", boxes(6))
    (reason,) = score_folders(truth, guess).not_scored.values()
    assert "4 of 4 predictions of b are missing" in reason
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
    with pytest.raises(DavisError, match=r"00003\.png cannot be read"):
        score_folders(truth, guess, sequences=["a"])
    (truth / "a" / "00003.png").unlink()
    with pytest.raises(DavisError, match=r"from 00002\.png to 00004\.png"):
        score_folders(truth, guess, sequences=["a"])
    with pytest.raises(DavisError, match="at least 3"):
        score_folders(write("short/a", boxes(2)), guess)


def test_label_between_those_of_the_first_mask_is_named(write: Write):
    masks = boxes(4, labels=(1, 7))
    truth = write("truth/a", masks)
    assert score_folders(truth, write("guess/a", masks)).dataset["J_mean"] == 1
    masks[2] = np.where(masks[2] == 1, 3, masks[2]).astype(np.uint8)
    with pytest.raises(DavisError, match=r"00002\.png has label 3.*\[0, 1, 7\]"):
        score_folders(truth, write("wrong/a", masks))


def test_folder_above_or_below_names_right_folder(write: Write, tmp_path: Path):
    truth = write("DAVIS/Annotations/480p/a", boxes(5))
    guess = write("guess/a", boxes(5))
    for wrong in (tmp_path / "DAVIS", truth.parent, truth / "a"):
        with pytest.raises(DavisError, match="480p looks right"):
            score_folders(wrong, guess)
    with pytest.raises(DavisError, match="does not exist"):
        score_folders(truth, tmp_path / "nothing")
    with pytest.raises(DavisError, match=rf"holds no sequences of predictions; .*{guess} looks right"):
        score_folders(truth, guess / "a")


def test_command_scores_list_and_names_faulty_sequences(write: Write, tmp_path: Path, monkeypatch, capsys):
    for name in "abc":
        truth = write(f"truth/{name}", boxes(5))
        guess = write(f"guess/{name}", boxes(5, 1))
    (guess / "b" / "00002.png").unlink()
    listed, file = tmp_path / "val.txt", tmp_path / "scores.json"
    listed.write_text("c\nb\n")
    options = {"--ground-truth": truth, "--predictions": guess, "--list": listed, "--json": file}
    words = ["segmentation", "score", *(str(word) for option in options.items() for word in option)]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    out, err = capsys.readouterr()
    assert "error: 1 sequences are not scored: b" in err
    scores = json.loads(file.read_text())
    assert list(scores) == ["protocol", "dataset", "per_sequence", "per_object", "not_scored"]
    assert list(scores["per_sequence"]) == ["c"]
    assert "1 of 3 predictions of b are missing" in scores["not_scored"]["b"]
    assert f"{scores['dataset']['J&F_mean'] * 100:.1f}" in out
    assert "semi-supervised" in out


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


@pytest.mark.parametrize("proposals", [(5, 3, 8), (7, 1)], ids=["more than objects", "as many"])
def test_unsupervised_score_matches_proposals_to_objects(write: Write, proposals: tuple[int, ...]):
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


def test_unsupervised_score_of_a_missed_object_is_zero_and_too_many_proposals_are_refused(write: Write):
    swapped = [np.array([0, 2, 1], np.uint8)[mask] for mask in boxes(5)]
    for mask in swapped:
        mask[mask == 1] = 0
    truth = write("truth/a", boxes(5))
    first, second = score_folders(truth, write("guess/a", swapped), task="unsupervised").objects
    assert (first.J.mean(), second.J.mean()) == (1.0, 0.0)
    many = [np.arange(40 * 60, dtype=np.uint32).reshape(40, 60) % 25] * 5
    with pytest.raises(DavisError, match="24 proposals; at most 20"):
        score_folders(truth, write("many/a", [mask.astype(np.uint8) for mask in many]), task="unsupervised")
