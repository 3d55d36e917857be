"""Repositories of Hugging Face, read and written: timm's, and transformers' with other names."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
from torch import Tensor, nn

from dino_model.data.images import IMAGENET_MEAN
from dino_model.inference.predictor import AttentionPredictor
from dino_model.models import position
from dino_model.models.backbones import BackboneConfig, create_backbone
from dino_model.models.catalogue import WeightsError, is_local, is_path
from dino_model.models.description import describe_model
from dino_model.models.export import write_transformers
from dino_model.models.load import LoadedModel, load_model
from dino_model.runtime.download import DownloadError
from tests.commands import dino
from tests.dino_model.models.test_official import assert_equal_tokens, dinov2, dinov3, randomized

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
MODES = {"vit": "size", "dinov2": "official", "dinov2_with_registers": "antialias"}
KINDS = [("vit", False), ("dinov2", False), ("dinov2", True), ("dinov2_with_registers", False)]
NORMS = ("norm1", "norm2")
LAYERS = {  # transformers' names of norm1, norm2 and the two layers of the MLP
    KINDS[0]: ("layernorm_before", "layernorm_after", "intermediate.dense", "output.dense"),
    KINDS[1]: (*NORMS, "mlp.fc1", "mlp.fc2"),
    KINDS[2]: (*NORMS, "mlp.weights_in", "mlp.weights_out"),
    KINDS[3]: (*NORMS, "mlp.fc1", "mlp.fc2"),
}


@pytest.fixture(autouse=True)
def repository(cache: Path) -> Path:
    """Folder of hf:me/tiny in the cache."""
    return cache / "hf" / "me" / "tiny"


def tiny(kind: str, gated: bool = False) -> LoadedModel:
    """A small model with random weights, also where training begins at 0 or 1."""
    config = BackboneConfig(patch_size=14, image_size=56, width=192, depth=2, heads=3)
    model = randomized(create_backbone(config))
    if kind != "vit":
        model, _ = dinov2(4 if kind == "dinov2_with_registers" else 0, gated)
    return LoadedModel("tiny", model, MEAN, STD, "a test", None)


def transformers_names(kind: str, gated: bool) -> set[str]:
    """Names as transformers writes them: modeling_vit.py, modeling_dinov2.py."""
    attention = (f"attention.attention.{part}" for part in ("query", "key", "value"))
    layers = [*attention, "attention.output.dense", *LAYERS[kind, gated]]
    blocks = [f"encoder.layer.{block}." for block in range(2)]
    stems = [f"{block}{layer}" for block in blocks for layer in layers]
    stems += ["embeddings.patch_embeddings.projection", "layernorm"]
    names = {f"{stem}.{end}" for stem in stems for end in ("weight", "bias")}
    names |= {"embeddings.cls_token", "embeddings.position_embeddings"}
    if kind != "vit":
        names |= {f"{block}layer_scale{number}.lambda1" for block in blocks for number in (1, 2)}
        names.add("embeddings.mask_token")
    return names | ({"embeddings.register_tokens"} if "registers" in kind else set())


@pytest.mark.parametrize(("kind", "gated"), KINDS)
def test_exported_folder_has_transformers_names_and_reads_back_equal(kind, gated, repository: Path):
    model = tiny(kind, gated)
    write_transformers(model, repository)
    tensors = safetensors.torch.load_file(repository / "model.safetensors")
    assert tensors.keys() == transformers_names(kind, gated)
    block = model.backbone.blocks[1]
    expected = dict(
        zip(LAYERS[kind, gated], (block.norm1, block.norm2, block.mlp.fc1, block.mlp.fc2), strict=True)
    )
    weights = {name: layer.weight for name, layer in expected.items()}
    for part, weight in zip(("query", "key", "value"), block.attn.qkv.weight.chunk(3), strict=True):
        weights[f"attention.attention.{part}"] = weight
    assert all(torch.equal(tensors[f"encoder.layer.1.{name}.weight"], weights[name]) for name in weights)
    assert ("add_pooling_layer" in (repository / "README.md").read_text()) == (kind == "vit")

    stored = {f"{kind}.{name}": tensor for name, tensor in tensors.items()}  # as classifiers are stored
    stored |= {"pooler.dense.weight": torch.zeros(3, 3), "classifier.bias": torch.zeros(5)}
    safetensors.torch.save_file(stored, repository / "model.safetensors")
    assert (is_local("hf:me/tiny"), is_path("hf:me/tiny")) == (True, False)
    loaded = load_model("hf:me/tiny")
    assert (loaded.mean, loaded.std, loaded.backbone.position_mode) == (MEAN, STD, MODES[kind])
    assert_equal_tokens(loaded.backbone, model.backbone, 56, 56)
    assert f"({kind})" in describe_model("hf:me/tiny").source


def assert_same_model(name: Path, model: LoadedModel) -> LoadedModel:
    loaded = load_model(str(name))
    for height, width in ((56, 56), (42, 70)):
        assert_equal_tokens(loaded.backbone, model.backbone, height, width)
    assert (loaded.mean, loaded.std) == (model.mean, model.std)
    return loaded


@pytest.mark.parametrize(("kind", "gated"), KINDS)
def test_local_folder_of_own_export_loads_as_its_source(kind, gated, tmp_path: Path):
    model, folder = tiny(kind, gated), tmp_path / "export"
    mode = MODES[kind] if kind != "vit" else "official"  # as DINO's own, which no name of a folder tells
    position.install(model.backbone, mode)
    write_transformers(model, folder)
    assert assert_same_model(folder, model).source == f"{folder} ({kind})"
    assert assert_same_model(folder / "model.safetensors", model).backbone.position_mode == mode
    (folder / "model.safetensors").rename(folder / "weights-of-mine.safetensors")
    assert_same_model(folder / "weights-of-mine.safetensors", model)
    with pytest.raises(WeightsError, match=r"export has no weights: expected model.safetensors or pytorch_m"):
        load_model(str(folder))
    with pytest.raises(WeightsError, match="has 3 heads, but --heads is 6: pass --heads 3"):
        load_model(str(folder / "weights-of-mine.safetensors"), heads=6)
    (folder / "config.json").unlink()
    with pytest.raises(WeightsError, match=r"has transformers' names: put its config\.json next to it"):
        load_model(str(folder / "weights-of-mine.safetensors"))


def test_local_folder_of_classifier_in_a_pickle_loads(tmp_path: Path):
    model = tiny("vit")
    write_transformers(model, tmp_path)
    tensors = {f"vit.{k}": v for k, v in safetensors.torch.load_file(tmp_path / "model.safetensors").items()}
    tensors["classifier.weight"] = torch.zeros(5, 192)
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    assert_same_model(tmp_path, model)
    (tmp_path / "preprocessor_config.json").unlink()
    loaded = load_model(str(tmp_path))
    assert loaded.mean == IMAGENET_MEAN
    assert "ImageNet's mean and deviation assumed" in loaded.source


def test_export_command_writes_a_transformers_folder_with_provenance(tmp_path: Path):
    output = tmp_path / "embedded"
    dino(["export", "embedded", "--output", str(output)])
    files = ["README.md", "config.json", "model.safetensors", "preprocessor_config.json", "provenance.json"]
    assert sorted(path.name for path in output.iterdir()) == files
    with pytest.raises(WeightsError, match="ResNet: transformers' ViT and DINOv2 hold ViTs"):
        write_transformers(load_model("random:resnet50"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def transformers_dinov3(official: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of DINOv3 under transformers' names: modeling_dinov3_vit.py."""
    parts = {"cls_token": "embeddings.cls_token", "mask_token": "embeddings.mask_token",
             "storage_tokens": "embeddings.register_tokens",
             "patch_embed.proj": "embeddings.patch_embeddings",
             "blocks.": "layer.", "attn.proj": "attention.o_proj", "ls1.gamma": "layer_scale1.lambda1",
             "ls2.gamma": "layer_scale2.lambda1", "mlp.fc1": "mlp.up_proj", "mlp.fc2": "mlp.down_proj",
             "mlp.w1": "mlp.gate_proj", "mlp.w2": "mlp.up_proj", "mlp.w3": "mlp.down_proj"}  # fmt: skip
    renamed = {}
    for name, tensor in official.items():
        for old, new in parts.items():
            name = name.replace(old, new)
        rows = {name: tensor}
        if ".attn.qkv." in name:
            chunks = zip("qkv", tensor.chunk(3), strict=True)
            rows = {name.replace("attn.qkv", f"attention.{part}_proj"): chunk for part, chunk in chunks}
        renamed |= {key: value.contiguous() for key, value in rows.items()}
    without = ("k_proj.bias", "bias_mask")
    return {key: value for key, value in renamed.items() if not key.endswith(without)}


