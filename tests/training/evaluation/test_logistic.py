"""Logistic regression: what is minimised, few labels, and what is refused."""

import json
from pathlib import Path

import pytest
import torch

from dino_model.errors import SettingError
from tests.training.evaluation.pictures import evaluate, write_pictures
from training.evaluation import logistic
from training.evaluation.logistic import LogisticProtocol, fit, objective


def drawn(classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(classes)
    labels = torch.arange(60) % classes
    return torch.randn(60, 6, generator=random, dtype=torch.float64) + labels[:, None] / 2, labels


def plain(weights, intercepts, x, y, penalty):
    """F as its docstring words it."""
    logits = x @ weights.T + intercepts
    return torch.nn.functional.cross_entropy(logits, y) + penalty / 2 * weights.square().sum()


def test_the_objective_and_its_gradient_are_the_formula_in_any_chunks(monkeypatch):
    x, y = drawn(3)
    both = torch.randn(
        3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True
    )
    expected = plain(both[:, :-1], both[:, -1], x, y, 0.3)
    expected.backward()
    for at_once in (2**25, 12):
        monkeypatch.setattr("training.evaluation.logistic._MAX_LOGITS", at_once)
        value, gradient = objective(both[:, :-1].detach(), both[:, -1].detach(), x, y, 0.3)
        torch.testing.assert_close(value, expected.detach())
        torch.testing.assert_close(gradient, both.grad)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("unit", [True, False])
def test_auto_finds_the_minimum_also_of_two_classes(classes: int, unit: bool):
    x, y = drawn(classes)
    found = fit(x, y, classes, LogisticProtocol(1.0, True, unit))
    assert found.solver == ("l-bfgs" if classes == 2 else "scikit-learn")
    assert found.gradient < 1e-5
    seen = torch.nn.functional.normalize(x, dim=1) if unit else x
    assert found.objective == pytest.approx(float(plain(found.weights, found.bias, seen, y, 1 / 60)))


def test_both_solvers_agree_on_the_figures():
    x, y = drawn(4)
    one, other = (fit(x, y, 4, LogisticProtocol(solver=name)) for name in ("scikit-learn", "l-bfgs"))
    torch.testing.assert_close(one.weights, other.weights, rtol=0, atol=1e-3)
    assert one.objective == pytest.approx(other.objective, abs=1e-8)


def test_many_features_stay_in_fp32_and_are_fitted_in_doubles(monkeypatch):
    x, y = drawn(4)
    few = fit(x.float(), y, 4, LogisticProtocol())
    monkeypatch.setattr("training.evaluation.logistic._MAX_SKLEARN_ROWS", 59)
    seen = []
    honest = logistic.objective

    def noted(weights, intercepts, features, labels, penalty):
        seen.append((weights.dtype, features.dtype))
        return honest(weights, intercepts, features, labels, penalty)

    monkeypatch.setattr(logistic, "objective", noted)
    many = fit(x.float(), y, 4, LogisticProtocol())
    assert set(seen) == {(torch.float64, torch.float32)}
    assert (few.solver, many.solver) == ("scikit-learn", "l-bfgs")
    assert many.objective == pytest.approx(few.objective, abs=1e-7)


def test_what_cannot_be_fitted_is_one_sentence():
    x, y = drawn(3)
    with pytest.raises(ValueError, match="All training images are of one class"):
        fit(x, torch.zeros(60, dtype=torch.long), 3, LogisticProtocol())
    with pytest.raises(ValueError, match="Features hold NaN"):
        fit(x * torch.nan, y, 3, LogisticProtocol())
    with pytest.raises(ValueError, match=r"shape \(60, 6\) with 59 labels"):
        fit(x, y[:59], 3, LogisticProtocol())


def run(*words: object) -> None:
    evaluate("logistic", *words)


def test_the_command_tells_every_budget_with_its_deviation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    fitted: list[torch.Tensor] = []
    monkeypatch.setattr(logistic, "fit", lambda x, *a, **how: fitted.append(x) or fit(x, *a, **how))
    shapes, figures, names = tmp_path / "shapes", tmp_path / "out.json", tmp_path / "names.txt"
    write_pictures(shapes, {"a": 10, "b": 10, "c": 10})
    names.write_text("a/000.png\nb/000.png\nc/000.png\n")
    run(
        *("--data", shapes, "--model", "pixels", "--size", "24", "--json", figures),
        *("--labels", "25%", "3", str(names), "100%", "--seeds", "2"),
    )
    shown = capsys.readouterr().out
    assert "F(W) = 1/n Σ −log softmax(W x)[y] + λ/2 ‖W‖², λ = 0.1/n, without bias" in shown
    learnt = [sorted(map(tuple, features.tolist())) for features in fitted]
    assert learnt[0] != learnt[1], "two draws of a share are of the same pictures"
    assert learnt[2] != learnt[3], "two draws of a number are of the same pictures"
    (result,) = json.loads(figures.read_text())["results"]
    assert [line["images"] for line in result["each"]] == [6, 9, 3, 24]
    assert [line["draws"] for line in result["each"]] == [2, 2, 1, 1]
    assert result["metrics"]["top1"] == 100
    with pytest.raises(SettingError, match="--labels many is no share"):
        run("--data", shapes, "--labels", "many")
    with pytest.raises(ValueError, match="Class 'a' has 8 training images, 9 of each are wanted"):
        run("--data", shapes, "--labels", "9")
