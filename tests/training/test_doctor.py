"""Ten ill runs, each ill in its own way, and five that are well: trained in seconds, or their log changed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dino_model.backbones import BackboneConfig
from dino_model.head import HeadConfig
from dino_model.images import open_images
from training import __main__ as command
from training.checkpoint import Run
from training.crops import CropConfig
from training.evaluation.rank import rank_me
from training.methods.byol import BYOLConfig
from training.methods.dino import DINOConfig
from training.methods.moco import MoCoConfig
from training.methods.swav import SwAVConfig
from training.recipes import OptimizerConfig, Recipe
from training.session import Session

HEAD = HeadConfig(prototypes=32, hidden=32, bottleneck=16, batch_norm=True)
DINO = DINOConfig(HEAD, teacher_momentum=0.9, freeze_last_layer_epochs=0)
PLAIN = HeadConfig(prototypes=16, layers=2, hidden=32, bottleneck=None, batch_norm=True, activation="relu")
BYOL = BYOLConfig(PLAIN, predictor=32, teacher_momentum=0.9)
MOCO = MoCoConfig(PLAIN, queue=16, teacher_momentum=0.9)
SWAV = SwAVConfig(replace(PLAIN, prototypes=8, bottleneck=16), epsilon=0.03, freeze_last_layer_epochs=0)


def recipe(method, epochs=4, batch=8, lr=0.03) -> Recipe:
    return Recipe(
        backbone=BackboneConfig("vit_tiny", 8, 16, width=24, depth=1, heads=2, position_start="sincos"),
        method=method,
        crops=CropConfig(global_size=16, local_size=8, local_crops=2, blur=(0.1, 0.5), augment="device"),
        optimizer=OptimizerConfig(lr=lr, warmup_epochs=0),
        epochs=epochs,
        batch_size=batch,
    )


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Sixty-four pictures of two colours each, in four classes by their first."""
    folder = tmp_path_factory.mktemp("pictures")
    generator = np.random.default_rng(0)
    for i in range(64):
        picture = np.empty((24, 24, 3), np.uint8)
        picture[:] = [(230, 40, 40), (40, 230, 40), (40, 40, 230), (220, 220, 40)][i % 4]
        left, top = generator.integers(0, 16, 2)
        picture[top : top + 8, left : left + 8] = generator.integers(0, 256, 3)
        target = folder / f"class{i % 4}" / f"{i}.png"
        target.parent.mkdir(exist_ok=True)
        Image.fromarray(picture).save(target)
    return folder


def trained(folder: Path, pictures: Path, plan: Recipe) -> Path:
    """A run of this recipe; what the clock says is put right, so that a busy machine accuses nobody."""
    run = Run(folder)
    Session(plan, open_images(pictures)).train(run)
    edit(folder, lambda lines: [line | {"data_wait": 0.1} for line in lines])
    return folder


def edit(folder: Path, change) -> None:
    log = Run(folder).log
    lines = change([json.loads(line) for line in log.read_text().splitlines()])
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))


def doctor(folder: Path) -> tuple[int, list[str], list[str]]:
    """Exit code, causes and sentences."""
    out = folder / "found.json"
    code = command.main(["doctor", str(folder), "--json", str(out)])
    found = json.loads(out.read_text())["findings"]
    assert (folder / "doctor.png").read_bytes()[:4] == b"\x89PNG"
    return code, [one["cause"] for one in found], [one["sentence"] for one in found]


def constant(lines):
    """Two views of every picture are projected to one point: what remains of such a run is its log."""
    return [line | {"spread": 0.01} for line in lines]


ILL_BY_TRAINING = {
    "one prototype": (
        recipe(
            replace(DINO, teacher_output="none", teacher_temperature=0.01, teacher_temperature_start=0.01),
            epochs=12,
            lr=0.1,
        ),
        "collapse",
        "collapse to one prototype",
    ),
    "uniform": (
        recipe(replace(DINO, sharpen=False), epochs=20, lr=0.1),
        "collapse",
        "collapse to the uniform output",
    ),
    "short epochs": (
        recipe(replace(DINO, teacher_momentum=0.5), epochs=20, batch=32),
        "epochs",
        "lower --batch-size",
    ),
    "slow teacher": (recipe(replace(DINO, teacher_momentum=0.999)), "momentum", "averages over 1,000 steps"),
}


@pytest.mark.parametrize("name", ILL_BY_TRAINING)
def test_an_ill_run_is_named_by_what_it_logged(name, pictures, tmp_path, capsys):
    plan, cause, words = ILL_BY_TRAINING[name]
    code, causes, sentences = doctor(trained(tmp_path / "run", pictures, plan))
    assert code == 3
    assert causes == [cause]
    assert words in sentences[0]
    assert sentences[0] in capsys.readouterr().out


