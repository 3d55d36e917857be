"""The session as a library."""

import signal
from dataclasses import replace
from itertools import count, pairwise

import pytest
import torch

from dino_model import data
from dino_model.data.collection import open_images
from dino_model.runtime.errors import SettingError
from tests.training.runs import METHODS, RECIPE
from training.augmentation.crop_config import CropConfig
from training.prepare import check_batch, num_classes
from training.run.checkpoint import CheckpointWriter
from training.run.folder import Run, SaveSchedule
from training.session import OutOfMemory, Session
from training.train import Callbacks

SMALL = replace(RECIPE, batch_size=3, epochs=2)  # 6 steps on 10 images
STAGES = CropConfig(global_size=32, local_size=16, local_crops=1, curriculum=("16:0.5", "32:0.5"))


@pytest.fixture
def collection(images):
    return open_images(images)


def test_session_prints_nothing_and_keeps_signals_and_the_random_state(collection, tmp_path, capfd):
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers, seen = [signal.getsignal(number) for number in numbers], []

    def observe(*_):
        seen.append([signal.getsignal(number) for number in numbers])

    callbacks = Callbacks(observe=observe, interrupted=lambda: len(seen) > 1)
    torch.manual_seed(1)
    assert Session(SMALL, collection).train(Run(tmp_path / "run"), callbacks=callbacks) == 2
    found = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(found, torch.rand(3))
    assert seen == [handlers, handlers]
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_check_batch_splits_the_share_of_each_process(monkeypatch):
    monkeypatch.setattr("training.prepare.world", lambda: 2)
    recipe = replace(SMALL, batch_size=24)
    check_batch(recipe, 12, 0)
    for parts in (0, 8, 24):  # 8 and 24 are divisors of the batch of both
        with pytest.raises(SettingError, match=f"--accumulate is {parts}, expected a divisor of 12"):
            check_batch(recipe, parts, 0)
    normed = replace(recipe, method=METHODS["byol"], batch_size=2)
    check_batch(normed, 1, 0)
    with pytest.raises(SettingError, match="--batch-size is 3, no multiple of the 2 processes"):
        check_batch(replace(recipe, batch_size=3), 1, 0)


def test_classes_are_counted_where_images_have_labels(images, collection):
    assert [num_classes(one) for one in (collection, open_images(images / "class0"))] == [2, 0]


def test_checkpoints_by_time_are_as_far_apart_as_the_time_between_them(collection, tmp_path, monkeypatch):
    saved, clock = [], count()
    monkeypatch.setattr(CheckpointWriter, "save", lambda _, step, *__, **___: saved.append(step))
    monkeypatch.setattr("training.session.time.perf_counter", lambda: float(next(clock)))
    callbacks = Callbacks(checkpoints=SaveSchedule(save_minutes=0.2))  # 12 readings of the clock
    Session(replace(SMALL, batch_size=1, epochs=2), collection).train(Run(tmp_path / "run"), 0, callbacks)
    by_time = [step for step in saved if 0 < step < 20]
    assert len(by_time) >= 3
    assert min(later - earlier for earlier, later in pairwise(by_time)) >= 2


def test_milestones_are_steps_that_their_distance_divides_and_both_ends(collection, tmp_path):
    session, run = Session(replace(SMALL, batch_size=2, epochs=1), collection), Run(tmp_path / "run")
    assert session.train(run, 0, Callbacks(SaveSchedule(save_minutes=0, milestone_every=2, keep=0))) == 5
    kept = sorted(path.stem for path in run.folder.glob("step-*.pt"))
    assert kept == [f"step-{step:08}" for step in (0, 2, 4, 5)]


@pytest.mark.parametrize("first", [0, 1, 4])
def test_batches_follow_the_curriculum_from_any_step(collection, first):
    session = Session(replace(SMALL, crops=STAGES), collection)
    found = list(session.batches(first))
    sizes = [(batch.crops.views.shape[-1], batch.crops.locals.shape[-1]) for batch in found]
    assert sizes == ([(16, 8)] * 3 + [(32, 16)] * 3)[first:]
    assert [batch.randomness.step for batch in found] == list(range(first, 6))
    assert [session.plan.at(step)["global_size"] for step in range(6)] == [16] * 3 + [32] * 3  # logged


def test_throughput_excludes_callbacks_and_checkpoints(collection, tmp_path, monkeypatch):
    """A batch comes in 1 s, a step takes 3 s; observing and saving take 100 s."""
    clock, seen = [0.0], []

    def spend(seconds, value=None):
        clock[0] += seconds
        return value

    def observe(step, metrics, broken):
        seen.append((metrics["images_per_second"], metrics["data_wait"]))
        spend(100)

    session = Session(SMALL, collection)
    after_step, batches = session.method.after_step, session.batches
    monkeypatch.setattr("training.session.time.perf_counter", lambda: clock[0])
    monkeypatch.setattr("training.session.CheckpointWriter.save", lambda *_, **__: spend(100))
    monkeypatch.setattr(session.method, "after_step", lambda *a: spend(3, after_step(*a)))
    monkeypatch.setattr(session, "batches", lambda first: (spend(1, batch) for batch in batches(first)))
    session.train(Run(tmp_path / "run"), callbacks=Callbacks(observe=observe))
    assert seen == [(3 / 4, 1 / 4)] * 6


@pytest.mark.parametrize(("parts", "advice"), [(1, "--accumulate 3"), (3, "a lower --local-crops")])
def test_session_out_of_memory_names_the_next_number_of_parts(
    collection, tmp_path, monkeypatch, parts, advice
):
    def fail(*_):
        raise torch.OutOfMemoryError

    session = Session(SMALL, collection, accumulate=parts)  # batches of three
    monkeypatch.setattr(session, "_train", fail)
    with pytest.raises(OutOfMemory, match=advice):
        session.train(Run(tmp_path / "run"))


@pytest.mark.parametrize("first", [True, False])
def test_session_reads_sizes_of_files_once_and_on_the_first_rank(collection, tmp_path, monkeypatch, first):
    read, honest = [], data.collection._status
    monkeypatch.setattr(data.collection, "_status", lambda path: (read.append(path), honest(path))[1])
    if not first:
        monkeypatch.setattr("training.session.on_first", lambda action, limit: "that of the first rank")
    run, session = Run(tmp_path / "run"), Session(SMALL, collection)
    assert (session.seed, session.workers, session.accumulate) == (0, 0, 1)
    session.train(run, callbacks=Callbacks(interrupted=lambda: True))
    assert session.resume(run) == 1
    assert len(read) == len(collection) * first
