"""The command on small real runs, and what it says when it cannot."""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from dino_model.weights import load_model
from tests.training.pictures import noise
from tests.training.ranks import out_of_memory_at
from training import __main__ as command
from training.commands.arguments import parse
from training.methods import dino as dino_module
from training.run import Run

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[3]
TINY = [
    *("--architecture", "vit_tiny", "--width", "24", "--depth", "2", "--heads", "3", "--drop-path", "0.1"),
    *("--patch-size", "8", "--global-size", "32", "--local-size", "16"),
    *("--prototypes", "64", "--hidden", "16", "--bottleneck", "8", "--local-crops", "2", "--batch-size", "4"),
    *("--epochs", "3", "--warmup-epochs", "1", "--workers", "0", "--device", "cpu", "--precision", "fp32"),
    *("--save-every", "2"),
]


@pytest.fixture
def pictures(tmp_path):
    return noise(tmp_path / "pictures", 10, 2, 40, 48)


def pretrain(pictures, output, *more):
    return command.main(
        ["pretrain", "--data", str(pictures), "--output", str(output), *TINY, *map(str, more)]
    )


def logged(output):
    return [json.loads(line) for line in Run(output).log.read_text().splitlines()]


def weights(output):
    return torch.load(Run(output).checkpoint, weights_only=True)["method"]


def test_pretrain_writes_log_configuration_and_checkpoint(pictures, tmp_path):
    output = tmp_path / "run"
    assert pretrain(pictures, output, "--probe-every", 3) == 0
    lines = logged(output)
    assert [line["step"] for line in lines] == list(range(6))  # 10 pictures: 2 steps in each of 3 epochs
    assert {
        "loss",
        "teacher_entropy",
        "kl",
        "ln_k",
        "images_per_second",
        "data_wait",
        "center_norm",
        "lr",
        "weight_decay",
        "teacher_momentum",
        "teacher_temperature",
    } <= lines[0].keys()
    probed = [line for line in lines if "knn_teacher" in line]
    assert [line["step"] for line in probed] == [2, 5]
    assert {"knn_student", "lift_teacher", "lift_student"} <= probed[0].keys()
    assert lines[0]["loss"] == pytest.approx(lines[0]["teacher_entropy"] + lines[0]["kl"], abs=1e-5)
    assert json.loads((output / "config.json").read_text())["backbone"]["width"] == 24
    provenance = json.loads((output / "provenance.json").read_text())
    assert {"torch", "python"} <= provenance["versions"].keys()
    assert provenance["precision"] == "fp32"
    state = torch.load(Run(output).checkpoint, weights_only=True)
    assert state["step"] == 6
    assert "teacher.backbone.cls_token" in state["method"]


class After:
    """A signal that comes while the given step is taken: true from then on, and its number."""

    def __init__(self, step, number=signal.SIGTERM):
        self.asked, self.step, self.number = -1, step, number

    def __bool__(self):
        self.asked += 1
        return self.asked >= self.step

    def __getitem__(self, _):
        return self.number