def store(folder: Path, config: dict, tensors: dict[str, Tensor]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": MEAN, "image_std": STD}))
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(("gated", "prefix"), [(False, ""), (True, "dinov3_vit.")])
def test_hub_transformers_dinov3_equals_timms_model(gated: bool, prefix: str, repository: Path):
    model, official = dinov3(gated, theta=50.0)
    tensors = transformers_dinov3(official)
    tensors = {prefix + name: tensor for name, tensor in tensors.items() if not name.startswith("rope")}
    config = {"model_type": "dinov3_vit", "num_attention_heads": 3, "layer_norm_eps": 1e-5, "rope_theta": 50}
    store(repository, config, tensors)
    loaded = load_model("hf:me/tiny")
    for height, width in ((64, 64), (96, 48)):
        assert_equal_tokens(loaded.backbone, model, height, width)
    predictor = AttentionPredictor(loaded, size=32, precision="fp32", device="cpu")
    predictor.set_image(np.random.default_rng(0).integers(0, 256, (48, 32, 3), np.uint8))
    assert predictor.cls_attention().shape == (3, 3, 2)


@pytest.mark.parametrize("is_local", [False, True])
def test_timm_repository_or_folder_loads_strictly(repository: Path, tmp_path: Path, is_local: bool):
    model: nn.Module = randomized(timm.create_model("test_vit", num_classes=7))
    folder, name = (tmp_path, str(tmp_path)) if is_local else (repository, "hf:me/tiny")
    config = {"architecture": "test_vit", "num_classes": 7}
    config |= {"pretrained_cfg": {"mean": MEAN, "std": STD, "tag": "a"}}
    store(folder, config, model.state_dict())
    loaded = load_model(name)
    place = name if is_local else "https://huggingface.co/me/tiny"
    assert (loaded.mean, loaded.std, loaded.source) == (MEAN, STD, f"{place} (timm test_vit.a)")
    for key, tensor in loaded.backbone.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[key])
    model.reset_classifier(0)
    with torch.no_grad():
        torch.testing.assert_close(*(vit(torch.ones(1, 3, 160, 160)) for vit in (model, loaded.backbone)))
    store(folder, config | {"num_classes": 8}, model.state_dict())
    with pytest.raises(WeightsError, match="do not fit"):
        load_model(name)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "swin"}, "kind 'swin': expected timm's, or vit"),
        ({}, "a model of kind None"),
        ({"architecture": "vit_of_tomorrow"}, "'vit_of_tomorrow', which timm .* does not have"),
        ({"architecture": "test_vit"}, "does not describe its normalization"),
        (
            {
                "architecture": "test_vit",
                "pretrained_cfg": {"mean": MEAN, "std": STD},
                "model_args": {"x": 1},
            },
            "do not fit: .* unexpected keyword argument 'x'",
        ),
        ({"model_type": "dinov2"}, "does not describe a dinov2: KeyError"),
        ([1], "holds a list"),
    ],
)
def test_hub_model_of_another_kind_is_refused(config: object, message: str, repository: Path):
    store(repository, config, {"x": torch.zeros(1)})
    with pytest.raises(WeightsError, match=message):
        load_model("hf:me/tiny")


