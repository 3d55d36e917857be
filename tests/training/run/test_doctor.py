"""Runs that are ill, each in its own way, and healthy ones: all trained in seconds."""

import json
import math
import re
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dino_model.data.collection import open_images
from dino_model.models.backbones import BackboneConfig
from tests.training.runs import few_photographs
from training import __main__ as command
from training.augmentation.crop_config import CropConfig
from training.methods.byol_config import BYOLConfig
from training.methods.dino_ablations_config import AblationsConfig
from training.methods.head import HeadConfig
from training.methods.moco_config import MoCoConfig
from training.methods.supervised_config import SupervisedConfig
from training.methods.swav_config import SwAVConfig
from training.recipes.recipe import OptimizerConfig, Recipe
from training.run import doctor as module
from training.run.folder import Run
from training.run.logging import Diverged
from training.run.monitor import Probe
from training.session import Session
from training.train import Callbacks

HEAD = HeadConfig(prototypes=32, hidden=32, bottleneck=16, batch_norm=True)
DINO = AblationsConfig(HEAD, teacher_momentum=0.9, freeze_last_layer_epochs=0)
PLAIN = HeadConfig(prototypes=16, layers=2, hidden=32, bottleneck=None, batch_norm=True, activation="relu")
BYOL = BYOLConfig(PLAIN, predictor=32, teacher_momentum=0.9)
MOCO = MoCoConfig(PLAIN, queue=16, teacher_momentum=0.9)
SWAV = SwAVConfig(replace(PLAIN, prototypes=8, bottleneck=16), epsilon=0.03, freeze_last_layer_epochs=0)
ONE_PROTOTYPE = replace(DINO, teacher_output="none", teacher_temperature=0.01, teacher_temperature_start=0.01)
UNIFORM = replace(DINO, sharpen=False)
NEITHER = replace(UNIFORM, teacher_output="none")
COLLAPSING_BYOL = replace(BYOL, predictor=0, teacher_momentum=0.0)
COLLAPSING_MOCO = replace(MOCO, head=replace(PLAIN, batch_norm=False))


def recipe(method, epochs=4, batch=8, lr=0.03, **optimizer) -> Recipe:
    return Recipe(
        backbone=BackboneConfig("vit_tiny", 8, 16, width=24, depth=1, heads=2, position_start="sincos"),
        method=method,
        crops=CropConfig(global_size=16, local_size=8, local_crops=2, blur=(0.1, 0.5), augment="batch"),
        optimizer=OptimizerConfig(**{"lr": lr, "warmup_epochs": 0} | optimizer),
        epochs=epochs,
        batch_size=batch,
    )