@pytest.fixture(scope="module")
def healthy(pictures, tmp_path_factory):
    """Runs of four methods that are well, by name."""
    folder = tmp_path_factory.mktemp("runs")
    plans = {
        "dino": recipe(DINO),
        "byol": recipe(BYOL, lr=0.01),
        "moco": recipe(MOCO, lr=0.01),
        "swav": recipe(SWAV, lr=0.01),
        "dino-previous-epoch": recipe(replace(DINO, teacher="previous-epoch")),
    }
    return {name: trained(folder / name, pictures, plan) for name, plan in plans.items()}


@pytest.mark.parametrize("name", ["dino", "byol", "moco", "swav", "dino-previous-epoch"])
def test_a_healthy_run_is_not_accused(name, healthy, capsys):
    assert doctor(healthy[name]) == (0, [], [])
    assert "nothing found that is wrong" in capsys.readouterr().out


def shrinking(lines):
    return [line | {"rank_teacher": 1.5 if line["step"] > 10 else 12.0} for line in lines]


def exploding(lines):
    return [line | {"gradient_norm_head": 0.5 if line["step"] < 25 else 900.0} for line in lines]


def starving(lines):
    return [line | {"data_wait": 0.8} for line in lines]


ILL_BY_LOG = {
    "byol": ("byol", constant, "collapse", "keep --predictor"),
    "moco": ("moco", constant, "collapse", "lower --lr"),
    "swav": ("swav", lambda lines: [line | {"kl": 0.001} for line in lines], "collapse", "lower --epsilon"),
    "rank": ("dino", shrinking, "rank", "fill 1.5 dimensions (RankMe), at most 12.0 before"),
    "gradients": ("dino", exploding, "gradients", "the head's gradient has norm 900"),
    "data": ("dino", starving, "data", "80% of a step goes by waiting"),
}


@pytest.mark.parametrize("name", ILL_BY_LOG)
def test_a_log_of_an_ill_run_is_named_rightly(name, healthy, tmp_path):
    run, change, cause, words = ILL_BY_LOG[name]
    folder = tmp_path / "run"
    folder.mkdir()
    for file in ("config.json", "log.jsonl"):
        (folder / file).write_bytes((healthy[run] / file).read_bytes())
    edit(folder, change)
    code, causes, sentences = doctor(folder)
    assert (code, causes) == (3, [cause])
    assert words in sentences[0]


def copy(healthy, folder: Path) -> Run:
    folder.mkdir()
    for file in ("config.json", "log.jsonl"):
        (folder / file).write_bytes((healthy["dino"] / file).read_bytes())
    return Run(folder)


def test_a_run_without_a_log_is_told_in_a_sentence(healthy, tmp_path, capsys):
    copy(healthy, tmp_path / "run").log.unlink()
    assert command.main(["doctor", str(tmp_path / "run")]) == 1
    assert "has no log.jsonl" in capsys.readouterr().err


def test_no_run_is_told_in_a_sentence(tmp_path, capsys):
    assert command.main(["doctor", str(tmp_path)]) == 1
    assert "holds no run" in capsys.readouterr().err


def test_half_a_last_line_is_left_out_and_a_broken_one_within_is_told(healthy, tmp_path, capsys):
    run = copy(healthy, tmp_path / "run")
    whole = run.log.read_text()
    run.log.write_text(whole + '{"step": 32, "lo')
    assert doctor(run.folder)[0] == 0
    run.log.write_text('{"step": 0, "lo\n' + whole)
    assert command.main(["doctor", str(run.folder)]) == 1
    assert "line 1 of 33 is no step of a run" in capsys.readouterr().err


def test_an_empty_log_is_told_in_a_sentence(healthy, tmp_path, capsys):
    copy(healthy, tmp_path / "run").log.write_text("")
    assert command.main(["doctor", str(tmp_path / "run")]) == 1
    assert "no whole line yet" in capsys.readouterr().err


def test_a_running_run_is_judged_as_far_as_it_is(healthy, tmp_path, capsys):
    run = copy(healthy, tmp_path / "run")
    edit(run.folder, lambda lines: lines[:20])
    assert doctor(run.folder)[0] == 0
    assert "20 of 32 steps, not at its end" in capsys.readouterr().out


def test_a_run_of_the_first_format_is_read(tmp_path):
    old = Path(__file__).parent / "data" / "format_1"
    page = tmp_path / "page.png"
    assert command.main(["doctor", str(old), "--output", str(page)]) in (0, 3)
    assert page.exists()


def test_rank_of_a_line_is_one_and_of_an_orthogonal_cloud_its_width():
    assert rank_me(torch.arange(1.0, 6)[:, None] * torch.ones(1, 4)) == pytest.approx(1, abs=1e-3)
    assert rank_me(torch.eye(8).repeat(3, 1)) == pytest.approx(8, rel=1e-3)