def stop_after(monkeypatch, step, number=signal.SIGTERM):
    monkeypatch.setattr("training.commands.pretrain.stop_signal", lambda: nullcontext(After(step, number)))


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--views", 1, "--kept-tokens", 0.5, "--spreading", 0.3, "--alignment", 5, "--optimizer", "muon"),
        ("--position-start", "sincos", "--augment", "batch"),
        ("--kept-tokens", 0.5, "--masking", "attention"),
    ],
)
def test_pretrain_resumed_is_bitwise_the_uninterrupted_run(pictures, tmp_path, monkeypatch, more):
    """With stochastic depth: what is dropped goes by seed, step and place, not by what was drawn before."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert pretrain(pictures, whole, "--drop-path", 0.3, *more) == 0
    stop_after(monkeypatch, 2)
    assert pretrain(pictures, parts, "--drop-path", 0.3, *more) == 75
    assert len(logged(parts)) == 3
    monkeypatch.undo()
    torch.rand(7)  # another history
    assert (
        command.main(["pretrain", "--output", str(parts), "--resume", "--workers", "0", "--device", "cpu"])
        == 0
    )
    assert values(parts) == values(whole)
    torch.testing.assert_close(weights(parts), weights(whole), rtol=0, atol=0)


def test_resume_inside_and_between_curriculum_stages_gives_the_same_run(pictures, tmp_path, monkeypatch):
    """Stages of two steps; stopped inside each and, after steps 1 and 3, on their borders."""
    curriculum = ("--curriculum", "16:0.34", "24:0.33", "32:0.33", "--drop-path", 0.3, "--augment", "batch")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert pretrain(pictures, whole, *curriculum) == 0
    assert [line["global_size"] for line in logged(whole)] == [16, 16, 24, 24, 32, 32]
    for step in range(5):
        stop_after(monkeypatch, 0)
        assert pretrain(pictures, parts, *curriculum, "--resume") == 75
        assert len(logged(parts)) == step + 1
        monkeypatch.undo()
    assert pretrain(pictures, parts, *curriculum, "--resume") == 0
    assert values(parts) == values(whole)
    torch.testing.assert_close(weights(parts), weights(whole), rtol=0, atol=0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_pretrain_stopped_by_a_signal_returns_its_exit_code(
    pictures, tmp_path, monkeypatch, capsys, number, code
):
    stop_after(monkeypatch, 1, number)
    assert pretrain(pictures, tmp_path / "run") == code
    assert "2 of 6 steps done, --resume continues" in capsys.readouterr().out


def test_sigterm_before_the_first_step_returns_75(pictures, tmp_path, monkeypatch):
    def killed(*_, **__):
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("went on after SIGTERM")

    monkeypatch.setattr("training.commands.pretrain.Session", killed)
    assert pretrain(pictures, tmp_path / "run") == 75


def test_pretrain_resume_starts_or_continues_after_any_kill(pictures, tmp_path, monkeypatch):
    """One command line, whatever the kill left: nothing, a configuration, a checkpoint, the whole run."""
    first, whole, run = tmp_path / "first", tmp_path / "whole", tmp_path / "run"
    assert pretrain(pictures, first, "--epochs", 1) == 0
    job = ("--seed", 3, "--init-backbone", first)
    assert pretrain(pictures, whole, *job) == 0
    begun = [*job, "--resume"]
    monkeypatch.setattr("training.session.Session._train", lambda *_, **__: pytest.fail("killed"))
    with pytest.raises(pytest.fail.Exception):
        pretrain(pictures, run, *begun)
    monkeypatch.undo()
    assert sorted(path.name for path in run.iterdir()) == ["config.json", "provenance.json"]
    stop_after(monkeypatch, 2)
    assert (
        command.main(["pretrain", "--output", str(run), "--resume", "--workers", "0", "--device", "cpu"])
        == 75
    )
    monkeypatch.undo()
    assert pretrain(pictures, run, *begun) == 0
    assert values(run) == values(whole)
    assert pretrain(pictures, run, *begun) == 0
    assert values(run) == values(whole)


def test_resume_with_other_images_is_refused(pictures, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    stop_after(monkeypatch, 2)
    assert pretrain(pictures, run) == 75
    (pictures / "class0" / "0.png").rename(pictures / "class0" / "10.png")
    assert pretrain(pictures, run, "--resume") == 1
    assert "the fingerprint of names and sizes of the images was" in capsys.readouterr().err


def test_resume_with_other_rate_and_precision_records_the_change(pictures, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    stop_after(monkeypatch, 2)
    assert pretrain(pictures, run) == 75
    monkeypatch.undo()
    resumed = ["pretrain", "--output", str(run), "--resume", "--workers", "0", "--device", "cpu"]
    assert command.main([*resumed, "--lr", "0.1", "--precision", "bf16", "--save-every", "2"]) == 0
    said = capsys.readouterr().out
    assert "from here on optimizer.lr was 0.0005, now 0.1, precision was fp32, now bf16" in said
    rates = [line["lr"] for line in logged(run)]
    assert rates[1] == pytest.approx(0.0005 * 4 / 256)  # the peak, at the end of the warm-up
    assert max(rates[3:]) > 0.1 * 4 / 256 / 2
    config = Run(run).config()
    assert config["recipe"]["optimizer"]["lr"] == 0.1
    assert config["changes"] == [
        {"step": 3, "changed": {"optimizer.lr": [0.0005, 0.1], "precision": ["fp32", "bf16"]}}
    ]


def test_resume_with_settings_that_do_not_fit_is_refused(pictures, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    stop_after(monkeypatch, 2)
    assert pretrain(pictures, run) == 75
    before = (run / "config.json").read_text()
    refused = {
        "--heads 2": "backbone.heads was 3, now 2",
        "--batch-size 5": "batch_size was 4, now 5",
        "--optimizer muon": "optimizer.name was adamw, now muon",
        "--mean 0 0 0": "mean was",
        "--seed 1": "the seed was 0, now 1",
        "--init-backbone embedded": "has begun already: leave --init-backbone out",
        "--recipe paper": "was started with --recipe official-default",
        "--method byol": "--method is byol, but the run was started with dino",
    }
    for words, message in refused.items():
        assert command.main(["pretrain", "--output", str(run), "--resume", *words.split()]) == 1
        assert message in capsys.readouterr().err
        assert (run / "config.json").read_text() == before


def test_load_model_of_a_run_has_its_normalization(pictures, tmp_path):
    run = tmp_path / "run"
    assert pretrain(pictures, run, "--mean", 0.1, 0.2, 0.3, "--std", 0.5, 0.5, 0.5) == 0
    for key in (None, "student"):
        model = load_model(str(run), checkpoint_key=key)
        assert (model.mean, model.std) == ((0.1, 0.2, 0.3), (0.5, 0.5, 0.5))


def values(run):
    """What a run logged, but for the clock's."""
    return [
        {name: value for name, value in line.items() if name not in ("images_per_second", "data_wait")}
        for line in logged(run)
    ]


