import argparse
import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import timm
import torch
from torch import Tensor

from dino_model import weights
from dino_model.attention import attention_rows
from dino_model.backbones import BackboneConfig, create_backbone
from dino_model.checkpoints import FORMAT, WeightsError, infer_config, write_safetensors
from dino_model.images import IMAGENET_MEAN, IMAGENET_STD
from dino_model.published import OFFICIAL
from dino_model.weights import LoadedModel, is_local, load_model

pytestmark = pytest.mark.usefixtures("cache")

# Heads of 64, as bare files must have: everything else as small as can be.
SMALL = BackboneConfig("vit_small", patch_size=8, image_size=32, width=128, depth=2, heads=2)


def network(seed: int, config: BackboneConfig = SMALL) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return create_backbone(config).state_dict()


def head() -> dict[str, Tensor]:
    return {"head.mlp.0.weight": torch.zeros(4, 128), "head.last_layer.weight_v": torch.zeros(8, 4)}


def prefixed(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def official_full_checkpoint(path: Path, teacher_prefix: str = "") -> Path:
    """As the official training code writes it: DDP student, pickled Namespace, optimizer and centre."""
    payload = {
        "student": prefixed(prefixed(network(1), "backbone.") | head(), "module."),
        "teacher": prefixed(prefixed(network(2), "backbone.") | head(), teacher_prefix),
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1}]},
        "args": argparse.Namespace(arch="vit_small", use_fp16=True, local_crops_scale=(0.05, 0.4)),
        "dino_loss": {"center": torch.zeros(1, 8)},
    }
    torch.save(payload, path)
    return path


def run_folder(folder: Path, config: BackboneConfig = SMALL) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"backbone": asdict(config), "epochs": 1}))
    method = {
        **prefixed(network(1, config), "student.backbone."),
        **prefixed(network(2, config), "teacher.backbone."),
        **prefixed(head(), "student."),
        "center": torch.zeros(8),
    }
    torch.save({"format": 1, "step": 5, "method": method}, folder / "checkpoint.pt")
    return folder


def assert_holds(model: LoadedModel, expected: dict[str, Tensor]) -> None:
    found = model.backbone.state_dict()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


# --- names


@pytest.mark.parametrize(
    ("name", "shape", "patch"),
    [("random:vit_tiny/16", (192, 12, 3), 16), ("random:vit_small/5", (384, 12, 6), 5)],
)
def test_load_random_is_equal_each_time_and_keeps_the_seed(name: str, shape: tuple, patch: int):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = load_model(name)
    assert torch.equal(torch.rand(3), expected)
    assert_holds(load_model(name), first.backbone.state_dict())
    config = first.config
    assert config is not None
    assert (config.vit_shape(), config.patch_size, config.position_mode) == (shape, patch, "size")
    assert not first.backbone.training
    assert not any(tensor.requires_grad for tensor in first.backbone.parameters())
    assert (first.mean, first.std) == (IMAGENET_MEAN, IMAGENET_STD)
    assert is_local(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("random:vit_tiny", "names no architecture: write random:vit_small/16"),
        ("random:vit_tiny/x", "names no architecture"),
        ("random:vit_huge/16", "unknown architecture 'vit_huge'"),
        ("random:vit_tiny/0", "patch_size is 0|smaller"),
        ("no such model", "unknown model 'no such model': give 'embedded', one of dino_vits16"),
        ("dino_vits61", r"did you mean dino_vits16"),
        ("", "unknown model ''"),
        ("missing.pth", "no file or folder 'missing.pth'"),
        ("vit_small_patch16_224.nonsense", "timm has no such weights: Invalid pretrained tag"),
        ("vit_huge_patch14_gap_224.in1k_ijepa", "publishes no .safetensors weights"),
    ],
)
def test_load_unknown_name_lists_known_names(name: str, message: str):
    with pytest.raises(WeightsError, match=message):
        load_model(name)


