import errno
import json
import threading

import pytest
import torch
from torch import nn

from training.checkpoint import (
    CheckpointWriter,
    load_checkpoint,
    read_state,
    training_state,
    write_checkpoint,
)
from training.run import Run, RunError


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "run")


def learner(value=0.0):
    model = nn.Linear(2, 2)
    nn.init.constant_(model.weight, value)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).square().sum().backward()  # other weights, other moments
    optimizer.step()
    return model, optimizer


def test_load_checkpoint_restores_method_and_optimizer(run):
    model, optimizer = learner()
    run.create({"backbone": {}})
    write_checkpoint(run, training_state(7, model, optimizer))
    other, other_optimizer = learner(5.0)
    assert load_checkpoint(run, other, other_optimizer) == 7
    torch.testing.assert_close(other.state_dict(), model.state_dict())
    assert str(other_optimizer.state_dict()) == str(optimizer.state_dict())


def test_write_checkpoint_killed_keeps_the_former_state(run, monkeypatch):
    model, optimizer = learner()
    run.create({})
    write_checkpoint(run, training_state(1, model, optimizer))

    def die(state, file):
        file.write(b"half a che")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", die)
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(run, training_state(2, model, optimizer))
    assert load_checkpoint(run, *learner()) == 1


def test_log_lines_after_the_checkpoint_are_dropped(run):
    run.create({})
    write_checkpoint(run, training_state(3, *learner()))
    lines = [json.dumps({"step": step}) for step in range(5)]
    run.log.write_text("\n".join(lines) + '\n{"step": 5, "lo')
    run.tidy(load_checkpoint(run, *learner()))
    assert [json.loads(line)["step"] for line in run.log.read_text().splitlines()] == [0, 1, 2]


def test_load_checkpoint_of_other_shapes_names_the_tensor(run):
    run.create({})
    write_checkpoint(run, training_state(0, *learner()))
    other = nn.Linear(3, 3)  # neither weight nor bias fits
    with pytest.raises(RunError, match="size mismatch for weight") as caught:
        load_checkpoint(run, other, torch.optim.AdamW(other.parameters()))
    assert str(caught.value).endswith("(1 more like it)")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("content", [b"", b"no checkpoint", None])
def test_load_checkpoint_of_another_file_raises(run, content):
    run.create({})
    if content is not None:
        run.checkpoint.write_bytes(content)
    with pytest.raises(RunError, match=r"checkpoint\.pt"):
        load_checkpoint(run, *learner())


def test_checkpoint_writer_saves_the_state_of_the_call(run, monkeypatch):
    model, optimizer = learner()
    run.create({})
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    may_write, honest = threading.Event(), write_checkpoint

    def slow(*arguments, **options):
        assert may_write.wait(20)
        honest(*arguments, **options)

    monkeypatch.setattr("training.checkpoint.write_checkpoint", slow)
    with CheckpointWriter(run) as saver:
        saver.save(3, model, optimizer)
        nn.init.constant_(model.weight, 7.0)  # training goes on
        may_write.set()
    torch.testing.assert_close(read_state(run.checkpoint)["method"], expected, rtol=0, atol=0)


def test_checkpoint_writer_raises_background_errors(run, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", "checkpoint.pt")

    run.create({})
    monkeypatch.setattr("training.checkpoint.write_checkpoint", full)
    saver = CheckpointWriter(run)
    saver.save(1, *learner())
    saver.thread.shutdown()
    with pytest.raises(OSError, match="No space"):
        saver.check()


def test_checkpoint_writer_keeps_the_newest_milestones(run):
    run.create({})
    with CheckpointWriter(run, keep=2) as saver:
        for step in (10, 20, 30):
            saver.save(step, *learner(), milestone=True)
    assert sorted(path.name for path in run.folder.glob("*.pt")) == [
        "checkpoint.pt",
        "step-00000020.pt",
        "step-00000030.pt",
    ]
