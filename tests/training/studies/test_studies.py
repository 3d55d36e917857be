"""Studies: statistics, verdicts, the gate, and the command on tiny runs."""

import json
from dataclasses import replace
from itertools import count

import pytest

from dino_model.data.collection import open_images
from tests.training.runs import few_photographs, noise
from training import __main__ as command
from training.recipes.recipe import Plan
from training.studies import laws, runs
from training.studies.laws import LAWS
from training.studies.report import Outcome, interval, outcome_table, verdict
from training.studies.runs import Result, StudyData, check_base


def outcome(*differences: float, is_short: bool = False) -> Outcome:
    values = {"momentum": [50 + change for change in differences], "student copy": [50] * len(differences)}
    return Outcome(LAWS["teacher"], values, {}, {}, is_short)


def result(teacher: float, student: float = 0.0, **metrics: float) -> Result:
    return Result(({"knn_teacher": teacher, "knn_student": student, "ln_k": 2.0} | metrics,) * 10, 20.0)


def test_interval_is_students_t():
    expected = (2, 2 - 2.4841, 2 + 2.4841)  # t = 4.3027 with 2 degrees of freedom
    assert interval([1.0, 2.0, 3.0]) == pytest.approx(expected, abs=1e-4)
    assert interval([1.0, 2.0, 3.0], 0, 4) == (2, 0, 4)


def test_table_and_effect_of_a_bounded_quantity_are_bounded():
    values = {"no sharpening": [0.7, 1.0, 1.0], "no centering": [0.0, 0.0, 0.3]}
    collapse = Outcome(LAWS["collapse"], values, {}, {})
    assert collapse.effect.high == 1
    assert [line.split(" | ")[2].split(" to ") for line in outcome_table(collapse)[2:]] == [
        ["0.47", "1.00"],
        ["0.00", "0.53"],
    ]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (outcome(20, 21, 22), "gains 21.0 points over the copied one, 95 % interval 18.5 to 23.5."),
        (outcome(-20, -21, -22), "Not shown: the measured effect has the other sign, -21.0 points"),
        (outcome(-1, 0, 4), "Not shown: 3 runs are too few for the measured effect, 1.0 points"),
        (outcome(1, 0, -4), "Not shown: the mean effect has the other sign, -1.0 points; zero is"),
        (outcome(-1, 0, 4, is_short=True), "Not shown: the runs are too short"),
        (outcome(5), "Not shown: too few runs; one run gives 5.0 points and no interval"),
    ],
)
def test_verdict_states_effect_interval_and_cause(given: Outcome, sentence: str):
    assert sentence in verdict(given)
    assert given.is_shown == (not sentence.startswith("Not shown"))


def test_contrast_of_each_law_is_positive_if_the_law_holds():
    better, worse = result(60, 55, teacher_entropy=2.0), result(40, 45, teacher_entropy=0.0)
    holds = {
        "collapse": ({"no sharpening": better, "no centering": worse}, 1.0),
        "teacher": ({"momentum": better, "student copy": worse}, 20),
        "multicrop": ({"multi-crop": better, "two crops": worse}, 20),
        "loss": ({"cross-entropy": better, "mean squared error": worse}, 20),
    }
    for name, (results, effect) in holds.items():
        values = {point: [value] for point, value in LAWS[name].values(results).items()}
        assert Outcome(LAWS[name], values, {}, {}).effect.mean == effect, name


def test_check_base_refuses_run_below_untrained_or_pixels():
    check_base([result(50)], pixels=40)
    for accuracy, pixels in ((39.0, 40), (19.0, 10)):
        with pytest.raises(ValueError, match=f"seed 1 reaches {accuracy} % k-NN top-1"):
            check_base([result(50), result(accuracy)], pixels)


@pytest.mark.parametrize("law", LAWS.values(), ids=list(LAWS))
def test_variants_of_law_are_valid_recipes(law):
    for recipe in law.recipes(law.epochs).values():
        assert Plan.of(recipe, 3200).steps >= 800
    assert law.paper.keys() <= law.variants.keys()


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Patch the studies to networks of one block on 66 images."""
    whole, images = laws.base_recipe, open_images(noise(tmp_path / "images", 66, 2, 20, 20))

    def recipe(epochs):
        small = replace(whole(epochs).backbone, width=24, depth=1, image_size=16)
        crops = replace(whole(epochs).crops, global_size=16, local_size=8)
        return replace(whole(epochs), backbone=small, crops=crops)

    monkeypatch.setattr(laws, "base_recipe", recipe)
    monkeypatch.setattr("dino_model.data.collection.open_images", lambda _: images)
    monkeypatch.setattr("training.studies.runs.check_base", lambda *_: None)


def study(output, *more, name="collapse"):
    words = ["study", name, "--output", str(output), "--epochs", "2", "--seeds", "2", "--device", "cpu"]
    return command.main([*words, *map(str, more)])


def losses(folder):
    logs = sorted(folder.glob("runs/*/log.jsonl"))
    return {log.parent.name: [json.loads(line)["loss"] for line in log.open()] for log in logs}


@pytest.mark.slow
def test_study_after_interruption_reports_as_an_uninterrupted_one(tiny, tmp_path, capsys, monkeypatch):
    folder, file = tmp_path / "whole", tmp_path / "out.json"
    assert study(folder, "--json", file) == 0
    shown, page = capsys.readouterr().out, (folder / "collapse.md").read_text()
    content = json.loads(file.read_text())
    assert content["verdict"] in shown
    assert content["verdict"] in page
    assert "| no centering |" in shown
    assert len(content["values"]["both"]) == 2
    assert (folder / "collapse.png").read_bytes().startswith(b"\x89PNG")
    steps, accuracy = count(), StudyData.accuracy

    def interrupt(*arguments):
        if next(steps) == 7:
            raise KeyboardInterrupt
        return accuracy(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "SAVE_EVERY", 1)
        patch.setattr(StudyData, "accuracy", interrupt)
        assert study(tmp_path / "cut") == 130
    assert 0 < len(losses(tmp_path / "cut")) < 8
    assert study(tmp_path / "cut", "--resume", "--json", file) == 0
    assert losses(tmp_path / "cut") == losses(folder)
    assert json.loads(file.read_text())["values"] == content["values"]


@pytest.mark.slow
def test_study_with_failing_base_run_stops(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("training.studies.runs.check_base", check_base)
    assert study(tmp_path / "study", name="teacher") == 1
    assert "The base run of seed" in capsys.readouterr().err
    assert not [*(tmp_path / "study" / "runs").glob("student-copy-*")]


@pytest.mark.slow
def test_study_emergence_shows_on_package_images(tmp_path):
    file = tmp_path / "out.json"
    with few_photographs(10):
        assert study(tmp_path / "study", "--json", file, name="emergence") == 0
    content = json.loads(file.read_text())
    assert content["is_shown"]
    assert content["effect"]["low"] > 0.5
    assert content["baselines"] == {"attention in proportion to area": 1.0}


def test_study_with_unknown_name_lists_names(tmp_path, capsys):
    assert study(tmp_path / "study", name="ghost") == 1
    assert "Available: collapse, teacher, multicrop" in capsys.readouterr().err
