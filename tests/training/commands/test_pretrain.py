"""The command on small runs, and its errors."""

import argparse
import os
import resource
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

from dino_model.models.backbones import BackboneConfig, create_backbone
from dino_model.models.load import load_model
from tests.training.ranks import Group
from tests.training.runs import noise, out_of_memory_at, pretrain, resume, stop_after, values, weights
from training.commands.pretrain import default_workers
from training.methods.head import ProjectionHead
from training.run.folder import Run

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def own_images(images, tmp_path):
    """A copy of the images that a test may damage."""
    return Path(shutil.copytree(images, tmp_path / "images"))


def test_resume_inside_and_between_curriculum_stages_gives_the_same_run(images, tmp_path, monkeypatch):
    """Stages of two steps; stopped inside each and, after steps 1 and 3, on their borders."""
    curriculum = ("--curriculum", "16:0.34", "24:0.33", "32:0.33", "--drop-path", 0.3, "--augment", "batch")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert pretrain(images, whole, *curriculum) == 0
    assert [line["global_size"] for line in values(whole)] == [16, 16, 24, 24, 32, 32]
    for step in range(5):
        stop_after(monkeypatch, 0)
        assert pretrain(images, parts, *curriculum, "--resume") == 75
        assert len(values(parts)) == step + 1
        monkeypatch.undo()
    assert pretrain(images, parts, *curriculum, "--resume") == 0
    assert values(parts) == values(whole)
    torch.testing.assert_close(weights(parts), weights(whole), rtol=0, atol=0)


def test_pretrain_resume_starts_or_continues_after_any_kill(images, trained, tmp_path, monkeypatch):
    """One command line, whatever the kill left: nothing, a configuration, a checkpoint, the whole run."""
    whole, run = tmp_path / "whole", tmp_path / "run"
    job = ("--seed", 3, "--init-backbone", trained)
    assert pretrain(images, whole, *job) == 0
    begun = [*job, "--resume"]
    monkeypatch.setattr("training.session.Session._train", lambda *_, **__: pytest.fail("killed"))
    with pytest.raises(pytest.fail.Exception):
        pretrain(images, run, *begun)
    monkeypatch.undo()
    assert sorted(path.name for path in run.iterdir()) == ["config.json", "images.csv.gz", "provenance.json"]
    stop_after(monkeypatch, 2)
    assert resume(run) == 75
    monkeypatch.undo()
    for _ in range(2):  # the second time there is nothing left to do
        assert pretrain(images, run, *begun) == 0
        assert values(run) == values(whole)


def test_resume_after_ctrl_c_with_other_rate_and_precision_records_the_change(
    images, tmp_path, monkeypatch, capsys
):
    run = tmp_path / "run"
    stop_after(monkeypatch, 2, signal.SIGINT)
    assert pretrain(images, run) == 130
    assert "3 of 6 steps done, --resume continues" in capsys.readouterr().out
    monkeypatch.undo()
    assert resume(run, "--epochs", 1) == 1
    assert "has done 3 steps, but --epochs 1 are 2 steps: pass --epochs 2 or more" in capsys.readouterr().err
    assert resume(run, "--lr", "0.1", "--precision", "bf16") == 0
    printed = capsys.readouterr().out
    assert "changed settings: optimizer.lr was 0.0005, now 0.1, precision was fp32, now bf16" in printed
    rates = [line["lr"] for line in values(run)]
    assert rates[1] == pytest.approx(0.0005 * 4 / 256)  # the peak, at the end of the warm-up
    assert max(rates[3:]) > 0.1 * 4 / 256 / 2
    config = Run(run).config()
    assert config["recipe"]["optimizer"]["lr"] == 0.1
    assert config["changes"] == [
        {"step": 3, "changed": {"optimizer.lr": [0.0005, 0.1], "precision": ["fp32", "bf16"]}}
    ]


