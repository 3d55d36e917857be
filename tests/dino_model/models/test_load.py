import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch
from torch import Tensor

from dino_model.data.images import IMAGENET_MEAN, IMAGENET_STD
from dino_model.models import catalogue
from dino_model.models.attention import attention_rows
from dino_model.models.backbones import BackboneConfig, create_backbone
from dino_model.models.catalogue import OFFICIAL, WeightsError, is_local, is_path
from dino_model.models.checkpoint import FORMAT, write_safetensors
from dino_model.models.load import LoadedModel, load_model

pytestmark = pytest.mark.usefixtures("cache")

# A width of published models, as bare files must have: everything else as small as can be.
SMALL = BackboneConfig("vit_small", patch_size=8, image_size=32, width=192, depth=2, heads=3)
HEAD = {"head.mlp.0.weight": torch.zeros(4, 192), "head.last_layer.weight_v": torch.zeros(8, 4)}


def network(seed: int, config: BackboneConfig = SMALL) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return create_backbone(config).state_dict()


def prefixed(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def run_folder(folder: Path, config: BackboneConfig = SMALL, **settings: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"backbone": asdict(config), **settings}))
    student, teacher = (
        prefixed(network(seed, config), f"{name}.backbone.")
        for seed, name in enumerate(("student", "teacher"), start=1)
    )
    method = student | teacher | prefixed(HEAD, "student.") | {"center": torch.zeros(8)}
    torch.save({"format": 1, "step": 5, "method": method}, folder / "checkpoint.pt")
    return folder


def assert_holds(model: LoadedModel, expected: dict[str, Tensor]) -> None:
    found = model.backbone.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_load_random_is_equal_each_time_and_keeps_the_seed():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = load_model("random:vit_small/5")
    assert torch.equal(torch.rand(3), expected)
    assert_holds(load_model("random:vit_small/5"), first.backbone.state_dict())
    assert first.config == BackboneConfig("vit_small", 5)
    torch.manual_seed(0)
    assert_holds(first, create_backbone(first.config).state_dict())
    assert not first.backbone.training
    assert not any(tensor.requires_grad for tensor in first.backbone.parameters())
    assert (first.mean, first.std) == (IMAGENET_MEAN, IMAGENET_STD)
    assert is_local("random:vit_small/5")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("random:vit_tiny", "names no architecture: write random:embedded"),
        ("random:vit_tiny/0", "patch_size is 0|smaller"),
        ("no such model", "unknown model 'no such model': give one of embedded, embedded-dino, dino_vits16"),
        ("dino_vits61", "did you mean dino_vits16"),
        ("facebook/dinov2-small", "mean hf:facebook/dinov2-small"),
        ("./folder", "no file or folder 'folder'"),
        ("vit_smal", r"did you mean random:vit_small/16 or \S+\.in1k"),
        ("", "unknown model ''"),
        ("missing.pth", "no file or folder 'missing.pth'"),
        ("vit_small_patch16_224.nonsense", "timm has no such weights: Invalid pretrained tag"),
        ("vit_huge_patch14_gap_224.in1k_ijepa", "publishes no .safetensors weights"),
    ],
)
def test_load_unknown_name_lists_known_names(name: str, message: str):
    with pytest.raises(WeightsError, match=message):
        load_model(name)


