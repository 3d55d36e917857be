"""Studies: statistics, verdicts, the gate, and the command on tiny runs."""

import json
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dino_model.data.collection import open_images
from tests.training.runs import few_photographs, noise
from training import __main__ as command
from training.commands.study import train_study
from training.evaluation.knn import knn_accuracy
from training.evaluation.paper import published_rows
from training.evaluation.run import Pixels
from training.recipes.recipe import Plan
from training.run.folder import Run
from training.studies import laws, runs
from training.studies.laws import LAWS
from training.studies.report import Outcome, interval, outcome_page, outcome_table, verdict
from training.studies.runs import Result, StudyData, check_base, train_run


def outcome(*differences: float, is_short: bool = False) -> Outcome:
    values = {"momentum": [50 + change for change in differences], "student copy": [50] * len(differences)}
    return Outcome(LAWS["teacher"], values, {}, {}, is_short)


def result(teacher: float, student: float = 0.0, **metrics: float) -> Result:
    return Result(({"knn_teacher": teacher, "knn_student": student, "ln_k": 2.0} | metrics,) * 10, 20.0)


def test_interval_is_students_t():
    expected = (2, 2 - 2.4841, 2 + 2.4841)  # t = 4.3027 with 2 degrees of freedom
    assert interval([1.0, 2.0, 3.0]) == pytest.approx(expected, abs=1e-4)
    assert interval([1.0, 2.0, 3.0], 0, 4) == (2, 0, 4)
    assert interval([1.0, 2.0])[1:] == pytest.approx((1.5 - 6.3531, 1.5 + 6.3531), abs=1e-4)  # t = 12.706
    assert interval([5.0], 0, 9) == (5, -np.inf, np.inf)


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
        (outcome(-0.5, 0.1, -0.4), "Not shown: the mean effect has the other sign, -0.3 points; zero is"),
        (outcome(-1, 0, 4, is_short=True), "Not shown: the runs are too short"),
        (outcome(5), "Not shown: too few runs; one run gives 5.0 points and no interval"),
        (outcome(2, 2.1), "gains 2.1 points over the copied one, 95 % interval 1.4 to 2.7."),
        (outcome(0.2, 0.2, 0.2), "gains 0.2 points over the copied one, 95 % interval 0.2 to 0.2."),
        (outcome(0, 0), "Not shown: the mean effect has the other sign, 0.0 points; zero is inside the"),
        (outcome(0.5, -0.3), "Not shown: 2 runs are too few for the measured effect, 0.1 points"),
    ],
)
def test_verdict_states_effect_interval_and_cause(given: Outcome, sentence: str):
    assert sentence in verdict(given)
    assert given.is_shown == (not sentence.startswith("Not shown"))


def test_page_of_a_study_names_what_its_points_are():
    page = outcome_page(outcome(20, 21, 22))
    assert "small points are seeds. The effect is paired by seed." in page
    assert verdict(outcome(20, 21, 22)) in page
    images = Outcome(LAWS["emergence"], {"random weights": [1.0, 1.0], "trained": [2.0, 1.9]}, {}, {})
    assert "small points are images. The effect is paired by image." in outcome_page(images)


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
    for accuracy, pixels in ((39.0, 40), (19.0, 10), (40.0, 40)):
        with pytest.raises(ValueError, match=f"seed 1 reaches {accuracy} % k-NN top-1"):
            check_base([result(50), result(accuracy)], pixels)


def test_result_is_the_last_accuracy_and_the_mean_entropy_of_the_last_tenth():
    """Teacher entropies of 0, 1, 2, … with ln K = 2."""
    for steps, expected in ((5, 4), (20, 18.5), (39, 37)):
        lines = tuple({"teacher_entropy": float(step), "ln_k": 2.0} for step in range(steps))
        assert Result(lines, 20.0).entropy() == expected / 2
        assert Result((*lines, {"knn_teacher": 33.0}), 20.0).knn() == 33
        assert Result(lines, 20.0).knn() == Result((), 20.0).knn() == 20


def test_studies_train_as_their_page_states():
    """docs/studies.md, "Data and protocol", on 3,200 textures; 50 steps of momentum are lesson 4's."""
    for law in LAWS.values():
        recipes = [Plan.of(recipe, 3200).steps for recipe in law.recipes(law.epochs).values()]
        assert recipes == [800 * (2 if name == "two crops" else 1) for name in law.variants]
        assert law.seeds == {"collapse": 3, "loss": 10}.get(law.name, 5)
        largest = {"top-1, %": 100, "/ ln K": 1, "of the object": float("inf")}  # by the end of the quantity
        assert [law.largest] == [largest[end] for end in largest if law.quantity.endswith(end)]
    recipe = LAWS["teacher"].recipes(8)["momentum"]
    plan, backbone, head, crops = Plan.of(recipe, 3200), recipe.backbone, recipe.method.head, recipe.crops
    assert (recipe.batch_size, backbone.depth, backbone.width, backbone.patch_size) == (32, 2, 96, 4)
    assert (crops.global_crops, crops.global_size, crops.local_crops, crops.local_size) == (2, 24, 0, 16)
    assert (backbone.image_size, backbone.heads, crops.global_scale) == (24, 3, (0.25, 1))
    assert (head.prototypes, head.hidden, head.bottleneck) == (256, 256, 64)
    np.testing.assert_allclose(plan.lr, 0.0005 * np.minimum(np.arange(800) / 39, 1))  # 0.004 for 256 images
    np.testing.assert_allclose(plan.method.teacher_momentum, 1 - 1 / 50)
    np.testing.assert_allclose(plan.method.teacher_temperature, 0.045)
    assert plan.method.frozen_steps == 0


