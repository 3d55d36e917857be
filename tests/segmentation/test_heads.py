"""Heads on patch features, their files, and the IoU of classes."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from segmentation import heads
from segmentation.heads import Classifier, class_shares, fit_classifier, sample_patches
from segmentation.labels import VOID, DataError

RANDOM = np.random.default_rng(0)


def test_class_shares_equal_counts_of_labeled_pixels():
    labels = RANDOM.choice([0, 3, 7, VOID], size=(24, 32)).astype(np.uint8)
    labels[:8, :8] = VOID
    shares, patches = class_shares(labels, (3, 4)), labels.reshape(3, 8, 4, 8)
    for row, column in np.ndindex(3, 4):
        labeled = patches[row, :, column][patches[row, :, column] != VOID]
        expected = np.bincount(labeled, minlength=VOID) / max(1, labeled.size)
        np.testing.assert_allclose(shares[row, column], expected, atol=1e-6)


def test_sample_patches_keeps_total_below_limit(monkeypatch):
    monkeypatch.setattr(heads, "MAX_PATCHES", 20)
    maps = [(np.full((5, 6, 2), label, np.float32), np.full((10, 12), label, np.uint8)) for label in (0, 1)]
    features, shares = sample_patches(maps, 2)
    assert np.bincount(features[:, 0].astype(int)).tolist() == [10, 10]
    np.testing.assert_array_equal(shares.argmax(axis=1), features[:, 0])


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", ["linear", "logistic", "knn"])
def test_fit_classifier_separates_classes(kind, classes):
    centers = 10 * RANDOM.normal(size=(classes, 5))
    number = np.arange(300) % classes
    features = (centers[number] + RANDOM.normal(size=(300, 5))).astype(np.float32)
    shares = np.zeros((300, VOID), np.float32)
    shares[np.arange(300), 2 * number + 2] = 1
    classifier = fit_classifier(features, shares, kind)
    assert classifier.labels == tuple(range(2, 2 * classes + 1, 2))
    labels = classifier.segment(features.reshape(15, 20, 5), (15, 20))
    assert (labels.ravel() == shares.argmax(axis=1)).mean() > 0.99
    with pytest.raises(DataError, match="label 2 only; expected at least two"):
        fit_classifier(features[::classes], shares[::classes], kind)


def test_knn_averages_shares_with_weights_of_cosine():
    bank, queries = RANDOM.normal(size=(60, 4)), RANDOM.normal(size=(300, 4))
    shares = RANDOM.dirichlet(np.ones(3), size=60)
    cosine = queries @ bank.T / np.linalg.norm(queries, axis=1)[:, None] / np.linalg.norm(bank, axis=1)
    nearest = np.argsort(-cosine)[:, :20]
    weights = np.exp(np.take_along_axis(cosine, nearest, axis=1) / 0.07)
    expected = (weights[..., None] * shares[nearest]).sum(axis=1).argmax(axis=1)
    padded = np.pad(shares, ((0, 0), (0, VOID - 3)))
    classifier = fit_classifier(*(each.astype(np.float32) for each in (bank, padded)), "knn")
    labels = classifier.segment(queries.astype(np.float32).reshape(15, 20, 4), (15, 20))
    np.testing.assert_array_equal(labels.ravel(), expected)


def test_segment_in_strips_equals_bilinear_scores_of_whole_image(monkeypatch):
    scores = RANDOM.normal(size=(7, 9, 4)).astype(np.float32)
    arrays = {"weight": np.eye(4, dtype=np.float32), "bias": np.zeros(4, np.float32)}
    identity, channels = Classifier((0, 5, 6, 9), arrays), torch.from_numpy(scores).permute(2, 0, 1)
    whole = torch.nn.functional.interpolate(channels[None], size=(83, 61), mode="bilinear")
    expected = np.array(identity.labels)[whole[0].argmax(0).numpy()]
    for strip in (1000, 10):
        monkeypatch.setattr(heads, "STRIP", strip)
        assert (identity.segment(scores, (83, 61)) == expected).mean() > 0.9995  # but for ties


FIELDS = {"kind": "linear", "model": "m", "weights": "w", "layers": 1, "size": 48, "foreground": False}
NAMED = FIELDS | {"names": ["a", "b"], "colors": [[0, 0, 0], [1, 1, 1]], "labels": [0, 1]}


@pytest.mark.parametrize(
    "head",
    ["{", FIELDS, NAMED | {"labels": [0, 300]}, NAMED | {"labels": [0, 1, 1]}, NAMED | {"kind": "knn"}],
)
def test_damaged_head_file_is_refused_with_its_name(head, tmp_path):
    file = tmp_path / "head.safetensors"
    arrays = {"weight": np.zeros((2, 3), np.float32), "bias": np.zeros(2, np.float32)}
    metadata = {"format": "segmentation-head-1", "head": head if head == "{" else json.dumps(head)}
    for each in (metadata, metadata | {"format": "other"}):
        save_file(arrays, file, each)
        with pytest.raises(DataError, match=r"head\.safetensors"):
            heads.read_head(file)