@pytest.mark.parametrize("name", OFFICIAL)
def test_load_official_weights_from_cache(name: str, cache: Path, monkeypatch: Any):
    assert not is_local(name)
    mode = OFFICIAL[name].config.position_mode
    small = replace(SMALL if "vit" in name else BackboneConfig("resnet50"), position_mode=mode)
    monkeypatch.setitem(OFFICIAL, name, replace(OFFICIAL[name], config=small))
    cache.mkdir()
    torch.save(network(3, small), cache / OFFICIAL[name].file.name)
    model = load_model(name)
    assert_holds(model, network(3, small))
    assert is_local(name)
    if "vit" in name:
        assert model.backbone.position_mode == "official"


def test_load_embedded_and_its_random_architecture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(weights, "EMBEDDED_FILE", tmp_path / "model.safetensors")
    backbone = create_backbone(SMALL)
    write_safetensors(backbone, weights.EMBEDDED_FILE, config=SMALL, mean=(0.1,) * 3, std=(0.2,) * 3)
    model = load_model()
    assert_holds(model, backbone.state_dict())
    assert (model.name, model.config, model.mean, model.std) == ("embedded", SMALL, (0.1,) * 3, (0.2,) * 3)
    random = load_model("random:embedded")
    assert (random.config, random.mean) == (SMALL, (0.1,) * 3)
    assert not torch.equal(random.backbone.blocks[0].attn.qkv.weight, backbone.blocks[0].attn.qkv.weight)


# --- timm


def tiny_timm(monkeypatch: pytest.MonkeyPatch, name: str, **settings: Any) -> None:
    """Makes timm build `name` small, as its own tests do."""
    create = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda model, **rest: create(model, **settings, **rest))