def test_name_of_a_model_is_no_path_beside_a_folder_of_its_name(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("dino_vits16", "embedded"):
        Path(name).mkdir()
        assert (is_path(name), is_path(f"./{name}")) == (False, True)


@pytest.mark.parametrize("name", OFFICIAL)
def test_load_official_weights_from_cache(name: str, cache: Path, monkeypatch: pytest.MonkeyPatch):
    published = OFFICIAL[name]
    with torch.device("meta"):
        parameters = create_backbone(published.config).parameters()
    assert published.parameters == sum(tensor.numel() for tensor in parameters)
    assert not is_local(name)
    mode = published.config.position_mode
    small = replace(SMALL if "vit" in name else BackboneConfig("resnet50"), position_mode=mode)
    monkeypatch.setitem(OFFICIAL, name, replace(published, config=small))
    cache.mkdir()
    torch.save(network(3, small), cache / published.file.name)
    model = load_model(name)
    assert_holds(model, network(3, small))
    assert is_local(name)
    assert getattr(model.backbone, "position_mode", "official") == "official"


def test_load_embedded_and_its_random_architecture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(catalogue.EMBEDDED, "embedded", tmp_path / "model.safetensors")
    torch.manual_seed(3)  # not that of random models
    backbone = create_backbone(SMALL)
    write_safetensors(backbone, catalogue.EMBEDDED["embedded"], config=SMALL, mean=(0.1,) * 3, std=(0.2,) * 3)
    model = load_model()
    assert_holds(model, backbone.state_dict())
    assert (model.name, model.config, model.mean, model.std) == ("embedded", SMALL, (0.1,) * 3, (0.2,) * 3)
    random = load_model("random:embedded")
    assert (random.config, random.mean) == (SMALL, (0.1,) * 3)
    assert not torch.equal(random.backbone.blocks[0].attn.qkv.weight, backbone.blocks[0].attn.qkv.weight)


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
    create, small = timm.create_model, {"depth": 2, "embed_dim": 24, "num_heads": 3, "img_size": 56}
    monkeypatch.setattr(timm, "create_model", lambda model, **options: create(model, **small, **options))
    source = timm.create_model(name, pretrained=False)
    cache.mkdir()
    safetensors.torch.save_file(source.state_dict(), cache / f"{name}.safetensors")
    assert is_local(name)
    vit = load_model(name).backbone
    patch = vit.patch_embed.patch_size[0]
    assert (vit.num_prefix_tokens, vit.position_mode) == (prefix, mode)
    assert torch.equal(vit.blocks[1].mlp.fc2.weight, source.blocks[1].mlp.fc2.weight)
    image = torch.zeros(1, 3, 5 * patch - 3, 3 * patch)  # padded, not square
    assert vit(image).shape == (1, 24), "the classifier is off"
    assert attention_rows(vit, image, [0]).shape == (1, 3, 1, prefix + 15)


@pytest.mark.parametrize("teacher_prefix", ["", "module."])
def test_load_official_checkpoint_gives_teacher_or_student(tmp_path: Path, teacher_prefix: str):
    """A checkpoint as the official training code writes it: DDP student, pickled Namespace, optimizer."""
    payload = {
        "student": prefixed(prefixed(network(1), "backbone.") | HEAD, "module."),
        "teacher": prefixed(prefixed(network(2), "backbone.") | HEAD, teacher_prefix),
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1}]},
        "args": argparse.Namespace(arch="vit_small", use_fp16=True, local_crops_scale=(0.05, 0.4)),
        "dino_loss": {"center": torch.zeros(1, 8)},
    }
    path = str(tmp_path / "checkpoint.pth")
    torch.save(payload, path)
    teacher = load_model(path)
    assert_holds(teacher, network(2))
    assert_holds(load_model(path, checkpoint_key="student"), network(1))
    assert (teacher.config, teacher.source) == (
        replace(SMALL, position_mode="official"),
        "teacher of checkpoint.pth, 3 heads as in DINO, without 2 tensors of head (not used: student)",
    )


@pytest.mark.parametrize("mode", ["size", "official"])
def test_load_bare_backbone_infers_config(tmp_path: Path, mode: str):
    path = tmp_path / "bare.safetensors"
    if mode == "size":
        safetensors.torch.save_file(network(4), path)
    else:
        torch.save({"model": network(4)}, path := tmp_path / "bare.pt")
    model = load_model(str(path))
    assert_holds(model, network(4))
    assert model.config == replace(SMALL, position_mode=mode)
    with pytest.raises(WeightsError, match="has no student: it holds a single network"):
        load_model(str(path), checkpoint_key="student")
    assert load_model(str(path), heads=1).backbone.blocks[0].attn.num_heads == 1
    one_patch = replace(SMALL, image_size=8, position_mode="official")
    torch.save(network(4, one_patch), tmp_path / "one.pth")
    assert load_model(str(tmp_path / "one.pth")).config == one_patch


