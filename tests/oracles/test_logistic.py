"""Logistic regression against the minimum found by Newton's method."""

import pytest
import torch

from training.evaluation.logistic import fit
from training.evaluation.metrics import accuracy


@pytest.mark.parametrize("intercept", [True, False])
def test_fit_finds_minimum_of_newtons_method(oracle, intercept):
    data = oracle("logistic")
    features, labels = torch.from_numpy(data["features"]), torch.from_numpy(data["labels"])
    test, truth = torch.from_numpy(data["test_features"]), torch.from_numpy(data["test_labels"])
    for number, strength in enumerate(data["strengths"].tolist()):
        where = f"strength{number}/{'with_intercept' if intercept else 'no_intercept'}"
        l2 = strength * len(features)
        found = fit(features, labels, int(data["classes"]), l2=l2, intercept=intercept, tolerance=1e-9)
        assert found.objective == pytest.approx(float(data[f"{where}/objective"]), abs=1e-9)
        expected = torch.from_numpy(data[f"{where}/weights"])
        torch.testing.assert_close(found.weights, expected, rtol=0, atol=1e-5)
        if intercept:
            expected = torch.from_numpy(data[f"{where}/intercepts"])
            torch.testing.assert_close(found.bias, expected, rtol=0, atol=1e-5)
        scores = found.scores(test)
        expected = torch.from_numpy(data[f"{where}/test_probabilities"])
        torch.testing.assert_close(scores.softmax(dim=1), expected, rtol=0, atol=1e-5)
        result = accuracy(scores, truth)
        assert scores.argmax(dim=1).tolist() == data[f"{where}/test_predictions"].tolist()
        assert result.top1 == pytest.approx(float(data[f"{where}/test_accuracy"]))
