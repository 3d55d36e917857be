"""Features of linear classifiers, k-NN and logistic regression agree with the official evaluation."""

import re

import numpy as np
import pytest
import torch

from dino_model.inference.classifier import FeatureSpec, fit_logistic, vote
from dino_model.inference.features import FeatureType
from tests.oracles.arrays import vit_of
from training.evaluation.knn import knn_accuracies, knn_accuracy, neighbors
from training.evaluation.linear import parse_official_head
from training.evaluation.metrics import accuracy


@torch.no_grad()
def test_every_kind_of_features_is_the_official_one(oracle):
    data = oracle("linear_features")
    vit, images = vit_of(data).double(), torch.from_numpy(data["images"]).double()
    features = FeatureType(4, "average", "cls").compute(vit, images).unflatten(1, (5, -1))
    expected = {
        FeatureSpec(1): "n1/cls",
        FeatureSpec(4): "n4/cls",
        FeatureSpec(1, "after"): "n1/cls_then_average",
        FeatureSpec(4, "after"): "n4/cls_then_average",
        FeatureSpec(1, "interleaved"): "n1/cls_average_interleaved",
    }
    for spec, name in expected.items():
        np.testing.assert_allclose(
            spec.select(features).numpy(), data[name], rtol=0, atol=1e-10, err_msg=name
        )
    average = FeatureType(0, "average").compute(vit, images)
    np.testing.assert_allclose(average.numpy(), data["average"], rtol=0, atol=1e-10)


def test_a_published_head_reads_what_its_size_tells(oracle):
    data = oracle("linear_features")
    width = data["n1/cls"].shape[1]
    features = torch.randn(3, 5, width)
    for spec, numbers in ((FeatureSpec(1), 1), (FeatureSpec(1, "interleaved"), 2), (FeatureSpec(4), 4)):
        tensors = {
            "module.linear.weight": torch.randn(7, numbers * width),
            "module.linear.bias": torch.randn(7),
        }
        found, classifier = parse_official_head(tensors, width)
        assert found == spec
        expected = spec.select(features) @ tensors["module.linear.weight"].T + tensors["module.linear.bias"]
        torch.testing.assert_close(classifier.scores(spec.select(features)), expected)
    for blocks in (1, 4):  # published with DINOv2, whose linear layer has no name
        weights = {"weight": torch.randn(7, (blocks + 1) * width), "bias": torch.randn(7)}
        last = features[:, -1 - blocks : -1].flatten(1)  # create_linear_input of dinov2/eval/linear.py
        inputs = torch.cat([last, features[:, -1]], dim=1)
        expected = inputs @ weights["weight"].T + weights["bias"]
        spec, classifier = parse_official_head(weights, width)
        torch.testing.assert_close(classifier.scores(spec.select(features)), expected)
    with pytest.raises(ValueError, match="has 3 inputs, which a model of width 24 does not output"):
        parse_official_head({"linear.weight": torch.ones(7, 3), "linear.bias": torch.ones(7)}, 24)
    with pytest.raises(ValueError, match="no linear head"):
        parse_official_head({"weight": torch.ones(7, 3)}, 24)


def test_accuracies_of_knn_equal_the_official_ones(oracle):
    data = oracle("knn")
    train, test = (torch.from_numpy(data[f"{part}_features"]) for part in ("train", "test"))
    train_labels, test_labels = (torch.from_numpy(data[f"{part}_labels"]) for part in ("train", "test"))
    temperature = float(data["temperature"])
    matches = {key: re.fullmatch(r"(top[15])_k(\d+)", key) for key in data}
    scores = {key: (match[1], int(match[2])) for key, match in matches.items() if match}
    ks = sorted({k for _, k in scores.values()})
    results = knn_accuracies(train, train_labels, test, test_labels, ks=ks, temperature=temperature)
    classes = int(torch.cat([train_labels, test_labels]).max()) + 1
    for key, (metric, k) in scores.items():
        assert getattr(results[k], metric) == pytest.approx(float(data[key]), abs=1e-9), key
        alone = knn_accuracy(train, train_labels, test, test_labels, k=k, temperature=temperature)
        assert alone == results[k]
        predicted = vote(*neighbors(train, train_labels, test, k), temperature, classes).argmax(1)
        assert 100 * float((predicted == test_labels).double().mean()) == pytest.approx(results[k].top1)


@pytest.mark.parametrize("intercept", [True, False])
def test_logistic_fit_finds_minimum_of_newtons_method(oracle, intercept):
    data = oracle("logistic")
    features, labels = torch.from_numpy(data["features"]), torch.from_numpy(data["labels"])
    test, truth = torch.from_numpy(data["test_features"]), torch.from_numpy(data["test_labels"])
    for number, strength in enumerate(data["strengths"].tolist()):
        where = f"strength{number}/{'with_intercept' if intercept else 'no_intercept'}"
        l2 = strength * len(features)
        found = fit_logistic(
            features, labels, int(data["classes"]), l2=l2, intercept=intercept, tolerance=1e-9
        )
        assert found.objective == pytest.approx(float(data[f"{where}/objective"]), abs=1e-9)
        expected = torch.from_numpy(data[f"{where}/weights"])
        torch.testing.assert_close(found.classifier.weight, expected, rtol=0, atol=1e-5)
        if intercept:
            expected = torch.from_numpy(data[f"{where}/intercepts"])
            torch.testing.assert_close(found.classifier.bias, expected, rtol=0, atol=1e-5)
        scores = found.classifier.scores(test)
        expected = torch.from_numpy(data[f"{where}/test_probabilities"])
        torch.testing.assert_close(scores.softmax(dim=1), expected, rtol=0, atol=1e-5)
        result = accuracy(scores, truth)
        assert scores.argmax(dim=1).tolist() == data[f"{where}/test_predictions"].tolist()
        assert result.top1 == pytest.approx(float(data[f"{where}/test_accuracy"]))