def test_load_bare_resnet_infers_its_channels(tmp_path: Path):
    config = BackboneConfig("resnet50", in_channels=5)
    torch.save(network(4, config), tmp_path / "resnet.pth")
    model = load_model(str(tmp_path / "resnet.pth"))
    assert_holds(model, network(4, config))
    assert model.config == replace(config, position_mode="official")


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
    networks = {"online": "student.backbone", "target": "teacher.backbone"}
    run = str(run_folder(tmp_path / "run", networks=networks, mean=[1, 2, 3], std=[4, 5, 6]))
    first = load_model(run)
    assert_holds(first, network(1))
    assert_holds(load_model(run, checkpoint_key="target"), network(2))
    assert (first.source, first.mean, first.std) == ("online of run", (1, 2, 3), (4, 5, 6))
    with pytest.raises(WeightsError, match="has no teacher: found online, target"):
        load_model(run, checkpoint_key="teacher")


def changed(**tensors: Tensor | None) -> dict[str, Tensor]:
    """Return a network with other tensors, None: without them; __ is a dot."""
    found = network(1) | {name.replace("__", "."): tensor for name, tensor in tensors.items()}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (changed(blocks__1__norm1__bias=None, norm__bias=None), "2 missing .blocks.1.norm1.bias, norm.bias"),
        (changed(blocks__1__attn__gate=torch.zeros(2)), "1 not expected .blocks.1.attn.gate"),
        (changed(norm__bias=torch.zeros(7)), r"size mismatch for norm.bias: .*\[7\].*\[192\]"),
        (changed(reg_token=torch.zeros(1, 4, 192)), "17 positions and 5 prefix tokens are no square grid"),
        (HEAD, "holds no backbone, ViT or ResNet-50: found 2 tensors .head.mlp.0.weight"),
        (
            changed(patch_embed__proj__weight=torch.zeros(192, 3, 8, 8, dtype=torch.int8)),
            "quantized weights .patch_embed.proj.we",
        ),
        (changed(pos_embed=None), "holds no ViT: .* as timm's Swin, BEiT and DINOv3 do"),
        (changed(pos_embed=torch.zeros(1, 4, 4, 192)), "holds no ViT"),
        ({"student": network(1)}, "has no teacher: found student; pass --checkpoint-key student"),
    ],
)
def test_load_weights_that_do_not_fit_names_tensors(tmp_path: Path, payload: dict, message: str):
    torch.save(payload, tmp_path / "weights.pth")
    with pytest.raises(WeightsError, match=message):
        load_model(str(tmp_path / "weights.pth"))


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        (None, "[1, 1, 1]", r"KeyError\('mean'\)"),
        ("[0.5, 0.5, NaN]", "[1, 1, 1]", "nan"),
        ("[0.5, 0.5, 0.5]", "[1, 1, 0.0]", r"0\.0\) for 3 channels"),
    ],
)
def test_load_described_file_with_wrong_mean_or_std_names_them(tmp_path: Path, mean, std, message):
    metadata = {"format": FORMAT, "backbone": json.dumps(asdict(SMALL)), "std": std}
    metadata |= {} if mean is None else {"mean": mean}
    safetensors.torch.save_file(network(0), tmp_path / "model.safetensors", metadata)
    with pytest.raises(WeightsError, match=f"does not describe a backbone: .*{message}"):
        load_model(str(tmp_path / "model.safetensors"))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", None, r"it has no config.json; it holds checkpoint\.pt: pass a file"),
        ("checkpoint.pt", None, "is no training run: it has no checkpoint.pt"),
        ("config.json", "{", "config.json is no readable JSON"),
        ("config.json", '{"backbone": {"size": 3}}', "does not describe a backbone: .*size"),
        ("config.json", '{"backbone": {"width": "wide"}}', "cannot be created: "),
    ],
)
def test_load_folder_without_run_names_the_reason(tmp_path: Path, file: str, content: str | None, message):
    folder = run_folder(tmp_path / "run")
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    with pytest.raises(WeightsError, match=message):
        load_model(str(folder))
