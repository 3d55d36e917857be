"""Plain references of the benchmarks agree with the librarys."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import tyro

from benchmarks import attention, data, propagation, score, steps
from benchmarks.official import Official, verdict
from dino_model.models.load import load_model
from tests.training.runs import RECIPE, noise
from training import __main__ as command
from training.recipes.recipe import OptimizerConfig


def test_attention_reference_gives_the_maps_of_the_predictor(monkeypatch):
    monkeypatch.setattr(attention, "SIZE", 48)
    image = attention.images()[0]
    plain = attention.plain_maps(attention.sharpened_model())(image)
    np.testing.assert_allclose(attention.fused_maps(attention.predictor("fp32"), image), plain, atol=1e-6)
    assert plain.max() > 4 * plain.mean()  # flat maps always agree


def test_propagation_reference_gives_the_labels_of_the_tiles(monkeypatch):
    for name, value in {"ROWS": 15, "COLUMNS": 28, "CHANNELS": 16}.items():
        monkeypatch.setattr(propagation, name, value)
    compared = propagation.Propagation()
    ((tiled, plain),) = [[compute() for compute in sides] for sides in compared.peers().values()]
    torch.testing.assert_close(tiled, plain, rtol=0, atol=1e-5)
    assert plain.std() > 0.05
    assert "in fp64 differ by at most" in compared.compare()[1]
    monkeypatch.setattr(propagation, "AGREEMENT", -1.0)
    with pytest.raises(SystemExit, match="soft labels differ"):
        compared.compare()


def test_score_reference_gives_the_values_of_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(score, "FOLDER", tmp_path / "masks")
    score.Score(sequences=2, frames=4, json=tmp_path / "score.json").run()  # raises where values differ
    (written,) = json.loads((tmp_path / "score.json").read_text())["peers"].values()
    assert written["ratio"] == pytest.approx(written["reference"] / written["package"])
    values = np.stack(list(score.plain().values()))  # [objects, J and F, frames]
    assert 0.2 < values.min() < 0.9


@pytest.mark.parametrize("grouped", [False, True])
def test_plain_step_trains_as_the_loop_does(grouped):
    small = replace(
        RECIPE,
        backbone=replace(RECIPE.backbone, drop_path=0),
        method=replace(RECIPE.method, teacher_momentum=0.9),
        optimizer=OptimizerConfig(lr=0.1, clip_grad=0.02, warmup_epochs=0),
        batch_size=3,
    )
    ours, plain = steps.OurStep(small, "fp32"), steps.PlainStep(small, grouped=grouped)
    crops = data.random_crops(small)
    losses = np.array([(ours(crops)["loss"], plain(crops)["loss"]) for _ in range(4)])
    assert losses[0, 0] - losses[-1, 0] > 1e-3
    np.testing.assert_allclose(losses[:, 0], losses[:, 1], atol=1e-5)
    teacher = dict(plain.teacher.named_parameters())
    for name, found in ours.session.method.teacher.named_parameters():
        if not name.endswith("attn.qkv.bias"):  # Adam amplifies the noise of the keys' bias
            torch.testing.assert_close(found, teacher[name], atol=1e-4, rtol=0)


@pytest.mark.slow
def test_official_compares_every_figure_with_the_paper(tmp_path, monkeypatch, capsys):
    """The models have random weights in files of the published form. The commands run in this process."""
    run = SimpleNamespace(run=lambda words: SimpleNamespace(returncode=command.main(words[3:])))
    monkeypatch.setattr("benchmarks.official.subprocess", run)
    assert verdict("k-NN", 74.3, 74.5) == "reproduced"
    assert verdict("k-NN", 74.0, 74.5) == "0.5 points below, allowed are 0.3"
    assert verdict("DAVIS", None, 61.8).startswith("not measured")
    monkeypatch.setenv("DINO_CACHE", str(tmp_path))
    vit = load_model("random:vit_small/16").backbone
    torch.save(vit.state_dict(), tmp_path / "dino_deitsmall16_pretrain.pth")
    head = {"module.linear.weight": torch.randn(3, 1536), "module.linear.bias": torch.zeros(3)}
    torch.save({"state_dict": head}, tmp_path / "dino_deitsmall16_linearweights.pth")
    noise(tmp_path / "imagenet" / "train", 24, 3, 24, 30)
    noise(tmp_path / "imagenet" / "val", 3, 3, 30, 24)
    words = ["--imagenet", f"{tmp_path}/imagenet", "--models", "dino_vits16", "--output", f"{tmp_path}/out"]
    tyro.cli(Official, args=words).run()
    assert "0 of 2 scores reproduced; to send:" in capsys.readouterr().out
    verdicts = json.loads((tmp_path / "out" / "official.json").read_text())["verdicts"]
    assert [(row["metric"], row["score"] is None) for row in verdicts] == [("k-NN", False), ("linear", False)]
    tyro.cli(Official, args=words).run()
    assert "python -m" not in capsys.readouterr().out  # existing results are not measured again
