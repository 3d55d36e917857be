"""Logistic regression: the objective, its minimum, few labels, and errors."""

import json
from pathlib import Path

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from tests.training.evaluation.pictures import evaluate, write_pictures
from training.evaluation import logistic
from training.evaluation.logistic import fit


def drawn(classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(classes)
    labels = torch.arange(60) % classes
    return torch.randn(60, 6, generator=random, dtype=torch.float64) + labels[:, None] / 2, labels


def plain(weights, intercepts, x, y, penalty):
    """Compute F by torch's own loss."""
    logits = x @ weights.T + intercepts
    return torch.nn.functional.cross_entropy(logits, y) + penalty / 2 * weights.square().sum()


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("at_once", [2**25, 12])
def test_fit_in_chunks_finds_minimum_of_objective(classes: int, at_once: int, monkeypatch):
    monkeypatch.setattr(logistic, "_MAX_LOGITS", at_once)
    x, y = drawn(classes)
    found = fit(x, y, classes, l2=1.0, intercept=True)
    assert found.gradient < 1e-5
    assert found.objective == pytest.approx(float(plain(found.weights, found.bias, x, y, 1 / 60)))


def test_fit_equals_scikit_learn():
    x, y = drawn(4)
    found = fit(x, y, 4, l2=0.1)
    reference = LogisticRegression(C=10, fit_intercept=False, tol=1e-8, max_iter=5000).fit(x, y)
    torch.testing.assert_close(found.weights, torch.from_numpy(reference.coef_), rtol=0, atol=1e-3)
    assert fit(x.float(), y, 4).objective == pytest.approx(found.objective, abs=1e-7)  # computed in doubles


def test_fit_of_one_class_raises():
    with pytest.raises(ValueError, match="All training images are of one class"):
        fit(drawn(3)[0], torch.zeros(60, dtype=torch.long), 3)


def test_logistic_command_reports_each_number_of_labels(tmp_path: Path, capsys, monkeypatch):
    fitted: list[torch.Tensor] = []
    monkeypatch.setattr(logistic, "fit", lambda x, *a, **how: fitted.append(x) or fit(x, *a, **how))
    shapes, figures, names = tmp_path / "shapes", tmp_path / "out.json", tmp_path / "names.txt"
    write_pictures(shapes, {"a": 10, "b": 10, "c": 10})
    names.write_text("a/000.png\nb/000.png\nc/000.png\n")
    words = ("--data", shapes, "--model", "pixels", "--size", "24", "--json", figures)
    evaluate("logistic", *words, "--labels", "25%", "3", names, "100%", "--seeds", "2")
    shown = capsys.readouterr().out
    assert "F(W) = 1/n Σ −log softmax(W x)[y] + λ/2 ‖W‖², λ = 0.1/n, without bias" in shown
    learnt = [sorted(map(tuple, features.tolist())) for features in fitted]
    assert learnt[0] != learnt[1], "two draws of a share are of the same pictures"
    assert learnt[2] != learnt[3], "two draws of a number are of the same pictures"
    (result,) = json.loads(figures.read_text())["results"]
    assert [line["images"] for line in result["each"]] == [6, 9, 3, 24]
    assert [line["draws"] for line in result["each"]] == [2, 2, 1, 1]
    assert result["metrics"]["top1"] == 100
    with pytest.raises(ValueError, match="Class 'a' has 8 training images, 9 of each are wanted"):
        evaluate("logistic", "--data", shapes, "--labels", "9")
