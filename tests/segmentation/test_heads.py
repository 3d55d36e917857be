"""Heads on patch features, their files, and the IoU of classes."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dino_model.inference.classifier import LinearClassifier, SavedClassifier, read_classifier
from segmentation import heads
from segmentation.heads import PatchClassifier, PatchTask, class_shares, fit_classifier, sample_patches
from segmentation.labels import VOID, DataError

TASK: dict[str, Any] = {"labels": (0, 1, 2), "kind": "linear", "layers": 1, "size": 48, "foreground": False}
TASK |= {"names": ("a", "b", "c"), "colors": ((0, 0, 0), (1, 1, 1), (2, 2, 2))}


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def test_class_shares_equal_counts_of_labeled_pixels(random):
    labels = random.choice([0, 3, 7, VOID], size=(24, 32)).astype(np.uint8)
    labels[:15, :8] = VOID  # no pixel of a patch is labeled, and a row of the next
    shares, patches = class_shares(labels, (3, 4)), labels.reshape(3, 8, 4, 8)
    for row, column in np.ndindex(3, 4):
        labeled = patches[row, :, column][patches[row, :, column] != VOID]
        expected = np.bincount(labeled, minlength=VOID) / max(1, labeled.size)
        np.testing.assert_allclose(shares[row, column], expected, atol=1e-6)


def test_color_position_has_mean_color_and_place_of_patches_and_their_products(random):
    image = random.integers(0, 256, (32, 48, 3), dtype=np.uint8)
    color = image.reshape(4, 8, 6, 8, 3).mean(axis=(1, 3)) / 255 - 0.5
    for row, column in np.ndindex(4, 6):
        values = [*color[row, column], row / 3 - 0.5, column / 5 - 0.5]
        products = [values[i] * values[j] for i in range(5) for j in range(i, 5)]
        found = heads.color_position(image, 32, 8)[row, column]
        np.testing.assert_allclose(found, [*values, *products], atol=0.003)  # colors are of 8 bits


@pytest.mark.parametrize(("images", "patches"), [(2, 25_000), (16_667, 2), (60_000, 1)])
def test_sample_patches_keeps_total_below_50000(images, patches):
    labels = np.array([[0], [1]], np.uint8)
    maps = [(np.full((180, 190, 1), label, np.float32), labels[label : label + 1]) for label in (0, 1)]
    features, shares = sample_patches(maps, images)
    assert np.bincount(features[:, 0].astype(int)).tolist() == [patches] * 2
    np.testing.assert_array_equal(shares.argmax(axis=1), features[:, 0])


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", ["linear", "logistic", "knn"])
def test_fit_classifier_separates_classes(random, kind, classes):
    centers = 10 * random.normal(size=(classes, 5))
    number = np.arange(300) % classes
    features = (centers[number] + random.normal(size=(300, 5))).astype(np.float32)
    shares = np.zeros((300, VOID), np.float32)
    shares[np.arange(300), 2 * number + 2] = 1
    classifier = fit_classifier(features, shares, kind)
    assert classifier.labels == tuple(range(2, 2 * classes + 1, 2))
    labels = classifier.segment(features.reshape(15, 20, 5), (15, 20))
    assert (labels.ravel() == shares.argmax(axis=1)).mean() > 0.99
    with pytest.raises(DataError, match=r"label 2 only; expected at least two classes$"):
        fit_classifier(features[::classes], shares[::classes], kind)
    with pytest.raises(DataError, match=r"label 0 only; .* pass --binary"):
        fit_classifier(features, np.eye(1, VOID, dtype=np.float32).repeat(300, axis=0), kind)


def test_linear_head_trains_1000_steps_with_a_rate_that_falls_linearly_to_0(random, monkeypatch):
    groups, starts, batches, honest = [], list[torch.Tensor](), set(), torch.optim.AdamW.step

    def step(optimizer, *given):
        (group,) = optimizer.param_groups
        groups.append((group["lr"], group["weight_decay"]))
        starts.extend(tensor.detach().clone() for tensor in group["params"] if len(groups) == 1)
        return honest(optimizer, *given)

    def cross_entropy(logits, targets):
        batches.add(logits.shape)
        return -(targets * logits.log_softmax(1)).sum(1).mean()

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    monkeypatch.setattr(torch.nn.functional, "cross_entropy", cross_entropy)
    shares = np.eye(2, VOID, dtype=np.float32).repeat(4, axis=0)
    fit_classifier(random.normal(size=(8, 300)).astype(np.float32), shares, "linear")
    rates, decays = np.transpose(groups)
    np.testing.assert_allclose(rates, np.linspace(1e-2, 0, 1001)[:-1], rtol=1e-6, atol=1e-9)
    assert (set(decays), batches) == ({1e-4}, {(1024, 2)})
    assert starts[2].std().item() == pytest.approx(0.01, rel=0.1)
    assert not starts[3].any()


def test_knn_averages_shares_with_weights_of_cosine(random):
    bank, queries = random.normal(size=(60, 4)), random.normal(size=(300, 4))
    shares = random.dirichlet(np.ones(3), size=60)
    cosine = queries @ bank.T / np.linalg.norm(queries, axis=1)[:, None] / np.linalg.norm(bank, axis=1)
    nearest = np.argsort(-cosine)[:, :20]
    weights = np.exp(np.take_along_axis(cosine, nearest, axis=1) / 0.07)
    expected = (weights[..., None] * shares[nearest]).sum(axis=1).argmax(axis=1)
    padded = np.pad(shares, ((0, 0), (0, VOID - 3)))
    classifier = fit_classifier(*(each.astype(np.float32) for each in (bank, padded)), "knn")
    labels = classifier.segment(queries.astype(np.float32).reshape(15, 20, 4), (15, 20))
    np.testing.assert_array_equal(labels.ravel(), expected)


def test_logistic_head_is_that_of_scikit_learn_on_standardized_features_with_l2_of_1(random):
    from sklearn.linear_model import LogisticRegression

    features, classes = random.normal(2, 3, size=(90, 4)).astype(np.float32), np.arange(90) % 3
    features[:, 0] += 2 * classes
    with_constant = np.pad(features, ((0, 0), (0, 1)), constant_values=5)
    found = fit_classifier(with_constant, np.eye(VOID, dtype=np.float32)[classes], "logistic").classifier
    standardized = (features - features.mean(0)) / features.std(0)
    expected = LogisticRegression(C=1, tol=1e-8, max_iter=1000).fit(standardized, classes)
    scores = found.scores(torch.from_numpy(with_constant)).softmax(dim=1)
    np.testing.assert_allclose(scores, expected.predict_proba(standardized), atol=2e-3)


def test_segment_in_strips_equals_bilinear_scores_of_whole_image(random, monkeypatch):
    scores = random.normal(size=(7, 9, 4)).astype(np.float32)
    linear = LinearClassifier(torch.eye(4), torch.zeros(4))
    identity, channels = PatchClassifier((0, 5, 6, 9), linear), torch.from_numpy(scores).permute(2, 0, 1)
    whole = torch.nn.functional.interpolate(channels[None], size=(83, 61), mode="bilinear")
    expected = np.array(identity.labels)[whole[0].argmax(0).numpy()]
    for strip in (41, 1000):  # of one row at the end
        monkeypatch.setattr(heads, "STRIP", strip)
        assert (identity.segment(scores, (83, 61)) == expected).mean() > 0.9995  # but for ties


@pytest.mark.parametrize(
    ("labels", "names", "is_refused"),
    [((0, 1), 2, False), ((1, 2), 2, True), ((-1, 1), 2, True), ((0, 254), 255, False), ((0, 1), 256, True)],
)
def test_labels_of_a_task_are_those_of_at_most_255_names(labels, names, is_refused):
    task = TASK | {"labels": labels, "names": ("a",) * names}
    with pytest.raises(ValueError, match="labels") if is_refused else nullcontext():
        PatchTask(**task)


def save(file: Path, fitted: PatchClassifier, task: PatchTask) -> None:
    """Write a head of a model "m"."""
    about = {"classes": task.classes, "model": "m", "weights": "w"}
    SavedClassifier(classifier=fitted.classifier, task=task, **about).write(file)


@pytest.mark.parametrize("kind", ["linear", "logistic", "knn"])
def test_head_file_gives_the_labels_of_the_fit(random, kind, tmp_path):
    features, file = random.normal(size=(40, 4)).astype(np.float32), tmp_path / "head.safetensors"
    shares = np.eye(VOID, dtype=np.float32)[np.arange(40) % 3]
    fitted = fit_classifier(features, shares, kind)
    save(file, fitted, PatchTask(**TASK | {"kind": kind}))
    head, grid = read_classifier(file, PatchTask), features.reshape(5, 8, 4)
    found = PatchClassifier(head.task.labels, head.classifier).segment(grid, (10, 16))
    np.testing.assert_array_equal(found, fitted.segment(grid, (10, 16)))
    assert (head.task.names, head.classes) == (("a", "b", "c"), ("a", "b", "c"))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("DINO classifier 3", "DINO classifier 2", "its format is DINO classifier 2"),
        ('"task": "patches"', '"task": "images" ', "it classifies images, expected patches"),
        ('"labels": [0, 1, 2]', '"labels": [0, 1, 3]', "are not those of 3 names"),
        ('"layers"', '"layerz"', "unexpected keyword argument 'layerz'"),
        ('"classes": ["a", "b", "c"]', '"classes": ["a", "b"       ]', "do not fit its 2 classes"),
        ('"kind": "linear", "parts"', '"kind": "linier", "parts"', "its kind is 'linier'"),
    ],
)
def test_head_file_that_is_damaged_or_of_another_version_is_refused_with_its_name(old, new, reason, tmp_path):
    file = tmp_path / "head.safetensors"
    fitted = PatchClassifier((0, 1, 2), LinearClassifier(torch.zeros(3, 4), torch.zeros(3)))
    save(file, fitted, PatchTask(**TASK))
    content = file.read_bytes()
    before, after = (text.replace('"', r"\"").encode() for text in (old, new))
    assert before in content
    file.write_bytes(content.replace(before, after))
    with pytest.raises(ValueError, match=rf"head\.safetensors is no classifier of patches .*{reason}"):
        read_classifier(file, PatchTask)
