"""Fine-tuning: its rates, one folder learnt, what is written, and going on after an interruption."""

import json
from pathlib import Path

import pytest
import torch

from dino_model.weights import load_model
from tests.training.evaluation.pictures import evaluate, write_pictures
from training.evaluation import finetune as protocol
from training.evaluation.finetune import RECIPES, FinetuneRecipe, learning_rate, output_file
from training.evaluation.options import Finetune
from training.randomness import mix


def test_learning_rate_warms_up_and_falls_to_zero():
    recipe = FinetuneRecipe(epochs=100, rate=1.0)
    assert [learning_rate(recipe, epoch) for epoch in (0, 2.5, 5, 100)] == [0, 0.5, 1, 0]
    assert learning_rate(recipe, 52.5) == pytest.approx(0.5)
    assert RECIPES["cifar10"].rate == 7.5e-6


def run(*words: object) -> None:
    evaluate("finetune", *words)


def test_finetune_after_interruption_gives_same_weights(tmp_path: Path, monkeypatch, capsys):
    shapes = write_pictures(tmp_path / "shapes", {"a": 10, "b": 10})
    words = ("--data", shapes, "--model", "random:embedded", "--size", "32", "--epochs", "3", "--batch", "8")
    figures = tmp_path / "out.json"
    run(*words, "--output", tmp_path / "one", "--rate", "0.001", "--json", figures)
    written = tmp_path / "one" / "random_embedded-on-shapes.safetensors"
    assert [file.name for file in written.parent.iterdir()] == [written.name]
    changed = load_model(str(written)).backbone.state_dict()
    before = load_model("random:embedded").backbone.state_dict()
    assert not torch.equal(changed["blocks.0.attn.qkv.weight"], before["blocks.0.attn.qkv.weight"])
    assert json.loads(figures.read_text())["results"][0]["network"] == str(written)

    seeds, batches = [], protocol._batches

    def interrupted(*given):
        seeds.append(given[-1])
        if len(seeds) == 2:
            raise KeyboardInterrupt
        return batches(*given)

    monkeypatch.setattr(protocol, "_batches", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(*words, "--output", tmp_path / "two", "--rate", "0.001")
    run(*words, "--output", tmp_path / "two", "--rate", "0.002")  # another recipe begins anew
    run(*words, "--output", tmp_path / "two", "--rate", "0.001")
    assert seeds == [mix(0, epoch) for epoch in (0, 1, *(0, 1, 2), *(1, 2))]
    again = load_model(str(tmp_path / "two" / written.name)).backbone.state_dict()
    for name, tensor in changed.items():
        torch.testing.assert_close(again[name], tensor, rtol=0, atol=1e-4)


def test_finetune_in_bf16_changes_weights_as_in_fp32(tmp_path: Path):
    """One epoch of twelve steps: with casts kept from the first step, later steps train on stale weights."""
    shapes = write_pictures(tmp_path / "shapes", {"a": 30, "b": 30})
    words = ("--data", shapes, "--model", "random:embedded", "--size", "32", "--device", "cpu")
    words += ("--epochs", "1", "--batch", "4", "--rate", "0.001")
    before = load_model("random:embedded").backbone.state_dict()
    steps = {}
    for precision in ("fp32", "bf16"):
        run(*words, "--precision", precision, "--output", tmp_path / precision)
        (written,) = (tmp_path / precision).iterdir()
        after = load_model(str(written)).backbone.state_dict()
        steps[precision] = torch.cat([(after[name] - tensor).flatten() for name, tensor in before.items()])
    assert torch.cosine_similarity(steps["fp32"], steps["bf16"], dim=0) > 0.9


def test_output_file_keeps_dots_of_names(tmp_path: Path):
    tuning = Finetune(data=tmp_path / "shapes", output=tmp_path)
    names = [output_file(tuning, name).name for name in ("runs/a.lr1", "runs/a.lr2", "b.pth")]
    assert names == [f"{stem}-on-shapes.safetensors" for stem in ("runs_a.lr1", "runs_a.lr2", "b")]
