"""Every method and variant through the command: training, exact resuming, invalid options."""

import pytest
import torch

from dino_model.models.load import load_model
from tests.training.runs import NETWORK, resume, stop_after, train, values, weights
from training.commands.arguments import parse

OWN = {
    "dino": "--prototypes 24 --hidden 16 --bottleneck 8 --local-crops 2",
    "byol": "--prototypes 16 --hidden 16 --predictor 16",
    "moco-v2": "--prototypes 16 --hidden 16 --queue 8 --local-crops 1",
    "swav": "--prototypes 12 --hidden 16 --bottleneck 8 --local-crops 2 --queue 4 --queue-start-epoch 1",
    "supervised": "",
    "distill": "--teacher random:embedded --local-crops 0 --global-crops 1 --augmentation none",
}
LOGGED = {
    "dino": {"teacher_entropy", "kl", "ln_k", "center_norm", "teacher_momentum", "teacher_temperature"},
    "byol": {"spread", "teacher_momentum"},
    "moco-v2": {"spread", "teacher_momentum"},
    "swav": {"code_entropy", "kl", "ln_k"},
    "supervised": {"accuracy"},
    "distill": {"patch_loss", "attention_loss", "view_patches"},
}
VARIANTS = [
    *((method, "") for method in OWN),
    ("dino", "--views 1 --kept-tokens 0.5 --spreading 0.3 --alignment 5 --optimizer muon"),
    ("dino", "--kept-tokens 0.5 --masking attention --position-start sincos"),
    ("dino", "--augment batch --drop-path 0.3"),
    ("distill", "--teacher-cache cache --optimizer muon --hold 0.5"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Folder of relative paths."""
    monkeypatch.chdir(tmp_path)


def pretrain(images, output, method, *more):
    words = ("--data", images, "--output", output, "--method", method)
    return train(*words, *NETWORK, *OWN[method].split(), *more)


@pytest.mark.parametrize(("method", "more"), VARIANTS)
def test_pretrain_of_every_method_resumes_bitwise(method, more, images, tmp_path, monkeypatch):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    more = more.split()
    assert pretrain(images, whole, method, "--probe-every", 6, *more) == 0
    lines, state = values(whole), weights(whole)
    assert len(lines) == 6
    assert LOGGED[method] <= lines[0].keys()
    networks = {name.partition(".")[0] for name in state if ".backbone." in name}
    assert {f"knn_{name}" for name in networks} <= lines[-1].keys()
    usual = {"dino": "teacher", "distill": "average"}.get(method, "student")
    weight = load_model(str(whole)).backbone.state_dict()["blocks.0.attn.qkv.weight"]
    assert torch.equal(weight, state[f"{usual}.backbone.blocks.0.attn.qkv.weight"])
    stop_after(monkeypatch, 2)
    assert pretrain(images, parts, method, *more) == 75
    assert len(values(parts)) == 3
    monkeypatch.undo()
    torch.rand(7)  # another history
    assert resume(parts, "--probe-every", 6) == 0
    assert values(parts) == lines
    torch.testing.assert_close(weights(parts), state, rtol=0, atol=0)


def test_variants_of_dino_are_options():
    words = (
        "--data images --output run --teacher previous-epoch --teacher-output none --no-sharpen --loss mse"
    )
    method = parse([*words.split(), "--predictor", "12", "--bottleneck", "None"]).settings.method
    assert (method.teacher, method.teacher_output, method.sharpen) == ("previous-epoch", "none", False)
    assert (method.predictor, method.loss, method.head.bottleneck) == (12, "mse", None)


BAD = [
    ("moco-v2", "--queue 10", "--queue is 10, no multiple of the batch of 4: choose 8 or 12"),
    ("swav", "--queue-start-epoch 3", "training ends after 3 epochs"),
    ("swav", "--accumulate 2", "--method swav needs the whole batch at once"),
    ("byol", "--accumulate 2", "batch normalization needs the whole batch at once"),
    ("byol", "--epsilon 0.05", "--epsilon is for --method swav, and --method is byol"),
    ("byol", "--no-sharpen", "--sharpen is for --method dino, and --method is byol"),
    ("byol", "--batch-size 1", "batch normalization needs 2 images or more at once"),
    ("distill", "--global-crops 2", "--global-crops is 2, but distill reads 1"),
    ("distill", "--teacher nowhere.pth", "no file or folder 'nowhere.pth'"),
    ("dino", "--batch-size 11", "--batch-size is 11, expected at most 10, the number of images"),
    ("dino", "--curriculum 16:0.05 32:0.95", "stage 16:0.05 of --curriculum has no step out of 6"),
    ("dino", "--exclude nowhere.txt", "nowhere.txt"),
    ("dino", "--init-from nowhere", "nowhere"),
    ("dino", "--device cuda:77", "cuda:77"),
    ("dino", "--workers -1", "--workers is -1"),
]


@pytest.mark.parametrize(("method", "more", "words"), BAD)
def test_pretrain_with_invalid_options_prints_one_sentence(method, more, words, images, tmp_path, capsys):
    assert pretrain(images, tmp_path / "run", method, *more.split()) == 1
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1
    assert not list(tmp_path.glob("run/*"))
