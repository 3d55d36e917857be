"""Packed runs: sizes, precision, and resuming from them."""

import json

import pytest
import torch

from tests.training.commands.test_pretrain import pretrain, stop_after, values, weights
from tests.training.pictures import noise
from tools.pack_run import main
from training.run import Run

pytestmark = pytest.mark.slow


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """Images, and a run of 6 steps that was stopped after 3."""
    images, run = noise(tmp_path / "images", 10, 2, 40, 48), tmp_path / "run"
    stop_after(monkeypatch, 2)
    assert pretrain(images, run) == 75
    monkeypatch.undo()
    return images, run


def unpacked(run, tmp_path, form):
    main(["pack", str(run), str(tmp_path / f"{form}.pt"), "--form", form])
    main(["unpack", str(tmp_path / f"{form}.pt"), str(tmp_path / form)])
    return tmp_path / form


def test_full_pack_resumes_bit_for_bit(stopped, tmp_path):
    images, run = stopped
    copy = unpacked(run, tmp_path, "full")
    for folder in (run, copy):
        assert pretrain(images, folder, "--resume") == 0
    torch.testing.assert_close(weights(copy), weights(run), rtol=0, atol=0)
    assert values(copy)[-3:] == values(run)[-3:]


@pytest.mark.parametrize("form", ["fp16", "small"])
def test_half_precision_pack_continues_at_the_same_step(stopped, tmp_path, form):
    images, run = stopped
    before = weights(run)
    copy = unpacked(run, tmp_path, form)
    for name, tensor in weights(copy).items():
        torch.testing.assert_close(tensor, before[name], rtol=1e-3, atol=1e-4)
    assert pretrain(images, copy, "--resume") == 0
    assert pretrain(images, run, "--resume") == 0
    assert values(copy)[-1]["step"] == 5
    assert values(copy)[-1]["lr"] == values(run)[-1]["lr"]
    assert values(copy)[-3]["loss"] == pytest.approx(values(run)[-3]["loss"], abs=0.01)


def test_packed_file_holds_no_path_and_grows_with_its_form(stopped, tmp_path):
    _, run = stopped
    sizes = {}
    for form in ("small", "fp16", "full"):
        main(["pack", str(run), str(tmp_path / f"{form}.pt"), "--form", form])
        packed = torch.load(tmp_path / f"{form}.pt", weights_only=True)
        assert str(tmp_path) not in json.dumps([packed["config"], packed["log"]])
        sizes[form] = sum(tensor.nbytes for tensor in packed["state"]["method"].values())
    assert sizes["small"] < 0.8 * sizes["fp16"] < 0.5 * sizes["full"]


def test_unpack_into_a_run_is_refused(stopped, tmp_path):
    _, run = stopped
    main(["pack", str(run), str(tmp_path / "packed.pt")])
    with pytest.raises(SystemExit, match="already holds a run"):
        main(["unpack", str(tmp_path / "packed.pt"), str(run)])
    assert Run(run).checkpoint.exists()
