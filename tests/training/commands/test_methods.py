"""Every method and variant through the command: trains, resumes exactly, refuses what it cannot do."""

import json
import signal
from contextlib import nullcontext

import pytest
import torch

from dino_model.errors import SettingError
from dino_model.weights import load_model
from tests.training.pictures import noise
from training import __main__ as command
from training.commands.arguments import parse
from training.run import Run

pytestmark = pytest.mark.slow

COMMON = [
    *("--architecture", "vit_tiny", "--width", "24", "--depth", "2", "--heads", "3", "--drop-path", "0.1"),
    *("--patch-size", "8", "--global-size", "32", "--local-size", "16", "--batch-size", "4", "--epochs", "3"),
    *(
        "--warmup-epochs",
        "1",
        "--workers",
        "0",
        "--device",
        "cpu",
        "--precision",
        "fp32",
        "--save-every",
        "2",
    ),
]
OWN = {
    "dino": ("--prototypes", "24", "--hidden", "16", "--bottleneck", "8", "--local-crops", "2"),
    "byol": ("--prototypes", "16", "--hidden", "16", "--predictor", "16"),
    "moco-v2": ("--prototypes", "16", "--hidden", "16", "--queue", "8", "--local-crops", "1"),
    "swav": (
        *("--prototypes", "12", "--hidden", "16", "--bottleneck", "8", "--local-crops", "2"),
        *("--queue", "4", "--queue-start-epoch", "1"),
    ),
    "supervised": (),
}
NETWORKS = {
    "dino": ["teacher", "student"],
    "byol": ["student", "teacher"],
    "moco-v2": ["student", "teacher"],
    "swav": ["student"],
    "supervised": ["student"],
}
LOGGED = {
    "dino": {"teacher_entropy", "kl", "ln_k", "center_norm", "teacher_momentum", "teacher_temperature"},
    "byol": {"spread", "teacher_momentum"},
    "moco-v2": {"spread", "teacher_momentum"},
    "swav": {"code_entropy", "kl", "ln_k"},
    "supervised": {"accuracy"},
}


@pytest.fixture
def pictures(tmp_path):
    return noise(tmp_path / "pictures", 10, 2, 40, 48)


def pretrain(pictures, output, method, *more):
    words = ["pretrain", "--data", str(pictures), "--output", str(output), "--method", method]
    return command.main([*words, *COMMON, *OWN[method], *map(str, more)])


def logged(output):
    lines = [json.loads(line) for line in Run(output).log.read_text().splitlines()]
    return [
        {name: value for name, value in line.items() if name not in ("images_per_second", "data_wait")}
        for line in lines
    ]


def weights(output):
    return torch.load(Run(output).checkpoint, weights_only=True)["method"]


class AfterThreeSteps:
    """A SIGTERM that comes while the third step is taken."""

    asked = 0

    def __bool__(self):
        self.asked += 1
        return self.asked >= 3

    def __getitem__(self, _):
        return signal.SIGTERM


@pytest.mark.parametrize("method", OWN)
def test_pretrain_of_every_method_resumes_bitwise(method, pictures, tmp_path, monkeypatch):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert pretrain(pictures, whole, method, "--probe-every", 6) == 0
    lines = logged(whole)
    assert len(lines) == 6
    assert LOGGED[method] <= lines[0].keys()
    assert {f"knn_{name}" for name in NETWORKS[method]} <= lines[-1].keys()
    usual = load_model(str(whole)).backbone.state_dict()["blocks.0.attn.qkv.weight"]
    assert torch.equal(usual, weights(whole)[f"{NETWORKS[method][0]}.backbone.blocks.0.attn.qkv.weight"])
    monkeypatch.setattr("training.commands.pretrain.stop_signal", lambda: nullcontext(AfterThreeSteps()))
    assert pretrain(pictures, parts, method, "--probe-every", 6) == 75
    assert len(logged(parts)) == 3
    monkeypatch.undo()
    torch.rand(7)  # another history
    resume = [
        "pretrain",
        "--output",
        str(parts),
        "--resume",
        "--workers",
        "0",
        "--device",
        "cpu",
        "--probe-every",
        "6",
    ]
    assert command.main(resume) == 0
    assert logged(parts) == lines
    torch.testing.assert_close(weights(parts), weights(whole), rtol=0, atol=0)


def test_variants_of_dino_are_options():
    words = "--teacher previous-epoch --teacher-output softmax-batch --no-sharpen --predictor 12 --loss mse"
    with pytest.raises(SettingError, match="--loss mse compares no probabilities"):
        parse(["--data", "images", "--output", "run", *words.split()])
    words = words.replace("softmax-batch", "none") + " --bottleneck None --layers 2 --batch-norm --queue 0"
    options = parse(["--data", "images", "--output", "run", *words.split()])
    method = options.settings.method
    assert (method.teacher, method.teacher_output, method.sharpen) == ("previous-epoch", "none", False)
    assert (method.predictor, method.loss, method.head.bottleneck) == (12, "mse", None)


BAD = [
    ("moco-v2", ("--queue", 10), "--queue is 10, no multiple of the batch of 4: choose 8 or 12"),
    ("swav", ("--queue-start-epoch", 3), "training ends after 3 epochs"),
    ("swav", ("--accumulate", 2), "swav balances its codes over the whole batch"),
    ("byol", ("--accumulate", 2), "batch normalization needs the whole batch at once"),
    ("byol", ("--batch-size", 1), "batch normalization needs 2 images or more at once"),
    ("byol", ("--global-crops", 1), "--global-crops is 1: byol compares two views"),
    ("dino", ("--accumulate", 3), "--accumulate is 3, expected a divisor of 4"),
    ("dino", ("--teacher-output", "sinkhorn-knopp", "--accumulate", 2), "needs the whole batch"),
]


@pytest.mark.parametrize(("method", "more", "words"), BAD)
def test_pretrain_with_unusable_method_options_prints_one_sentence(
    method, more, words, pictures, tmp_path, capsys
):
    assert pretrain(pictures, tmp_path / "run", method, *more) == 1
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1
    assert not list(tmp_path.glob("run/*"))
