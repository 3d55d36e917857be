"""One command for the published figures: stand-in weights on stand-in data, and what is said of figures."""

import json
import subprocess
from pathlib import Path

import pytest
import torch
import tyro

from benchmarks.official import Official, figure_of, verdict
from dino_model.weights import load_model
from tests.training.evaluation.pictures import write_pictures


def test_a_figure_within_the_tolerance_is_reproduced():
    assert verdict("dino_vits16", "k-NN", 74.3, 74.5).said == "reproduced"
    assert verdict("dino_vits16", "k-NN", 74.0, 74.5).said == "0.5 points below, allowed are 0.3"
    assert verdict("dino_vits16", "DAVIS", 63.0, 61.8).said == "1.2 points above, allowed are 0.5"
    assert verdict("dino_vits16", "DAVIS", None, 61.8).said.startswith("not measured")
    assert figure_of("DAVIS", {"dataset": {"J&F_mean": 0.618}}) == pytest.approx(61.8)


def test_stand_in_weights_and_pictures_leave_a_file_to_send(tmp_path: Path, monkeypatch, capsys):
    cache, data, out = tmp_path / "cache", tmp_path / "imagenet", tmp_path / "out"
    cache.mkdir()
    monkeypatch.setenv("DINO_CACHE", str(cache))
    vit = load_model("random:vit_small/16").backbone
    torch.save(vit.state_dict(), cache / "dino_deitsmall16_pretrain.pth")
    head = {"module.linear.weight": torch.randn(3, 1536), "module.linear.bias": torch.zeros(3)}
    torch.save({"state_dict": head}, cache / "dino_deitsmall16_linearweights.pth")
    write_pictures(data / "train", {"a": 8, "b": 8, "c": 8})
    write_pictures(data / "val", {"a": 1, "b": 1, "c": 1}, shade=100)
    words = ["--imagenet", str(data), "--models", "dino_vits16", "--output", str(out)]
    tyro.cli(Official, args=words).run()
    shown = capsys.readouterr().out
    assert "0 of 2 figures reproduced; to send:" in shown
    found = json.loads((out / "official.json").read_text())
    assert [one["figure"] for one in found["verdicts"]] == ["k-NN", "linear"]
    assert all(one["ours"] is not None for one in found["verdicts"])
    tyro.cli(Official, args=words).run()
    assert "python -m" not in capsys.readouterr().out  # what is there is not measured again


def test_a_command_that_fails_leaves_the_other_figures_and_an_exit_code(tmp_path: Path, monkeypatch, capfd):
    out = tmp_path / "out"
    monkeypatch.setenv("DINO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "benchmarks.official.subprocess.run",
        lambda words: subprocess.CompletedProcess(words, 1),
    )
    write_pictures(tmp_path / "imagenet" / "train", {"a": 1, "b": 1})
    out.mkdir()
    (out / "dino_vits16-k-NN.json").write_text('{"results": [{"metrics": {"top1": 74.5}}]}')
    words = ["--imagenet", str(tmp_path / "imagenet"), "--models", "dino_vits16", "--output", str(out)]
    with pytest.raises(SystemExit, match="error: 1 figures were not measured, see above"):
        tyro.cli(Official, args=words).run()
    assert "1 of 2 figures reproduced; to send:" in capfd.readouterr().out
    one, other = json.loads((out / "official.json").read_text())["verdicts"]
    assert (one["said"], other["ours"]) == ("reproduced", None)


def test_nothing_to_measure_on_is_one_sentence(tmp_path: Path):
    with pytest.raises(SystemExit, match="name at least one of --davis, --voc and --imagenet"):
        tyro.cli(Official, args=[]).run()
    with pytest.raises(SystemExit, match="is not there: nothing was measured"):
        tyro.cli(Official, args=["--voc", str(tmp_path / "none")]).run()
    with pytest.raises(SystemExit, match="embedded is none of dino_vits16"):
        tyro.cli(Official, args=["--voc", str(tmp_path), "--models", "embedded"]).run()
