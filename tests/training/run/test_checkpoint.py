import json
import threading

import pytest
import torch
from torch import nn

from training.run.checkpoint import (
    CheckpointWriter,
    load_checkpoint,
    read_state,
    training_state,
    write_checkpoint,
)
from training.run.folder import Run, RunError, SaveSchedule
from training.run.log import read_log


@pytest.fixture
def run(tmp_path):
    run = Run(tmp_path / "run")
    run.create({}, ())
    return run


def learner(value=0.0):
    model = nn.Linear(2, 2)
    nn.init.constant_(model.weight, value)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).square().sum().backward()  # other weights, other moments
    optimizer.step()
    return model, optimizer


def test_load_checkpoint_after_a_killed_write_restores_the_former_state(run, monkeypatch):
    model, optimizer = learner()
    write_checkpoint(run, training_state(7, model, optimizer))

    def die(state, file):
        file.write_bytes(b"half a che")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", die)
    other, other_optimizer = learner(5.0)
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(run, training_state(8, other, other_optimizer))
    assert load_checkpoint(run, other, other_optimizer) == 7
    torch.testing.assert_close(other.state_dict(), model.state_dict())
    assert str(other_optimizer.state_dict()) == str(optimizer.state_dict())


def test_tidy_drops_log_lines_after_the_checkpoint(run):
    lines = [json.dumps({"step": step}) for step in range(5)]
    run.log.write_text("\n".join(lines) + '\n{"step": 5, "lo')
    run.tidy(3)
    assert [line["step"] for line in run.lines()] == [0, 1, 2]


def test_load_checkpoint_of_other_shapes_names_the_tensor(run):
    write_checkpoint(run, training_state(0, *learner()))
    other = nn.Linear(3, 3)  # neither weight nor bias fits
    with pytest.raises(RunError, match=r"size mismatch for weight.*\(1 more like it\)$"):
        load_checkpoint(run, other, torch.optim.AdamW(other.parameters()))


@pytest.mark.parametrize("content", [b"", b"no checkpoint", None])
def test_load_checkpoint_of_another_file_raises(run, content):
    if content is not None:
        run.checkpoint.write_bytes(content)
    with pytest.raises(RunError, match=r"checkpoint\.pt"):
        load_checkpoint(run, *learner())


def test_checkpoint_writer_saves_the_state_of_the_call(run, monkeypatch):
    model, optimizer = learner()
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    may_write = threading.Event()

    def slow(*arguments, **options):
        assert may_write.wait(20)
        write_checkpoint(*arguments, **options)

    monkeypatch.setattr("training.run.checkpoint.write_checkpoint", slow)
    with CheckpointWriter(run) as writer:
        writer.save(3, model, optimizer)
        nn.init.constant_(model.weight, 7.0)  # training goes on
        may_write.set()
    torch.testing.assert_close(read_state(run.checkpoint)["method"], expected, rtol=0, atol=0)


def test_checkpoint_writer_keeps_the_newest_milestones(run):
    with CheckpointWriter(run, keep=2) as writer:
        for step in (10, 20, 30):
            writer.save(step, *learner(), milestone=True)
    names = {path.name for path in run.folder.glob("*.pt")}
    assert names == {"checkpoint.pt", "step-00000020.pt", "step-00000030.pt"}


def test_checkpoint_is_due_by_steps_or_minutes():
    by_steps, by_minutes = SaveSchedule(0.0, save_every=5), SaveSchedule(2.0)
    assert [by_steps.is_due(done, 1e6) for done in (9, 10, 11)] == [False, True, False]
    assert [by_minutes.is_due(7, seconds) for seconds in (119.9, 120.0)] == [False, True]


def test_changed_images_are_counted_and_three_of_a_kind_are_named(run):
    run.write_images((f"{n}.png", 5) for n in range(6))
    found = run.describe_changed_images([("5.png", 5), *((f"{n}.jpg", 5) for n in range(3)), ("4.png", 6)])
    assert found == "3 added (0.jpg, 1.jpg, 2.jpg), 4 removed (0.png, 1.png, 2.png, …), 1 changed (4.png)"


def test_line_of_a_step_beyond_every_run_is_damaged(run):
    for step, damaged in ((10**12 - 1, []), (10**12, [1])):
        run.log.write_text(f'{{"step": {step}}}\n')
        assert read_log(run.log)[1] == damaged
