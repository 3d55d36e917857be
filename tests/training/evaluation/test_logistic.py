"""Logistic regression: its minimum, few labels, and errors."""

from typing import Any

import pytest
import torch

from dino_model.inference import classifier
from dino_model.inference.classifier import LogisticFit, fit_logistic
from training.evaluation import logistic


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("classes", [2, 4])
def test_fit_in_chunks_finds_minimum_of_objective(classes: int, shared: bool, monkeypatch):
    monkeypatch.setattr(classifier, "_MAX_LOGITS", 12)
    y, random = torch.arange(60) % classes, torch.Generator().manual_seed(classes)
    x = torch.randn(60, 6, generator=random) + y[:, None] / 2
    if shared:
        y = torch.rand(60, classes, generator=random, dtype=torch.float64).softmax(dim=1)
    logits, linear = [], torch.nn.functional.linear
    monkeypatch.setattr(
        torch.nn.functional, "linear", lambda *given: logits.append(linear(*given)) or logits[-1]
    )
    found = fit_logistic(x, y, classes, l2=1.0, intercept=True, tolerance=1e-6)
    assert max(part.numel() for part in logits) == 12
    assert found.gradient < 1e-5
    weight, bias = (each.requires_grad_() for each in (found.classifier.weight, found.classifier.bias))
    objective = (
        torch.nn.functional.cross_entropy(x.double() @ weight.T + bias, y) + weight.square().sum() / 60 / 2
    )
    assert found.objective == pytest.approx(float(objective.detach()), abs=1e-9)  # computed in doubles
    largest = max(float(each.abs().max()) for each in torch.autograd.grad(objective, (weight, bias)))
    assert found.gradient == pytest.approx(largest, abs=1e-10)


def test_logistic_command_reports_each_number_of_labels(shapes, evaluate, tmp_path, capsys, monkeypatch):
    fitted, fits = list[torch.Tensor](), list[LogisticFit]()

    def record(x: torch.Tensor, *arguments: Any, **options: Any) -> LogisticFit:
        fitted.append(x)
        fits.append(fit_logistic(x, *arguments, **options))
        return fits[-1]

    monkeypatch.setattr(logistic, "fit_logistic", record)
    names = tmp_path / "names.txt"
    names.write_text("a/000.png\nb/000.png\nc/000.png\n")
    words = ("logistic", "--data", shapes, "--model", "pixels", "--size", 24)
    (result,) = evaluate(*words, "--shares", "25%", "3", names, "100%", "--seeds", 2)["results"]
    printed = capsys.readouterr().out
    assert "F(W) = 1/n Σ −log softmax(W x)[y] + λ/2 ‖W‖², λ = 0.1/n, without bias" in printed
    assert "labels: 25% (5 images): top-1 100.0 % ± 0.0 over 2 draws (mean" in printed
    assert "labels: 100% (18 images): top-1 100.0 % (mean" in printed
    drawn = [sorted(map(tuple, features.tolist())) for features in fitted]
    assert drawn[0] != drawn[1], "two draws of a share are of the same images"
    assert drawn[2] != drawn[3], "two draws of a number are of the same images"
    assert [row["images"] for row in result["each"]] == [5, 9, 3, 18]
    assert [row["draws"] for row in result["each"]] == [2, 2, 1, 1]
    for row, number in zip(result["each"], (1, 3, 4, 5), strict=True):  # the last draw of each
        assert (row["objective"], row["gradient"]) == (fits[number].objective, fits[number].gradient)
    assert result["metrics"]["top1"] == 100
    with pytest.raises(ValueError, match="Class 'a' has 8 training images, expected 9"):
        evaluate(*words, "--shares", 9)
    names.write_text("a/000.png\n")
    with pytest.raises(ValueError, match="All training images are of one class"):
        evaluate(*words, "--shares", names)