def test_variants_of_multicrop_compute_as_many_tokens():
    """A teacher computes forward; a student forward and, for twice the cost, backward."""

    def tokens(recipe):
        large, small = ((side // 4) ** 2 for side in (recipe.crops.global_size, recipe.crops.local_size))
        return recipe.epochs * (2 * (1 + 3) * large + recipe.crops.local_crops * 3 * small)

    both = LAWS["multicrop"].recipes(8)
    assert both["multi-crop"].crops.local_crops > 0
    assert tokens(both["multi-crop"]) == tokens(both["two crops"])


SETTINGS = {
    "teacher": ("momentum", "previous epoch", "student copy"),
    "multicrop": ("2 × 224 + 6 × 96", "2 × 224"),
    "loss": ("", "MSE"),
}
"""Settings of the paper's rows, in the order of the variants."""


@pytest.mark.parametrize("name", SETTINGS)
def test_values_beside_a_law_are_those_of_the_tables_of_the_paper(name):
    table = {"teacher": "Figure 6", "multicrop": "8", "loss": "7"}[name]
    measures = ("k-NN top-1", "linear top-1, 100 epochs", "linear top-1, 300 epochs")
    rows = [row for row in published_rows() if row["table"] == table and row["measure"] in measures]
    for (variant, value), setting in zip(LAWS[name].paper.items(), SETTINGS[name], strict=True):
        assert variant in LAWS[name].variants
        assert value in [row["value"] for row in rows if row["setting"] == setting], variant


def test_study_pairs_seeds_and_averages_over_runs(monkeypatch, tmp_path):
    """Three variants of two runs; the run n has 50 + n % from 30 + n % in n seconds."""
    numbers = count()

    def train_nothing(run, recipe, seed, data):
        n = next(numbers)
        return Result(({"knn_teacher": 50.0 + n, "teacher_entropy": 1.0, "ln_k": 2.0},), 30.0 + n, float(n))

    monkeypatch.setattr(runs, "train_run", train_nothing)
    data = SimpleNamespace(accuracy=lambda network, size: size / 2)
    for epochs, is_short in ((8, False), (7, True)):
        numbers = count()
        found = train_study(LAWS["teacher"], data, tmp_path, 2, epochs)
        names = LAWS["teacher"].variants
        assert found.values == dict(zip(names, ([50, 51], [52, 53], [54, 55]), strict=True))
        assert found.seconds == dict(zip(names, (0.5, 2.5, 4.5), strict=True))
        assert found.baselines == {"pixels": 12, "untrained": 32.5}
        assert found.is_short == is_short
    assert train_study(LAWS["collapse"], data, tmp_path, 2, 8).baselines == {}


def test_run_that_diverged_is_read_from_its_log(tmp_path):
    run = Run(tmp_path)
    config = dict.fromkeys(("method", "recipe", "num_images", "seed", "precision"))
    run.rewrite(config | {"untrained_knn": 31.0})
    (tmp_path / "diverged.txt").touch()
    run.log.write_text("".join(f'{{"step": {n}, "images_per_second": {64 / 4**n}}}\n' for n in range(2)))
    found = train_run(run, laws.base_recipe(8), 0, None)
    assert (found.seconds, found.knn(), len(found.lines)) == (32 / 64 + 32 / 16, 31, 2)


def test_accuracy_of_a_study_has_twenty_neighbors(tmp_path, monkeypatch):
    votes = []
    monkeypatch.setattr(runs, "knn_accuracy", lambda *given, k: votes.append(k) or knn_accuracy(*given, k=k))
    images = open_images(noise(tmp_path, 30, 2, 20, 20))
    for count_ in (21, 10):
        data = StudyData(images.subset(range(count_)), images, torch.device("cpu"))
        assert 0 < data.accuracy(Pixels(), 16) < 100
    assert votes == [20, 10]


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


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("ghost", (), "Available: collapse, teacher, multicrop"),
        ("loss", ("--seeds", 0), "--seeds is 0, expected at least 1"),
        ("loss", ("--epochs", 0), "--epochs is 0, expected at least 1"),
    ],
)
def test_study_with_unknown_name_or_without_runs_is_refused(name, more, words, tmp_path, capsys):
    assert study(tmp_path / "study", *more, name=name) == 1
    assert words in capsys.readouterr().err