@pytest.mark.parametrize(
    ("name", "prefix", "mode"),
    [
        ("vit_small_patch14_reg4_dinov2.lvd142m", 5, "antialias"),
        ("vit_small_patch16_224.dino", 1, "official"),
        ("deit_small_patch16_224.fb_in1k", 1, "size"),
    ],
)
def test_load_timm_vit_has_prefix_tokens_and_family_mode(
    name: str, prefix: int, mode: str, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    tiny_timm(monkeypatch, name, depth=2, embed_dim=24, num_heads=3, img_size=56)
    source = timm.create_model(name, pretrained=False)
    cache.mkdir()
    safetensors.torch.save_file(source.state_dict(), cache / f"{name}.safetensors")
    assert is_local(name)
    model = load_model(name)
    patch = model.backbone.patch_embed.patch_size[0]
    assert model.backbone.num_prefix_tokens == prefix
    assert model.backbone.position_mode == mode
    assert model.config is None
    assert torch.equal(model.backbone.blocks[1].mlp.fc2.weight, source.blocks[1].mlp.fc2.weight)
    picture = torch.zeros(1, 3, 5 * patch - 3, 3 * patch)  # padded, not square
    assert model.backbone(picture).shape == (1, 24), "the classifier is off"
    assert attention_rows(model.backbone, picture, [0]).shape == (1, 3, 1, prefix + 15)


# --- files and runs


@pytest.mark.parametrize("teacher_prefix", ["", "module."])
def test_load_official_checkpoint_gives_teacher_or_student(tmp_path: Path, teacher_prefix: str):
    path = official_full_checkpoint(tmp_path / "checkpoint.pth", teacher_prefix)
    teacher = load_model(str(path))
    assert_holds(teacher, network(2))
    assert_holds(load_model(str(path), checkpoint_key="student"), network(1))
    assert teacher.config is not None
    assert teacher.config.position_mode == "official"
    assert teacher.source == "teacher of checkpoint.pth"


@pytest.mark.parametrize(
    ("suffix", "wrap"),
    [
        (".pth", lambda tensors: {"state_dict": prefixed(tensors, "module.")}),
        (".pt", lambda tensors: {"model": tensors}),
        (".pt", lambda tensors: tensors),
        (".safetensors", None),
    ],
)
def test_load_bare_backbone_infers_config(tmp_path: Path, wrap: Any, suffix: str):
    path = tmp_path / f"bare{suffix}"
    if suffix == ".safetensors":
        safetensors.torch.save_file(network(4), path)
    else:
        torch.save(wrap(network(4)), path)
    model = load_model(str(path))
    assert_holds(model, network(4))
    assert model.config == replace(SMALL, position_mode="size" if suffix == ".safetensors" else "official")
    with pytest.raises(WeightsError, match="has no student: it holds a single network"):
        load_model(str(path), checkpoint_key="student")


@pytest.mark.parametrize(
    "config",
    [
        BackboneConfig("vit_tiny", 16),
        BackboneConfig("vit_base", 8, 96),
        BackboneConfig("vit_small", 8, in_channels=1),
        BackboneConfig("vit_small", 16, 32, width=256, depth=3, heads=4),
        BackboneConfig("resnet50"),
    ],
)
def test_infer_config_of_tensors_equals_config(config: BackboneConfig):
    with torch.device("meta"):
        shapes = create_backbone(config).state_dict()
    assert infer_config(shapes, "here") == config


def test_load_run_gives_teacher_or_student(tmp_path: Path):
    odd = replace(SMALL, image_size=24, width=24, heads=6, in_channels=2, position_mode="official")
    folder = run_folder(tmp_path / "run", odd)
    for name in (folder, folder / "checkpoint.pt"):
        teacher = load_model(str(name))
        assert_holds(teacher, network(2, odd))
        assert (teacher.config, teacher.mean, teacher.std) == (odd, (0.0, 0.0), (1.0, 1.0))
    assert_holds(load_model(str(folder), checkpoint_key="student"), network(1, odd))
    with pytest.raises(WeightsError, match="has no ema: found teacher, student"):
        load_model(str(folder), checkpoint_key="ema")


def test_load_run_with_named_networks_takes_the_first(tmp_path: Path):
    """Whatever the method calls them: the configuration tells where in the state they are."""
    run = run_folder(tmp_path / "run", SMALL)
    config = json.loads((run / "config.json").read_text())
    networks = {"online": "student.backbone", "target": "teacher.backbone"}
    config |= {"networks": networks, "mean": [1, 2, 3], "std": [4, 5, 6]}
    (run / "config.json").write_text(json.dumps(config))
    usual, target = load_model(str(run)), load_model(str(run), checkpoint_key="target")
    assert_holds(usual, network(1, SMALL))
    assert_holds(target, network(2, SMALL))
    assert (usual.source, usual.mean, usual.std) == ("online of run", (1, 2, 3), (4, 5, 6))
    with pytest.raises(WeightsError, match="has no teacher: found online, target"):
        load_model(str(run), checkpoint_key="teacher")


# --- what must be refused


class Malicious:
    def __reduce__(self) -> tuple:
        return os.system, ("touch pwned",)


def test_load_pickle_with_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"teacher": network(2), "args": Malicious()}, "evil.pth")
    with pytest.raises(WeightsError, match=r"evil\.pth is refused: it holds \w+\.system, .*run code"):
        load_model("evil.pth")
    assert not Path("pwned").exists()


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"no checkpoint at all", None])
def test_load_broken_file_is_named(tmp_path: Path, suffix: str, content: bytes | None):
    path = tmp_path / f"broken{suffix}"
    if content is None:  # cut in the middle
        torch.save(network(1), path) if suffix == ".pth" else safetensors.torch.save_file(network(1), path)
        content = path.read_bytes()[:5000]
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=rf"broken\{suffix} is (refused|no readable)") as failure:
        load_model(str(path))
    assert "\n" not in str(failure.value)