def test_init_backbone_loads_the_backbone_of_a_run(pictures, tmp_path, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    assert pretrain(pictures, first) == 0
    more = ("--init-backbone", first, "--global-size", 48, "--optimizer", "muon")  # --image-size follows
    assert pretrain(pictures, second, *more) == 0
    assert f"backbone of {first}, a fresh head" in capsys.readouterr().out
    start = torch.load(second / "step-00000000.pt", weights_only=True)["method"]
    taken = weights(first)
    for network in ("student", "teacher"):
        name = f"{network}.backbone.blocks.0.attn.qkv.weight"
        torch.testing.assert_close(start[name], taken["teacher.backbone.blocks.0.attn.qkv.weight"])
        assert start[f"{network}.backbone.pos_embed"].shape == (1, 37, 24)
    assert not torch.equal(start["student.head.mlp.0.weight"], taken["student.head.mlp.0.weight"])


def test_init_from_takes_weights_only_and_resamples_positions(pictures, tmp_path, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    assert pretrain(pictures, first) == 0
    more = ("--init-from", first, "--global-size", 48, "--epochs", 1)
    assert pretrain(pictures, second, *more) == 0
    assert f"weights of {first}, step 6" in capsys.readouterr().out
    assert weights(second)["student.backbone.pos_embed"].shape == (1, 37, 24)
    start = torch.load(second / "step-00000000.pt", weights_only=True)["method"]
    taken = weights(first)
    for network in ("student", "teacher"):
        name = f"{network}.head.mlp.0.weight"
        assert torch.equal(start[name], taken[name])
    assert taken["center"].norm() > 0
    assert start["center"].norm() == 0
    assert logged(second)[0]["step"] == 0


def official_checkpoint(run, path):
    """Write the networks of a run as main_dino.py of facebookresearch/dino saves them."""
    state = weights(run)
    networks = {
        name: {key.removeprefix(f"{name}."): t for key, t in state.items() if key.startswith(f"{name}.")}
        for name in ("student", "teacher")
    }
    networks["student"] = {f"module.{key}": tensor for key, tensor in networks["student"].items()}
    more = {"epoch": 7, "args": argparse.Namespace(arch="vit_tiny"), "optimizer": {"state": {}}}
    torch.save({**networks, **more, "dino_loss": {"center": state["center"]}}, path)


WIDE = ("--width", "192", "--heads", "3", "--position-mode", "official", "--drop-path", "0")


def test_init_from_official_checkpoint_takes_heads_and_center_and_trains_the_head_first(
    pictures, tmp_path, capsys
):
    first, second, file = tmp_path / "first", tmp_path / "second", tmp_path / "checkpoint.pth"
    assert pretrain(pictures, first, *WIDE) == 0
    official_checkpoint(first, file)
    more = ("--init-from", file, "--epochs", 2, "--head-only-epochs", 1, "--milestone-every", 2)
    more = (*more, "--freeze-last-layer-epochs", 0)
    assert pretrain(pictures, second, *WIDE, *more) == 0
    assert f"student, teacher, their heads and the center of {file}, epoch 7" in capsys.readouterr().out
    taken = weights(first)
    begun, headed, ended = (
        torch.load(second / f"step-0000000{step}.pt", weights_only=True)["method"] for step in (0, 2, 4)
    )
    assert all(torch.equal(begun[name], tensor) for name, tensor in taken.items())
    changed = {name for name in taken if not torch.equal(headed[name], begun[name])}
    assert "student.head.mlp.0.weight" in changed
    assert not [name for name in changed if name.startswith("student.backbone")]
    assert not torch.equal(ended["student.backbone.cls_token"], begun["student.backbone.cls_token"])


def test_init_from_official_checkpoint_that_does_not_fit_names_what(pictures, tmp_path, capsys):
    first, file = tmp_path / "first", tmp_path / "checkpoint.pth"
    assert pretrain(pictures, first, *WIDE) == 0
    official_checkpoint(first, file)
    payload = torch.load(file, weights_only=False)
    broken = payload | {"teacher": {k: t for k, t in payload["teacher"].items() if k != "head.mlp.0.bias"}}
    torch.save(broken, tmp_path / "broken.pth")
    torch.save({**payload, "dino_loss": {}}, tmp_path / "no_center.pth")
    for start, more, words in (
        (file, ("--prototypes", 32), "a center of shape (1, 64), expected (1, 32)"),
        (file, ("--hidden", 8), "head.mlp.0.weight"),
        (file, ("--method", "moco-v2"), "--method is moco-v2"),
        (tmp_path / "broken.pth", (), 'Missing key(s) in state_dict: "head.mlp.0.bias"'),
        (tmp_path / "no_center.pth", (), "no center"),
    ):
        capsys.readouterr()
        assert pretrain(pictures, tmp_path / "second", *WIDE, "--init-from", start, *more) == 1
        assert words in capsys.readouterr().err
    assert not (tmp_path / "second").exists()


def test_pretrain_leaves_out_excluded_and_broken_images(pictures, tmp_path, capsys):
    (pictures / "class0" / "0.png").write_bytes(b"broken")
    (pictures / "notes.txt").write_text("no picture")
    excluded = tmp_path / "exclude.txt"
    excluded.write_text("class1/1.png\n")
    assert pretrain(pictures, tmp_path / "run", "--exclude", excluded) == 0
    captured = capsys.readouterr()
    assert "9 images" in captured.out
    assert captured.err.count("0.png") == 1
    assert "1 unreadable images were skipped" in captured.out


def test_pretrain_with_nan_loss_stops_and_resumes(pictures, tmp_path, capsys, monkeypatch):
    honest, calls = dino_module.prototype_cross_entropy, iter(range(100))

    def fail_at_fourth(*arguments):
        return honest(*arguments) * (float("nan") if next(calls) == 3 else 1.0)

    monkeypatch.setattr(dino_module, "prototype_cross_entropy", fail_at_fourth)
    output = tmp_path / "run"
    assert pretrain(pictures, output) == 1
    assert "the loss is nan at step 3" in capsys.readouterr().err
    assert all(tensor.isfinite().all() for tensor in weights(output).values())
    monkeypatch.undo()
    assert pretrain(pictures, output, "--resume") == 0
    assert len(logged(output)) == 6


def test_infinite_weights_are_never_saved(pictures, tmp_path, capsys, monkeypatch):
    def poison(parameters, _):
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.fill_(float("inf"))

    monkeypatch.setattr("training.train.clip_grad_per_tensor", poison)
    output = tmp_path / "run"
    assert pretrain(pictures, output, "--save-every", 1) == 1
    message = capsys.readouterr().err  # of the checkpoint or of the next loss, whichever is known first
    assert "hold NaN or infinity after step 0" in message or "the loss is nan at step 1" in message
    assert all(tensor.isfinite().all() for tensor in weights(output).values())


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        ((), "--accumulate 2; the result"),
        (("--accumulate", 2), "--accumulate 4; the result"),
        (("--batch-norm",), "start again with --batch-size 2"),
        (("--accumulate", 4), "start again with a lower --local-crops"),
    ],
)
def test_pretrain_out_of_memory_advises_an_option(pictures, tmp_path, capsys, monkeypatch, more, advice):
    monkeypatch.setattr(
        dino_module, "prototype_cross_entropy", out_of_memory_at(5, dino_module.prototype_cross_entropy)
    )
    assert pretrain(pictures, tmp_path / "run", "--probe-every", 0, *more) == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("error: cpu is out of memory with ")
    assert advice in said
    monkeypatch.undo()
    if "accumulate" in advice:
        words = said.partition("continue with ")[2].partition(";")[0].split()
        assert pretrain(pictures, tmp_path / "run", *words) == 0
        assert len(logged(tmp_path / "run")) == 6


