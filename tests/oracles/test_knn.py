"""Weighted k-NN against the official evaluation's figures."""

import re

import pytest
import torch

from training.evaluation.knn import knn_accuracies, knn_accuracy, neighbors, votes


def test_accuracies_equal_the_official_ones(oracle):
    data = oracle("knn")
    train, test = (torch.from_numpy(data[f"{part}_features"]) for part in ("train", "test"))
    train_labels, test_labels = (torch.from_numpy(data[f"{part}_labels"]) for part in ("train", "test"))
    temperature = float(data["temperature"])
    asked = {key: re.fullmatch(r"(top[15])_k(\d+)", key) for key in data}
    figures = {key: (match[1], int(match[2])) for key, match in asked.items() if match}
    assert figures, "the oracle holds no figure"

    ks = sorted({k for _, k in figures.values()})
    results = knn_accuracies(train, train_labels, test, test_labels, ks=ks, temperature=temperature)
    for key, (measure, k) in figures.items():
        assert getattr(results[k], measure) == pytest.approx(float(data[key]), abs=1e-9), key
        alone = knn_accuracy(train, train_labels, test, test_labels, k=k, temperature=temperature)
        assert alone == results[k]
        classes = int(torch.cat([train_labels, test_labels]).max()) + 1
        predicted = votes(*neighbors(train, train_labels, test, k), temperature, classes).argmax(1)
        assert 100 * float((predicted == test_labels).double().mean()) == pytest.approx(results[k].top1)