@pytest.mark.parametrize(
    ("name", "width", "message"),
    [
        ("encoder.layer.0.adapter.weight", 1, "'encoder.layer.0.adapter.weight', which no"),
        ("layernorm.bias", 0, r"tensors 1 missing \(norm.bias\)"),
        ("layernorm.bias", 256, "size mismatch for norm.bias"),
        ("encoder.layer.1.attention.attention.key.bias", 0, "without keys and values"),
    ],
)
def test_hub_weights_that_do_not_fit_are_refused(name: str, width: int, message: str, repository: Path):
    write_transformers(tiny("dinov2"), repository)
    tensors = safetensors.torch.load_file(repository / "model.safetensors")
    tensors[name] = torch.zeros(width)
    if not width:
        del tensors[name]
    safetensors.torch.save_file(tensors, repository / "model.safetensors")
    with pytest.raises(WeightsError, match=message):
        load_model("hf:me/tiny")


def test_hub_broken_or_missing_files_are_named(repository: Path):
    with pytest.raises(DownloadError, match=f"put it at {repository / 'config.json'}"):
        load_model("hf:me/tiny")
    assert not is_local("hf:me/tiny")
    with pytest.raises(WeightsError, match="is not on this machine, and `show` downloads nothing"):
        describe_model("hf:me/tiny")
    with pytest.raises(WeightsError, match="names no repository: write hf:owner/name"):
        load_model("hf:a")
    write_transformers(tiny("vit"), repository)
    (repository / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(WeightsError, match="it begins with b'no t'"):
        load_model("hf:me/tiny")