def test_resume_with_settings_or_images_that_do_not_fit_is_refused(own_images, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    stop_after(monkeypatch, 2)
    assert pretrain(own_images, run) == 75
    before = (run / "config.json").read_text()
    refused = {
        "--heads 2": "backbone.heads was 3, now 2",
        "--batch-size 5": "batch_size was 4, now 5",
        "--optimizer muon": "optimizer.name was adamw, now muon",
        "--mean 0 0 0": "mean was",
        "--seed 1": "seed was 0, now 1",
        "--init-backbone embedded": "has begun already: leave --init-backbone out",
        "--recipe paper": "was started with --recipe official-default",
        "--method byol": "--method is byol, but the run was started with dino",
        "": "1 added (class0/10.png), 1 removed (class0/0.png)",
    }
    for words, message in refused.items():
        if not words:
            (own_images / "class0" / "0.png").rename(own_images / "class0" / "10.png")
        assert resume(run, *words.split()) == 1
        assert message in capsys.readouterr().err
        assert (run / "config.json").read_text() == before


QKV = "backbone.blocks.0.attn.qkv.weight"


def test_init_backbone_loads_the_backbone_of_a_run(images, trained, tmp_path, capsys):
    second, taken = tmp_path / "second", weights(trained)
    more = ("--init-backbone", trained, "--global-size", 48, "--optimizer", "muon")  # --image-size follows
    assert pretrain(images, second, *more) == 0
    assert f"backbone of {trained}, a fresh head" in capsys.readouterr().out
    start = weights(second, "step-00000000.pt")
    for network in ("student", "teacher"):
        torch.testing.assert_close(start[f"{network}.{QKV}"], taken[f"teacher.{QKV}"])
        assert start[f"{network}.backbone.pos_embed"].shape == (1, 37, 24)
    assert not torch.equal(start["student.head.mlp.0.weight"], taken["student.head.mlp.0.weight"])


def test_init_from_takes_weights_only_and_resamples_positions(images, trained, tmp_path, capsys):
    second, taken = tmp_path / "second", weights(trained)
    assert pretrain(images, second, "--init-from", trained, "--global-size", 48, "--epochs", 1) == 0
    assert f"weights of {trained}, step 6" in capsys.readouterr().out
    assert weights(second)["student.backbone.pos_embed"].shape == (1, 37, 24)
    start = weights(second, "step-00000000.pt")
    for name in ("student.head.mlp.0.weight", "teacher.head.mlp.0.weight", f"student.{QKV}"):
        assert torch.equal(start[name], taken[name])
    assert taken["center"].norm() > 0
    assert start["center"].norm() == 0
    assert values(second)[0]["step"] == 0


WIDE = ("--width", "192", "--heads", "3", "--position-mode", "official", "--drop-path", "0")


@pytest.fixture(scope="module")
def official(images, tmp_path_factory):
    """State of a run, and a file of its networks as main_dino.py of facebookresearch/dino saves them."""
    folder = tmp_path_factory.mktemp("official")
    assert pretrain(images, folder / "run", *WIDE) == 0
    state = weights(folder / "run")
    networks = {
        name: {key.removeprefix(f"{name}."): t for key, t in state.items() if key.startswith(f"{name}.")}
        for name in ("student", "teacher")
    }
    networks["student"] = {f"module.{key}": tensor for key, tensor in networks["student"].items()}
    more = {"epoch": 7, "args": argparse.Namespace(arch="vit_tiny"), "optimizer": {"state": {}}}
    file = folder / "checkpoint.pth"
    torch.save({**networks, **more, "dino_loss": {"center": state["center"]}}, file)
    return state, file


def test_init_from_official_checkpoint_takes_heads_and_center_and_trains_the_head_first(
    images, official, tmp_path, capsys
):
    taken, file = official
    run = tmp_path / "run"
    more = ("--init-from", file, "--epochs", 2, "--head-only-epochs", 1, "--milestone-every", 2)
    assert pretrain(images, run, *WIDE, *more, "--freeze-last-layer-epochs", 0) == 0
    assert f"student, teacher, their heads and the center of {file}, epoch 7" in capsys.readouterr().out
    begun, headed, ended = (weights(run, f"step-0000000{step}.pt") for step in (0, 2, 4))
    assert all(torch.equal(begun[name], tensor) for name, tensor in taken.items())
    changed = {name for name in taken if not torch.equal(headed[name], begun[name])}
    assert "student.head.mlp.0.weight" in changed
    assert not [name for name in changed if name.startswith("student.backbone")]
    assert not torch.equal(ended["student.backbone.cls_token"], begun["student.backbone.cls_token"])


def test_init_backbone_of_a_bare_file_takes_the_heads_of_the_run(images, tmp_path, capsys):
    backbone = create_backbone(BackboneConfig("vit_tiny", 8, 32, width=24, depth=2, heads=2)).state_dict()
    torch.save(backbone, tmp_path / "bare.pth")
    options = ("--init-backbone", tmp_path / "bare.pth", "--position-mode", "official")
    more = ("--heads", 2, "--epochs", 1, "--warmup-epochs", 0, "--milestone-every", 2)
    assert pretrain(images, tmp_path / "run", *options, *more) == 0
    start = weights(tmp_path / "run", "step-00000000.pt")
    name = "blocks.1.attn.qkv.weight"
    assert torch.equal(start[f"student.backbone.{name}"], backbone[name])


def test_init_from_what_does_not_fit_names_option_or_tensor(images, trained, official, tmp_path, capsys):
    _, file = official
    payload = torch.load(file, weights_only=False)
    broken, no_center = tmp_path / "broken.pth", tmp_path / "no_center.pth"
    torch.save(payload | {"dino_loss": {}}, no_center)
    del payload["teacher"]["head.mlp.0.bias"]
    torch.save(payload, broken)
    backbone = ("--init-backbone", trained)
    for words, message in (
        ((*WIDE, "--init-from", file, "--prototypes", 32), "size mismatch for center"),
        ((*WIDE, "--init-from", file, "--method", "moco-v2"), "--method is moco-v2"),
        ((*WIDE, "--init-from", broken), 'Missing key(s) in state_dict: "teacher.head.mlp.0.bias"'),
        ((*WIDE, "--init-from", no_center), 'Missing key(s) in state_dict: "center"'),
        (("--init-from", trained, "--heads", 2), "heads 3 instead of 2; pass --heads 3"),
        ((*backbone, "--position-mode", "size"), "instead of size; pass --position-mode official"),
        ((*backbone, "--std", 1, 1, 1), "instead of 1.0 1.0 1.0; pass --std 0.229 0.224 0.225"),
        (("--init-backbone", "random:resnet50"), "a ResNet, expected a VisionTransformer with 1 prefix"),
        (("--init-backbone", "embeded", "--data", tmp_path / "absent"), "unknown model 'embeded'"),
    ):
        capsys.readouterr()
        assert pretrain(images, tmp_path / "second", *words) == 1
        assert message in capsys.readouterr().err
    assert not (tmp_path / "second").exists()


def test_pretrain_skips_excluded_and_broken_images_and_fails_if_all_are_broken(own_images, tmp_path, capsys):
    (own_images / "class0" / "0.png").write_bytes(b"broken")
    (own_images / "notes.txt").write_text("no image")
    excluded = tmp_path / "exclude.txt"
    excluded.write_text("class1/1.png\n")
    assert pretrain(own_images, tmp_path / "run", "--exclude", excluded) == 0
    captured = capsys.readouterr()
    assert "9 images" in captured.out
    assert captured.err.count("0.png") == 1
    assert "skipped 1 unreadable image" in captured.out
    for path in own_images.rglob("*.png"):
        path.write_bytes(b"broken")
    assert pretrain(own_images, tmp_path / "none", "--workers", 1) == 1
    error = capsys.readouterr().err.strip()
    assert error.splitlines()[-1].startswith("error: 10 images in a row cannot be read")
    assert "Traceback" not in error


def test_pretrain_on_images_of_the_test_split_says_so(images, tmp_path, capsys):
    splits = {"1": "val", "2": "test"}
    rows = [f"{path},{splits.get(path.stem, 'train')}" for path in sorted(images.rglob("*.png"))]
    (tmp_path / "table.csv").write_text("\n".join(["path,split", *rows]))
    for data, warned in ((images, False), (tmp_path / "table.csv", True)):
        assert pretrain(data, tmp_path / f"run-{warned}") == 0
        assert ("trains on 2 images of val and test, too" in capsys.readouterr().out) == warned


@pytest.mark.parametrize(
    ("cores", "processes", "cpu", "cuda"),
    [(1, 1, 1, 1), (2, 1, 2, 2), (16, 1, 2, 16), (16, 3, 2, 5), (2, 4, 2, 1)],
)
def test_workers_are_two_or_on_cuda_the_cores_of_a_process(monkeypatch, cores, processes, cpu, cuda):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    assert [default_workers(torch.device(name)) for name in ("cpu", "cuda")] == [cpu, cuda]


@pytest.mark.parametrize(("count", "classes", "probed"), [(10, 2, True), (9, 2, False), (10, 1, False)])
def test_probe_needs_ten_images_of_two_classes(tmp_path, capsys, count, classes, probed):
    images = noise(tmp_path / "images", count, classes, 20, 20)
    assert pretrain(images, tmp_path / "run", "--epochs", 1, "--probe-every", 1) == 0
    assert ("no k-NN probe: it needs 10 images or more" in capsys.readouterr().out) != probed
    assert ("knn_teacher" in values(tmp_path / "run")[0]) == probed


def test_pretrain_with_nan_loss_stops_and_resumes(images, tmp_path, capsys, monkeypatch):
    honest, calls = ProjectionHead.cross_entropy, iter(range(100))

    def fail_at_fourth(*arguments):
        return honest(*arguments) * (float("nan") if next(calls) == 3 else 1.0)

    monkeypatch.setattr(ProjectionHead, "cross_entropy", fail_at_fourth)
    output = tmp_path / "run"
    assert pretrain(images, output) == 1
    assert "the loss is nan at step 3" in capsys.readouterr().err
    assert all(tensor.isfinite().all() for tensor in weights(output).values())
    monkeypatch.undo()
    assert pretrain(images, output, "--resume") == 0
    assert len(values(output)) == 6


def test_infinite_weights_are_never_saved(images, tmp_path, capsys, monkeypatch):
    def poison(groups, _):
        for parameter in (parameter for group in groups for parameter in group["params"]):
            if parameter.grad is not None:
                parameter.grad.fill_(float("inf"))
        return {}

    monkeypatch.setattr("training.train.clip_gradients", poison)
    output = tmp_path / "run"
    assert pretrain(images, output, "--save-every", 1) == 1
    message = capsys.readouterr().err  # of the checkpoint or of the next loss, whichever is known first
    assert "hold NaN or infinity after step 0" in message or "the loss is nan at step 1" in message
    assert all(tensor.isfinite().all() for tensor in weights(output).values())


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        ((), "--accumulate 2; the result"),
        (("--batch-norm",), "start again with --batch-size 2"),
        (("--accumulate", 4), "start again with a lower --local-crops"),
    ],
)
def test_pretrain_out_of_memory_advises_an_option(images, tmp_path, capsys, monkeypatch, more, advice):
    fails = out_of_memory_at(5, ProjectionHead.cross_entropy)
    monkeypatch.setattr(ProjectionHead, "cross_entropy", fails)
    assert pretrain(images, tmp_path / "run", "--probe-every", 0, *more) == 1
    printed = capsys.readouterr().err.strip().splitlines()[-1]
    assert printed.startswith("error: cpu is out of memory with ")
    assert advice in printed
    monkeypatch.undo()
    if "accumulate" in advice:
        words = printed.partition("continue with ")[2].partition(";")[0].split()
        assert pretrain(images, tmp_path / "run", *words) == 0
        assert len(values(tmp_path / "run")) == 6