def test_pretrain_on_broken_images_only_ends_with_one_error(pictures, tmp_path, capsys):
    for path in pictures.rglob("*.png"):
        path.write_bytes(b"broken")
    assert pretrain(pictures, tmp_path / "run", "--workers", 1) == 1
    error = capsys.readouterr().err.strip()
    assert error.splitlines()[-1].startswith("error: 10 images in a row cannot be read")
    assert "Traceback" not in error


RESNET = ("--architecture", "resnet50", "--global-size", 32, "--local-size", 24)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--batch-size", 11), "10 images are fewer than one batch of 11"),
        (("--warmup-epochs", 9), "--warmup-epochs is 9, expected 0 to the 3 epochs of training"),
        (("--prototypes", 1), "K is 1"),
        (("--global-size", 36), "--global-size is 36, no multiple of the patch size of 8: choose 32 or 40"),
        (("--local-crops", 0, "--global-crops", 1), "the loss compares two crops"),
        (("--exclude", "nowhere.txt"), "nowhere.txt"),
        (("--init-from", "nowhere"), "nowhere"),
        ((*RESNET, "--kept-tokens", 0.5), "--kept-tokens is for ViTs"),
        (("--device", "cuda:77"), "cuda:77"),
        (("--teacher-momentum", 1.5), "--teacher-momentum is 1.5, expected 0 to 1"),
        (("--min-lr", "nan"), "--min-lr is nan, expected a number of at least 0"),
        (("--workers", -1), "--workers is -1"),
    ],
)
def test_pretrain_with_invalid_settings_prints_one_sentence(pictures, tmp_path, capsys, more, words):
    assert pretrain(pictures, tmp_path / "run", *more) == 1
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1
    assert not list(tmp_path.glob("run/*"))