def without(tensors: dict[str, Tensor], *names: str) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name not in names}


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (
            lambda: without(network(1), "blocks.1.mlp.fc1.weight", "norm.bias"),
            r"tensors 2 missing \(blocks.1.mlp.fc1.weight, norm.bias\)",
        ),
        (
            lambda: network(1) | {"blocks.1.attn.gate": torch.zeros(2)},
            r"1 not expected \(blocks.1.attn.gate\)",
        ),
        (
            lambda: network(1) | {"norm.bias": torch.zeros(7)},
            r"size mismatch for norm.bias: .*\[7\].*\[128\]",
        ),
        (lambda: network(1) | {"reg_token": torch.zeros(1, 4, 128)}, r"1 not expected \(reg_token\)"),
        (lambda: network(1) | {"pos_embed": torch.zeros(1, 16, 128)}, "expected a square grid and heads of"),
        (head, "holds no tensors of a backbone: found head.mlp.0.weight"),
        (dict, "holds no tensors of a backbone: found nothing"),
        (lambda: {"encoder.weight": torch.zeros(3)}, r"holds no DINO backbone: found 1 tensors \(encoder.we"),
        (lambda: {"student": network(1)}, "has no teacher: found student"),
        (lambda: {"teacher": torch.zeros(3)}, "holds no state dict: found a Tensor"),
        (lambda: {"state_dict": torch.zeros(3)}, "holds no state dict: found a Tensor"),
        (lambda: network(1) | {"pos_embed": torch.zeros(3)}, "holds no DINO backbone"),
        (lambda: network(1) | {"pos_embed": torch.zeros(1, 0, 64)}, "found 0 positions of width"),
    ],
)
def test_load_weights_that_do_not_fit_names_tensors(tmp_path: Path, payload: Any, message: str):
    torch.save(payload(), tmp_path / "weights.pth")
    with pytest.raises(WeightsError, match=message):
        load_model(str(tmp_path / "weights.pth"))


@pytest.mark.parametrize("name", OFFICIAL)
def test_parameters_of_published_models_are_those_of_their_backbones(name: str):
    with torch.device("meta"):
        backbone = create_backbone(OFFICIAL[name].config)
    assert OFFICIAL[name].parameters == sum(tensor.numel() for tensor in backbone.parameters())


@pytest.mark.parametrize(
    ("statistics", "message"),
    [
        ({"std": "[0.2, 0.2, 0.2]"}, r"KeyError\('mean'\)"),
        ({"mean": "{}", "std": "[0.2, 0.2, 0.2]"}, r"mean \(\)"),
        ({"mean": "[0.5, 0.5, NaN]", "std": "[0.2, 0.2, 0.2]"}, r"nan"),
        ({"mean": "[0.5, 0.5, 0.5]", "std": "[0.2, 0.2, 0.0]"}, r"0\.0\) for 3 channels"),
    ],
)
def test_load_described_file_with_wrong_mean_or_std_names_them(
    tmp_path: Path, statistics: dict[str, str], message: str
):
    described = {"format": FORMAT, "backbone": json.dumps(asdict(SMALL)), **statistics}
    safetensors.torch.save_file(network(0), tmp_path / "model.safetensors", described)
    with pytest.raises(WeightsError, match=f"does not describe a backbone: .*{message}"):
        load_model(str(tmp_path / "model.safetensors"))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", None, "is no training run: it has no config.json"),
        ("checkpoint.pt", None, "is no training run: it has no checkpoint.pt"),
        ("config.json", "{", "config.json does not describe a backbone"),
        ("config.json", "[]", "config.json does not describe a backbone"),
        ("config.json", '{"backbone": {"size": 3}}', "does not describe a backbone: .*size"),
        ("config.json", '{"backbone": {"width": "wide"}}', "cannot be created: "),
    ],
)
def test_load_folder_without_run_names_the_reason(
    tmp_path: Path, file: str, content: str | None, message: str
):
    folder = run_folder(tmp_path / "run")
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    with pytest.raises(WeightsError, match=message):
        load_model(str(folder))