DECAYED = recipe(SupervisedConfig(), 8, lr=0.3, weight_decay=5.0, weight_decay_end=5.0)
EXPLODING = recipe(SupervisedConfig(), 8, lr=60.0, name="sgd", clip_grad=0.0, warmup_epochs=7)
ILL = {
    "one prototype": (recipe(ONE_PROTOTYPE, 12, lr=0.1), "collapse", "collapse to one prototype"),
    "uniform": (recipe(UNIFORM, 20, lr=0.1), "collapse", "collapse to the uniform output"),
    "neither": (recipe(NEITHER, 20, lr=0.1), "collapse", "keep --teacher-output centering"),
    "byol": (recipe(COLLAPSING_BYOL, lr=0.1), "collapse", "--predictor"),
    "moco": (recipe(COLLAPSING_MOCO, lr=1.0), "collapse", "lower --lr"),
    "swav": (recipe(replace(SWAV, epsilon=1.0), 8), "collapse", "lower --epsilon"),
    "rank": (DECAYED, "rank", "--weight-decay-end"),
    "gradients": (EXPLODING, "gradients", "exploding norms: the backbone's gradient"),
    "data": (recipe(DINO), "data", "90% of a step is spent waiting for images"),
    "epochs": (recipe(replace(DINO, teacher_momentum=0.5), 20, batch=32), "epochs", "lower --batch-size"),
    "slow teacher": (recipe(replace(DINO, teacher_momentum=0.999)), "momentum", "averages over 1,000 steps"),
    "copied teacher": (recipe(replace(DINO, teacher="student-copy")), "copy", "use --teacher momentum"),
}
"""Recipe, and cause and words of its finding."""
TRAINED_LONG = ("one prototype", "uniform", "neither", "swav", "rank", "epochs")
HEALTHY = {
    "dino": recipe(DINO),
    "previous epoch": recipe(replace(DINO, teacher="previous-epoch")),
    "healthy byol": recipe(BYOL, lr=0.01),
    "healthy moco": recipe(MOCO, lr=0.01),
    "healthy swav": recipe(SWAV, lr=0.01),
}
RECIPES = HEALTHY | {name: row[0] for name, row in ILL.items()}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The run of a name, trained when it is first used on 64 images of a square, classed by background."""
    folder = tmp_path_factory.mktemp("runs")
    generator = np.random.default_rng(0)
    for i in range(64):
        pixels = np.empty((24, 24, 3), np.uint8)
        pixels[:] = [(230, 40, 40), (40, 230, 40), (40, 40, 230), (220, 220, 40)][i % 4]
        left, top = generator.integers(0, 16, 2)
        pixels[top : top + 8, left : left + 8] = generator.integers(0, 256, 3)
        target = folder / "images" / f"class{i % 4}" / f"{i}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(target)

    @cache
    def train(name: str) -> Run:
        """Train until the loss is not finite; "rank" is probed every eighth step."""
        run, session = Run(folder / name), Session(RECIPES[name], open_images(folder / "images"))
        probe = Probe(session.images, session.recipe, "fp32", session.device)

        def rank(step):
            probed = name == "rank" and step % 8 == 7
            return {"rank_student": probe.evaluate(session.method.student.backbone)["rank"]} if probed else {}

        with suppress(Diverged), few_photographs():
            session.train(run, callbacks=Callbacks(eval_hook=rank))
        waiting = 0.9 if name == "data" else 0.1  # the measured share depends on the machine's load
        write(run, [line | {"data_wait": waiting} for line in run.lines()])
        return run

    return train


def write(run: Run, lines: list[dict]) -> None:
    run.log.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_title_of_a_page_may_be_a_name_that_is_not_utf8(tmp_path: Path):
    from training.run import figures  # imports matplotlib

    figures.save(figures.create_page(1, 1, "r\udce9n", width=3, height=3)[0], tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size


def doctor(folder: Path) -> tuple[int, list[str], list[str]]:
    """Exit code, causes and sentences."""
    out = folder / "found.json"
    code = command.main(["doctor", str(folder), "--json", str(out)])
    found = json.loads(out.read_text())["findings"]
    assert (folder / "doctor.png").read_bytes()[:4] == b"\x89PNG"
    return code, [finding["cause"] for finding in found], [finding["sentence"] for finding in found]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in TRAINED_LONG)) for name in ILL]
)
def test_doctor_names_the_problem_of_a_run(name, run, capsys):
    _, cause, words = ILL[name]
    code, causes, sentences = doctor(run(name).folder)
    assert (code, causes) == (3, [cause])
    assert words in sentences[0]
    assert sentences[0] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("method", "momentum"),
    [
        (AblationsConfig(teacher_momentum=0.99), 0.99),
        (AblationsConfig(teacher="previous-epoch"), None),
        (BYOLConfig(teacher_momentum=0.98), 0.98),  # without a choice of teachers
        (SwAVConfig(), None),
    ],
)
def test_momentum_is_that_of_a_teacher_which_is_a_moving_average(method, momentum):
    config = {"method": method.name, "recipe": asdict(Recipe(method=method)), "num_images": 5200}
    found = module.run_settings(config)
    assert (found.teacher_momentum, found.steps_per_epoch, found.steps) == (momentum, 10, 1000)


@pytest.mark.parametrize("name", HEALTHY)
def test_findings_of_a_healthy_run_are_empty_at_every_step(name, run):
    lines, settings = run(name).lines(), module.run_settings(run(name).config())
    assert not any(module.findings(lines[:n], settings) for n in range(1, len(lines) + 1))
    assert doctor(run(name).folder) == (0, [], [])


@pytest.mark.parametrize("steps", [8, 29, 30, 40, 150, 1000])
def test_slow_teacher_at_any_length_advises_no_momentum_below_090(steps):
    settings = module.RunSettings(steps, steps_per_epoch=8, batch_size=8, teacher_momentum=0.9999)
    sentence = module.slow_teacher(settings)
    if advised := re.search(r"--teacher-momentum to ([\d.]+)", sentence):
        momentum = float(advised[1])
        assert momentum >= 0.9
        assert module.slow_teacher(replace(settings, teacher_momentum=momentum)) is None
    else:
        assert steps < 30
        assert "train for 30 steps or more" in sentence


def test_extrapolate_continues_falling_metrics_only():
    assert module.extrapolate([0.8, 0.4, 0.2, 0.1]) == pytest.approx(0.1 / 16)
    assert module.extrapolate([0.8, 0.4, 0.3, 0.29]) == pytest.approx(0.29 * (0.29 / 0.3) ** 4)
    assert module.extrapolate([0.8, 0.4, 0.2, 0.3]) == 0.3
    assert module.extrapolate([0.2, 0.1, 0.0, -0.1]) == pytest.approx(0.05)


def test_lost_rank_compares_the_last_probe_with_the_highest():
    assert module.lost_rank([{"rank_student": 12.0}, {}, {"rank_student": 3.9}])
    assert module.lost_rank([{"rank_student": 12.0}, {}, {"rank_student": 4.1}]) is None


SETTINGS = module.RunSettings(steps=300, steps_per_epoch=5, batch_size=8, teacher_momentum=0.9)
LN = math.log(256)
LEARNING = {"teacher_entropy": 2.0, "kl": 1.0, "ln_k": LN, "prototypes": 20.0}


def many(first, last):
    """Values of the two halves of 40 steps."""
    return lambda step: first if step < 20 else last


@pytest.mark.parametrize(
    ("metrics", "changes", "bad", "good", "cause"),
    [
        ({"code_entropy": 1.0, "ln_k": LN}, "kl", 0.0099, 0.0101, "collapse"),
        ({}, "spread", 0.0499, 0.0501, "collapse"),
        (LEARNING, "kl", 0.0099, 0.0101, "collapse"),
        (LEARNING | {"teacher_entropy": 0.3}, "prototypes", 1.99, 2.01, "collapse"),
        (LEARNING | {"teacher_entropy": 0.3, "ln_k": math.log(12)}, "prototypes", 1.49, 1.51, "collapse"),
        (LEARNING, "teacher_entropy", math.log(20) - 0.049, math.log(20) - 0.051, "collapse"),
        (LEARNING | {"teacher_entropy": 0.991 * LN, "prototypes": 1e9}, "kl", 0.049, 0.051, "collapse"),
        (LEARNING | {"kl": 0.049, "prototypes": 1e9}, "teacher_entropy", 0.991 * LN, 0.989 * LN, "collapse"),
        ({}, "rank_student", 2.99, 3.01, "rank"),
        ({}, "data_wait", 0.51, 0.49, "data"),
        ({}, "gradient_norm_head", many(0.5, 20.1), many(0.5, 19.9), "gradients"),
        ({}, "gradient_norm_backbone", many(2.0, 40.1), many(2.0, 39.9), "gradients"),
        ({}, "steps_per_epoch", 4, 5, "epochs"),
        ({}, "teacher_momentum", 0.9901, 0.9899, "momentum"),
        ({}, "teacher_momentum", 0.0, 0.01, "copy"),
    ],
)
def test_findings_begin_at_their_bounds(metrics, changes, bad, good, cause):
    for value, expected in ((bad, [cause]), (good, [])):
        settings, logs = SETTINGS, metrics
        if hasattr(SETTINGS, changes):
            settings = replace(SETTINGS, **{changes: value})
        else:
            logs = metrics | {changes: value}
        lines = [{name: v(step) if callable(v) else v for name, v in logs.items()} for step in range(40)]
        assert list(module.findings(lines, settings)) == expected


def test_findings_of_speed_gradients_and_trends_need_20_steps():
    bad = [{"data_wait": 0.1 if step == 0 else 0.9} for step in range(20)]  # workers start in the first step
    assert [list(module.findings(bad[:count], SETTINGS)) for count in (19, 20)] == [[], ["data"]]
    rising = [{"gradient_norm_head": value} for value in [0.5] * 5 + [2.0] * 13 + [60.0] * 2]
    assert module.exploding_gradients(rising[1:]) is None
    assert "norm 60, 1.25 in the first half" in module.exploding_gradients(rising)
    falling = [{"spread": 0.9 * 0.95**step} for step in range(40)]
    assert module.collapse(falling[:39], "") is None
    assert "if the next 20 steps go like the last 20: collapse" in module.collapse(falling, "")


@pytest.mark.parametrize(("steps", "averaged"), [(5, 1), (200, 20), (1000, 50)])
def test_present_state_is_the_mean_of_a_tenth_of_the_steps_and_of_50_at_most(steps, averaged):
    lines = [{"kl": step**2} for step in range(steps)]
    assert module.late(lines, "kl") == pytest.approx(np.mean([line["kl"] for line in lines[-averaged:]]))


@pytest.mark.slow
def test_doctor_reads_incomplete_and_refuses_damaged_logs(run, tmp_path, capsys):
    copy = Run(tmp_path)
    copy.rewrite(run("dino").config())
    whole = run("dino").log.read_text()
    copy.log.write_text(whole + '{"step": 32, "lo')
    assert doctor(tmp_path)[0] == 0
    assert "too short to judge" in capsys.readouterr().out
    for steps, words in ((299, "- too short to judge"), (300, "- no problem found")):
        write(copy, [run("dino").lines()[0] | {"step": step} for step in range(steps)])
        assert doctor(tmp_path)[0] == 0
        title, sentence, _ = capsys.readouterr().out.splitlines()
        assert title == f"{tmp_path.name}: dino, {steps} of 32 steps"
        assert sentence.startswith(words)
    write(copy, [{"step": step, "loss": 1.0} for step in range(300)])
    assert doctor(tmp_path)[0] == 0
    assert "a collapse would not be seen, because dino logs no `spread`" in capsys.readouterr().out
    copy.log.write_text('{"step": 0, "lo\n' + whole)
    assert command.main(["doctor", str(tmp_path)]) == 1
    assert "line 1 of 33 is no step of a run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entropy", "kl", "number", "used", "words"),
    [
        (0.1506, 0.1720, 256, 1.494, "one prototype"),  # no centering, step 124
        (0.3900, 0.2000, 1024, 1.500, "one prototype"),  # a short run with K = 1,024
        (5.5129, 0.0180, 256, 255.8, "uniform output"),  # no sharpening, step 247
        (5.2348, 0.0169, 256, 194.3, "one output for all images"),  # neither, step 124
        (1.5928, 1.1613, 256, 24.8, None),  # both, step 62
        (3.2395, 1.0528, 256, 102.5, None),  # both, step 247
    ],
)
def test_diagnose_of_the_runs_of_lesson_4_names_the_collapse(entropy, kl, number, used, words):
    logs = {"teacher_entropy": entropy, "kl": kl, "ln_k": math.log(number), "prototypes": used}
    found = module.diagnose(logs)
    assert found is None if words is None else words in found