@pytest.mark.parametrize("option", ["--heads", "--position-mode", "--std"])
@pytest.mark.parametrize("how", ["--init-from", "--init-backbone"])
def test_init_from_other_architecture_names_the_option(pictures, tmp_path, capsys, how, option):
    first = tmp_path / "first"
    assert pretrain(pictures, first) == 0
    other = {
        "--heads": ("2", "heads 3 instead of 2; pass --heads 3"),
        "--position-mode": ("size", "position_mode official instead of size; pass --position-mode official"),
        "--std": ("1 1 1", "std 0.229 0.224 0.225 instead of 1.0 1.0 1.0; pass --std 0.229 0.224 0.225"),
    }
    value, words = other[option]
    capsys.readouterr()
    assert pretrain(pictures, tmp_path / "second", how, first, option, *value.split()) == 1
    assert words in capsys.readouterr().err
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize(("recipe", "epochs"), [("paper", "300"), ("official-default", "100")])
def test_help_shows_the_values_of_the_recipe(capsys, recipe, epochs):
    with pytest.raises(SystemExit):
        command.main(["pretrain", "--recipe", recipe, "--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"--epochs INT Passes over the images. (default: {epochs})" in shown


def test_pretrain_on_a_full_disk_prints_one_sentence(pictures, tmp_path):
    """The limit of a file's size stands for a full disk."""
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000));"
        "from training.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["pretrain", "--data", str(pictures), "--output", str(tmp_path / "run"), *TINY]
    ended = subprocess.run(
        [sys.executable, "-c", limited, *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "write failed; is the disk full?" in ended.stderr
    assert "enforce fail" not in ended.stderr
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {
        "config.json",
        "provenance.json",
        "log.jsonl",
    }


def test_help_and_unknown_commands(capsys):
    assert command.main(["--help"]) == 0
    assert "pretrain" in capsys.readouterr().out
    assert command.main(["dance"]) == 2
    assert command.main(["evaluate", "--help"]) == 0
    assert "knn" in capsys.readouterr().out
    assert command.main(["evaluate", "dance"]) == 2
    with pytest.raises(SystemExit) as exit_:
        command.main(["pretrain", "--help"])
    assert exit_.value.code == 0
    assert "--teacher-momentum" in capsys.readouterr().out


def test_pretrain_of_a_locked_run_is_refused(pictures, tmp_path, capsys):
    """A stopped process holds its run still: when it goes on it writes, whatever it was sent meanwhile."""
    output, log = tmp_path / "run", tmp_path / "first.txt"
    words = ["pretrain", "--data", pictures, "--output", output, *TINY, "--epochs", "100000"]
    with log.open("w") as told:
        first = subprocess.Popen(
            [sys.executable, "-m", "training", *map(str, words)], cwd=REPOSITORY, stdout=told, stderr=told
        )
    try:
        deadline = time.monotonic() + 240
        while not Run(output).checkpoint.exists() and first.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        assert Run(output).checkpoint.exists(), log.read_text()
        first.send_signal(signal.SIGSTOP)
        first.terminate()  # which a stopped process does not take
        before = {file: file.read_bytes() for file in output.iterdir()}
        capsys.readouterr()
        for more in (("--resume",), ()):
            assert pretrain(pictures, output, *more) == 1
            said = capsys.readouterr().err
            assert f"{output} is being trained by process {first.pid} on " in said
            assert len(said.strip().splitlines()) == 1
        assert {file: file.read_bytes() for file in output.iterdir()} == before
        first.send_signal(signal.SIGCONT)
        assert first.wait(240) == 75, log.read_text()
    finally:
        first.kill()
        first.wait()
    assert not (output / ".lock").exists()
    done = torch.load(Run(output).checkpoint, weights_only=True)["step"]
    assert pretrain(pictures, output, "--resume", "--epochs", done // 2 + 2) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--data absent --output run --batch-size 0", "--batch-size is 0"),
        ("--data absent --output run --accumulate 0", "--accumulate is 0"),
        ("--data absent --output run --recipe small-data --milestone-every 0", "--milestone-every is 0"),
        ("--output run --recipe small-data", "no images"),
    ],
)
def test_pretrain_with_wrong_options_refuses_before_data_or_torch(arguments, message, tmp_path):
    code = (
        "import sys\nfrom training.__main__ import main\n"
        f"code = main({['pretrain', *arguments.split()]})\n"
        "print(code, 'torch' in sys.modules)"
    )
    output = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert message in output.stderr
    assert output.stdout.splitlines()[-1] == "1 False"


def test_help_into_a_closed_pipe_prints_no_error():
    command = f"{shlex.quote(sys.executable)} -m training pretrain --help | head -c 1"
    output = subprocess.run(command, shell=True, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert output.stderr == ""


@pytest.mark.parametrize("patch_size", [8, 14, 32])
@pytest.mark.parametrize("side", [40, 200, 500])
def test_small_data_recipe_with_any_patch_size_fits_its_own_crops(patch_size, side, tmp_path):
    pictures = noise(tmp_path / "pictures", 10, 2, side, side)
    words = ["--data", str(pictures), "--output", str(tmp_path / "run"), "--recipe", "small-data"]
    recipe = parse([*words, "--batch-size", "2", "--patch-size", str(patch_size)]).settings
    assert recipe.backbone.patch_size == patch_size
    assert recipe.crops.global_size % patch_size == recipe.crops.local_size % patch_size == 0
    assert recipe.crops.local_size < recipe.crops.global_size or side == 40


def test_overwrite_replaces_a_run_and_only_its_files(pictures, tmp_path):
    output = tmp_path / "run"
    assert pretrain(pictures, output) == 0
    (output / "notes.txt").write_text("mine")
    assert pretrain(pictures, output) == 1
    assert pretrain(pictures, output, "--overwrite", "--epochs", 2) == 0
    assert len(logged(output)) == 4
    assert (output / "notes.txt").read_text() == "mine"
