"""Weighted k-NN against the official evaluation's scores."""

import re

import pytest
import torch

from training.evaluation.knn import knn_accuracies, knn_accuracy, neighbors, votes


def test_accuracies_equal_the_official_ones(oracle):
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
        predicted = votes(*neighbors(train, train_labels, test, k), temperature, classes).argmax(1)
        assert 100 * float((predicted == test_labels).double().mean()) == pytest.approx(results[k].top1)