def run_limited(*given: object) -> int:
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
    return pretrain(*given)


@pytest.mark.slow
def test_pretrain_on_a_full_disk_prints_one_sentence(images, tmp_path):
    """The limit of a file's size stands for a full disk."""
    group = Group(tmp_path / "group", (run_limited, images, tmp_path / "run"))
    assert group.codes() == [1]
    assert "write failed; is the disk full?" in group.printed(0)
    assert "enforce fail" not in group.printed(0)
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left <= {"config.json", "images.csv.gz", "provenance.json", "log.jsonl"}


@pytest.mark.slow
def test_pretrain_of_a_locked_run_is_refused(images, tmp_path, capsys):
    """A stopped process still holds its run: when it continues it writes, whatever it was sent meanwhile."""
    output = tmp_path / "run"
    group = Group(tmp_path / "group", (pretrain, images, output, "--epochs", 100000))
    (first,) = group.processes
    try:
        while not Run(output).checkpoint.exists() and first.is_alive():
            time.sleep(0.02)
        os.kill(first.pid, signal.SIGSTOP)
        first.terminate()  # a stopped process receives it later
        before = {file: file.read_bytes() for file in output.iterdir()}
        assert Run(output).checkpoint in before
        for more in (("--resume",), ()):
            assert pretrain(images, output, *more) == 1
            assert f"{output} is being trained by process {first.pid} on " in capsys.readouterr().err
        assert {file: file.read_bytes() for file in output.iterdir()} == before
        os.kill(first.pid, signal.SIGCONT)
        assert group.codes() == [75]
    finally:
        first.kill()
    assert not (output / ".lock").exists()
    done = torch.load(Run(output).checkpoint, weights_only=True)["step"]
    assert pretrain(images, output, "--resume", "--epochs", done // 2 + 2) == 0


def test_run_keeps_the_normalization_that_was_given(images, tmp_path):
    assert pretrain(images, tmp_path / "run", "--mean", 0.1, 0.2, 0.3, "--std", 0.5, 0.5, 0.5) == 0
    for key in (None, "student"):
        model = load_model(str(tmp_path / "run"), checkpoint_key=key)
        assert (*model.mean, *model.std) == (0.1, 0.2, 0.3, 0.5, 0.5, 0.5)
