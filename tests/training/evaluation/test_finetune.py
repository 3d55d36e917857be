"""Fine-tuning: its rates, one folder learnt, what is written, and going on after an interruption."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import tyro

from dino_model.weights import load_model
from tests.training.evaluation.pictures import write_pictures
from training.commands.evaluate import finetune as command
from training.commands.evaluate.finetune import Finetune
from training.evaluation.collections import Collection, open_collection
from training.evaluation.finetune import RECIPES, FinetuneRecipe, rate_at


def test_the_rate_rises_to_its_peak_and_falls_to_nothing():
    recipe = FinetuneRecipe(epochs=100, rate=1.0, warmup=5)
    assert [rate_at(recipe, epoch) for epoch in (0, 2.5, 5, 100)] == [0, 0.5, 1, 0]
    assert rate_at(recipe, 52.5) == pytest.approx(0.5)
    assert RECIPES["cifar10"].rate == 7.5e-6


def run(*arguments: str | Path) -> None:
    tyro.cli(Finetune, args=[str(argument) for argument in arguments]).run()


def test_a_folder_is_learnt_kept_and_gone_on_with(tmp_path: Path, monkeypatch, capsys):
    shapes = write_pictures(tmp_path / "shapes", {"a": 10, "b": 10})
    words = ("--data", shapes, "--model", "random:embedded", "--size", "32", "--epochs", "3", "--batch", "8")
    figures = tmp_path / "out.json"
    run(*words, "--output", tmp_path / "one", "--rate", "0.001", "--json", figures)
    written = tmp_path / "one" / "random_embedded.safetensors"
    assert [file.name for file in written.parent.iterdir()] == [written.name]
    changed = load_model(str(written)).backbone.state_dict()
    before = load_model("random:embedded").backbone.state_dict()
    assert not torch.equal(changed["blocks.0.attn.qkv.weight"], before["blocks.0.attn.qkv.weight"])
    assert json.loads(figures.read_text())["results"][0]["network"] == str(written)

    epochs, train = [], command.train_epoch

    def interrupted(*given):
        epochs.append(given[5])
        if len(epochs) == 2:
            raise KeyboardInterrupt
        return train(*given)

    monkeypatch.setattr(command, "train_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(*words, "--output", tmp_path / "two", "--rate", "0.001")
    run(*words, "--output", tmp_path / "two", "--rate", "0.001")
    assert epochs == [0, 1, 1, 2]
    again = load_model(str(tmp_path / "two" / written.name)).backbone.state_dict()
    for name, tensor in changed.items():
        torch.testing.assert_close(again[name], tensor, rtol=0, atol=1e-4)


def test_cifar_is_read_as_published_and_a_missing_set_is_explained(tmp_path: Path, monkeypatch):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    random = np.random.default_rng(0)
    for name in (
        "data_batch_1",
        "data_batch_2",
        "data_batch_3",
        "data_batch_4",
        "data_batch_5",
        "test_batch",
    ):
        batch = {"data": random.integers(0, 256, (4, 3072), np.uint8), "labels": [0, 1, 2, 3]}
        (folder / name).write_bytes(pickle.dumps(batch))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    with pytest.raises(ValueError, match=r"cifar10 is not complete in .*: expected there cifar-10-batches"):
        open_collection("cifar10", tmp_path)  # of other bytes than the published
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    train, test = open_collection("cifar10", tmp_path)
    assert isinstance(train, Collection)
    assert (len(train), len(test), train.read(0).shape) == (20, 4, (32, 32, 3))
    assert test.labels() == [0, 1, 2, 3]


def test_settings_that_cannot_be_are_one_sentence(tmp_path: Path):
    words = ("--data", tmp_path, "--output", tmp_path / "out")
    with pytest.raises(ValueError, match="--recipe other is not known: choose one of own"):
        run(*words, "--recipe", "other")
    with pytest.raises(ValueError, match="--batch at least 2"):
        run(*words, "--batch", "1")
