"""Heads on patch features: class shares, sampling, the three kinds, strips, files; IoU of classes."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from segmentation import heads
from segmentation.heads import Classifier, Head, HeadError, class_shares, fit_classifier, sample_patches
from segmentation.labels import VOID
from segmentation.metrics import class_jaccard, confusion

RANDOM = np.random.default_rng(0)


def test_class_shares_equal_counts_of_labeled_pixels():
    labels = RANDOM.choice([0, 3, 7, VOID], size=(24, 32)).astype(np.uint8)
    labels[:8, :8] = VOID
    shares = class_shares(labels, (3, 4))
    for row, column in np.ndindex(3, 4):
        patch = labels[8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
        labeled = patch[patch != VOID]
        expected = np.bincount(labeled, minlength=VOID) / max(1, labeled.size)
        np.testing.assert_allclose(shares[row, column], expected, atol=1e-6)


def test_sample_patches_keeps_total_below_limit(monkeypatch):
    monkeypatch.setattr(heads, "MAX_PATCHES", 20)
    maps = [
        (np.full((5, 6, 2), number, np.float32), np.full((10, 12), number, np.uint8)) for number in (0, 1)
    ]
    features, shares = sample_patches(maps, 2)
    assert np.bincount(features[:, 0].astype(int)).tolist() == [10, 10]
    np.testing.assert_array_equal(shares.argmax(axis=1), features[:, 0])


def blobs(classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Well separated classes at labels 2, 4, 6, …: features [300, 5] and shares."""
    centers = 10 * RANDOM.normal(size=(classes, 5))
    number = np.arange(300) % classes
    features = (centers[number] + RANDOM.normal(size=(300, 5))).astype(np.float32)
    shares = np.zeros((300, VOID), np.float32)
    shares[np.arange(300), 2 * number + 2] = 1
    return features, shares


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", ["linear", "logistic", "knn"])
def test_fit_classifier_separates_classes(kind, classes):
    features, shares = blobs(classes)
    classifier = fit_classifier(features, shares, kind)
    assert classifier.labels == tuple(range(2, 2 * classes + 1, 2))
    labels = classifier.segment(features.reshape(15, 20, 5), (15, 20))
    assert (labels.ravel() == shares.argmax(axis=1)).mean() > 0.99


def test_fit_classifier_with_one_class_is_refused():
    shares = np.zeros((4, VOID), np.float32)
    shares[:, 3] = 1
    with pytest.raises(HeadError, match="label 3 only; expected at least two"):
        fit_classifier(np.ones((4, 2), np.float32), shares)


def test_knn_averages_shares_with_weights_of_cosine():
    bank = RANDOM.normal(size=(30, 4)).astype(np.float32)
    shares = RANDOM.dirichlet(np.ones(3), size=30).astype(np.float32)
    query = RANDOM.normal(size=4).astype(np.float32)
    cosine = bank @ query / np.linalg.norm(bank, axis=1) / np.linalg.norm(query)
    nearest = np.argsort(-cosine)[:20]
    weights = np.exp(cosine[nearest] / 0.07)
    expected = (weights[:, None] * shares[nearest]).sum(axis=0) / weights.sum()
    unit = bank / np.linalg.norm(bank, axis=1, keepdims=True)
    np.testing.assert_allclose(heads._vote(query[None, None], unit, shares)[0, 0], expected, atol=1e-5)


def test_segment_in_strips_equals_bilinear_scores_of_whole_image(monkeypatch):
    scores = RANDOM.normal(size=(7, 9, 4)).astype(np.float32)
    identity = Classifier(
        (0, 5, 6, 9), {"weight": np.eye(4, dtype=np.float32), "bias": np.zeros(4, np.float32)}
    )
    whole = torch.nn.functional.interpolate(
        torch.from_numpy(scores).permute(2, 0, 1)[None], size=(83, 61), mode="bilinear"
    )
    expected = np.array(identity.labels)[whole[0].argmax(0).numpy()]
    for strip in (1000, 10):
        monkeypatch.setattr(heads, "STRIP", strip)
        assert (identity.segment(scores, (83, 61)) == expected).mean() > 0.9995  # but for ties


def test_head_file_gives_head_back(tmp_path):
    classifier = fit_classifier(*blobs(), "knn")
    colors = [[number, 0, 255] for number in range(7)]
    head = Head(classifier, "knn", "runs/a", "abc", 4, 224, True, list("abcdefg"), colors)
    head.save(tmp_path / "head.safetensors")
    read = heads.read_head(tmp_path / "head.safetensors")
    assert {**vars(read), "classifier": None} == {**vars(head), "classifier": None}
    assert read.classifier.labels == classifier.labels
    for name, array in classifier.arrays.items():
        np.testing.assert_array_equal(read.classifier.arrays[name], array)


FIELDS = {"kind": "linear", "model": "m", "weights": "w", "layers": 1, "size": 48, "foreground": False}
NAMED = {"names": ["a", "b"], "colors": [[0, 0, 0], [1, 1, 1]], "labels": [0, 1]}


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"format": "segmentation-head-1", "head": "{"},
        {"format": "segmentation-head-1", "head": json.dumps(FIELDS)},
        {"format": "segmentation-head-1", "head": json.dumps({**FIELDS, **NAMED, "labels": [0, 300]})},
        {"format": "segmentation-head-1", "head": json.dumps({**FIELDS, **NAMED, "labels": [0, 1, 1]})},
        {"format": "segmentation-head-1", "head": json.dumps({**FIELDS, **NAMED, "kind": "knn"})},
    ],
)
def test_damaged_head_file_is_refused_with_its_name(metadata, tmp_path):
    arrays = {"weight": np.zeros((2, 3), np.float32), "bias": np.zeros(2, np.float32)}
    save_file(arrays, tmp_path / "head.safetensors", metadata)
    with pytest.raises(HeadError, match=r"head\.safetensors"):
        heads.read_head(tmp_path / "head.safetensors")


def test_class_jaccard_equals_masks_over_all_images():
    truths = [RANDOM.choice([0, 1, 4, VOID], size=(9, 11)).astype(np.uint8) for _ in range(3)]
    predictions = [RANDOM.choice([0, 1, 2], size=(9, 11)).astype(np.uint8) for _ in range(3)]
    found = class_jaccard(sum(map(confusion, predictions, truths)))
    truth, prediction = np.concatenate(truths), np.concatenate(predictions)
    valid = truth != VOID
    expected = {
        label: ((truth == label) & (prediction == label) & valid).sum()
        / (((truth == label) | (prediction == label)) & valid).sum()
        for label in (0, 1, 2, 4)
    }
    assert found == pytest.approx(expected)
    assert found[2] == 0  # in the predictions only
