"""The session as a library: silent, repeatable, and no heir to anybody's random numbers."""

import signal
from dataclasses import replace

import pytest
import torch
from PIL import Image

from dino_model.backbones import BackboneConfig
from dino_model.collections import open_images
from dino_model.errors import SettingError
from dino_model.head import HeadConfig
from training.crop_config import CropConfig
from training.methods.dino_config import DINOConfig
from training.recipe import OptimizerConfig, Recipe
from training.run import CheckpointOptions, Run
from training.session import Session, check_batch
from training.train import Callbacks

RECIPE = Recipe(
    backbone=BackboneConfig("vit_tiny", 8, 16, width=12, depth=1, heads=2, drop_path=0.2),
    method=DINOConfig(HeadConfig(8, hidden=8, bottleneck=4), freeze_last_layer_epochs=0),
    crops=CropConfig(global_size=16, local_size=8, local_crops=1),
    optimizer=OptimizerConfig(warmup_epochs=0),
    epochs=2,
    batch_size=2,
)


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i in range(5):
        Image.new("RGB", (20, 20), (50 * i, 100, 200 - 40 * i)).save(folder / f"{i}.png")
    return open_images(folder)


def test_session_prints_nothing_and_handles_no_signals(images, tmp_path, capfd):
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    seen = []

    def look(*_):
        seen.append([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)])
        return {}

    watch = Callbacks(observe=look, interrupted=lambda: len(seen) > 1)
    done = Session(RECIPE, images).train(Run(tmp_path / "run"), callbacks=watch)
    assert done == 2
    assert seen == [handlers, handlers]
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_session_keeps_the_global_random_state(images, tmp_path):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    Session(RECIPE, images).train(Run(tmp_path / "run"))
    assert torch.equal(torch.rand(3), expected)


def test_check_batch_splits_the_share_of_each_process(monkeypatch):
    monkeypatch.setattr("training.session.world", lambda: 2)
    recipe = replace(RECIPE, batch_size=24)
    check_batch(recipe, 12, 0)
    for parts in (8, 24):  # divisors of the batch of both
        with pytest.raises(SettingError, match=f"--accumulate is {parts}, expected a divisor of 12"):
            check_batch(recipe, parts, 0)


STAGES = replace(
    RECIPE,
    crops=CropConfig(global_size=32, local_size=16, local_crops=1, curriculum=("16:0.5", "32:0.5")),
    epochs=3,
)


def test_batches_follow_the_curriculum_from_any_step(images):
    session = Session(STAGES, images)
    whole = list(session.batches())
    assert [loaded.crops.views.shape[-1] for loaded in whole] == [16] * 3 + [32] * 3
    assert [loaded.crops.locals.shape[-1] for loaded in whole] == [8] * 3 + [16] * 3
    assert [loaded.randomness.step for loaded in whole] == list(range(6))
    for first in (1, 3, 4):
        for ours, theirs in zip(session.batches(first), whole[first:], strict=True):
            assert torch.equal(ours.crops.views, theirs.crops.views)


def test_curriculum_stage_without_a_step_is_refused(images):
    crops = replace(STAGES.crops, curriculum=("16:0.05", "32:0.95"))
    with pytest.raises(SettingError, match=r"stage 16:0\.05 of --curriculum has no step out of 6"):
        Session(replace(STAGES, crops=crops), images)


@pytest.mark.parametrize(
    ("every", "minutes", "done", "seconds", "expected"),
    [(5, 0.0, 10, 1e6, True), (5, 0.0, 11, 1e6, False), (0, 2.0, 7, 119.0, False), (0, 2.0, 7, 121.0, True)],
)
def test_checkpoint_is_due_by_steps_or_minutes(every, minutes, done, seconds, expected):
    assert CheckpointOptions(minutes, every).is_due(done, seconds) is expected
