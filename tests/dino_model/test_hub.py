import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
from torch import Tensor, nn

from dino_model.catalogue import facts
from dino_model.checkpoints import WeightsError
from dino_model.commands import main
from dino_model.download import DownloadError
from dino_model.predictor import AttentionPredictor
from dino_model.weights import is_local, is_path, load_model

WIDTH, HEADS, DEPTH, PATCH, SIDE = 48, 3, 2, 8, 4
MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.3, 0.4]


@pytest.fixture(autouse=True)
def hf(cache: Path) -> Path:
    """Where the cache keeps repositories."""
    return cache / "hf"


def drawn(*shape: int, seed: list[int] = [0]) -> Tensor:  # noqa: B006 (another seed for every tensor)
    seed[0] += 1
    return 0.3 * torch.randn(shape, generator=torch.Generator().manual_seed(seed[0]))


def transformers_tensors(kind: str, gated: bool = False) -> dict[str, Tensor]:
    """Names as transformers writes them: modeling_vit.py, modeling_dinov2.py."""
    tensors = {
        "embeddings.cls_token": drawn(1, 1, WIDTH),
        "embeddings.position_embeddings": drawn(1, 1 + SIDE**2, WIDTH),
        "embeddings.patch_embeddings.projection.weight": drawn(WIDTH, 3, PATCH, PATCH),
        "embeddings.patch_embeddings.projection.bias": drawn(WIDTH),
    }
    dino = kind != "vit"
    if dino:
        tensors["embeddings.mask_token"] = drawn(1, WIDTH)
    if kind == "dinov2_with_registers":
        tensors["embeddings.register_tokens"] = drawn(1, 4, WIDTH)
    hidden = (2 * WIDTH, WIDTH) if gated else (4 * WIDTH, 4 * WIDTH)
    first, second = ("mlp.weights_in", "mlp.weights_out") if gated else ("mlp.fc1", "mlp.fc2")
    if not dino:
        first, second = "intermediate.dense", "output.dense"
    for block in range(DEPTH):
        layers = {f"attention.attention.{part}": (WIDTH, WIDTH) for part in ("query", "key", "value")}
        layers |= {"attention.output.dense": (WIDTH, WIDTH)}
        layers |= {first: (hidden[0], WIDTH), second: (WIDTH, hidden[1])}
        for name, shape in layers.items():
            tensors[f"encoder.layer.{block}.{name}.weight"] = drawn(*shape)
            tensors[f"encoder.layer.{block}.{name}.bias"] = drawn(shape[0])
        for name in ("norm1", "norm2") if dino else ("layernorm_before", "layernorm_after"):
            tensors[f"encoder.layer.{block}.{name}.weight"] = 1 + drawn(WIDTH)
            tensors[f"encoder.layer.{block}.{name}.bias"] = drawn(WIDTH)
        if dino:
            tensors[f"encoder.layer.{block}.layer_scale1.lambda1"] = drawn(WIDTH)
            tensors[f"encoder.layer.{block}.layer_scale2.lambda1"] = drawn(WIDTH)
    return tensors | {"layernorm.weight": 1 + drawn(WIDTH), "layernorm.bias": drawn(WIDTH)}


def described(kind: str, **more: object) -> dict:
    return {
        "model_type": kind,
        "hidden_size": WIDTH,
        "num_hidden_layers": DEPTH,
        "num_attention_heads": HEADS,
        "patch_size": PATCH,
        "layer_norm_eps": 1e-6,
        "use_swiglu_ffn": False,
    } | more


def repository(folder: Path, config: dict, tensors: dict[str, Tensor]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": MEAN, "image_std": STD}))
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


def plain_tokens(weights: dict[str, Tensor], images: Tensor, gated: bool) -> Tensor:
    """transformers' forward, written out from its own names: [1, tokens, width]."""

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x: Tensor, name: str) -> Tensor:
        return nn.functional.layer_norm(x, (WIDTH,), weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-6)

    projection = "embeddings.patch_embeddings.projection"
    x = nn.functional.conv2d(images, weights[f"{projection}.weight"], weights[f"{projection}.bias"], PATCH)
    x = torch.cat([weights["embeddings.cls_token"], x.flatten(2).transpose(1, 2)], dim=1)
    x = x + weights["embeddings.position_embeddings"]
    if "embeddings.register_tokens" in weights:
        x = torch.cat([x[:, :1], weights["embeddings.register_tokens"], x[:, 1:]], dim=1)
    dino = "encoder.layer.0.norm1.weight" in weights
    for block in range(DEPTH):
        at = f"encoder.layer.{block}."
        y = norm(x, at + ("norm1" if dino else "layernorm_before"))
        query, key, value = (
            linear(y, f"{at}attention.attention.{part}").unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        y = ((query @ key.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5).softmax(-1) @ value).transpose(1, 2)
        y = linear(y.flatten(2), f"{at}attention.output.dense")
        x = x + (y * weights[f"{at}layer_scale1.lambda1"] if dino else y)
        y = norm(x, at + ("norm2" if dino else "layernorm_after"))
        if gated:
            gate, up = linear(y, f"{at}mlp.weights_in").chunk(2, dim=-1)
            y = linear(nn.functional.silu(gate) * up, f"{at}mlp.weights_out")
        else:
            first, second = ("mlp.fc1", "mlp.fc2") if dino else ("intermediate.dense", "output.dense")
            y = linear(nn.functional.gelu(linear(y, at + first)), at + second)
        x = x + (y * weights[f"{at}layer_scale2.lambda1"] if dino else y)
    return norm(x, "layernorm")


@pytest.mark.parametrize(
    ("kind", "prefix", "gated"),
    [
        ("vit", "", False),
        ("vit", "vit.", False),
        ("dinov2", "", False),
        ("dinov2", "dinov2.", True),
        ("dinov2_with_registers", "", False),
    ],
)
def test_hub_transformers_vit_equals_plain_forward(kind: str, prefix: str, gated: bool, hf: Path):
    tensors = transformers_tensors(kind, gated)
    stored = {prefix + name: tensor for name, tensor in tensors.items()}
    stored |= {"pooler.dense.weight": drawn(WIDTH, WIDTH), "classifier.bias": drawn(5)}
    repository(hf / "somebody" / "small.vit", described(kind, use_swiglu_ffn=gated), stored)
    name = "hf:somebody/small.vit"
    assert is_local(name)
    assert not is_path(name)
    model = load_model(name)
    modes = {"vit": "size", "dinov2": "official", "dinov2_with_registers": "antialias"}
    assert (model.mean, model.std, model.backbone.position_mode) == (tuple(MEAN), tuple(STD), modes[kind])
    images = torch.randn(1, 3, PATCH * SIDE, PATCH * SIDE)
    with torch.no_grad():
        found = model.backbone.forward_features(images)
    torch.testing.assert_close(found, plain_tokens(tensors, images, gated), atol=1e-4, rtol=1e-4)
    assert f"({kind})" in facts(name).source


def dinov3_tensors(gated: bool, registers: int = 4) -> dict[str, Tensor]:
    """Names as transformers writes them for DINOv3."""
    tensors = {
        "embeddings.cls_token": drawn(1, 1, WIDTH),
        "embeddings.mask_token": drawn(1, 1, WIDTH),
        "embeddings.patch_embeddings.weight": drawn(WIDTH, 3, PATCH, PATCH),
        "embeddings.patch_embeddings.bias": drawn(WIDTH),
    }
    if registers:
        tensors["embeddings.register_tokens"] = drawn(1, registers, WIDTH)
    for block in range(DEPTH):
        at = f"layer.{block}."
        for part in "qkvo":
            tensors[f"{at}attention.{part}_proj.weight"] = drawn(WIDTH, WIDTH)
            if part != "k":
                tensors[f"{at}attention.{part}_proj.bias"] = drawn(WIDTH)
        for name in ("up", "gate") if gated else ("up",):
            tensors[f"{at}mlp.{name}_proj.weight"] = drawn(2 * WIDTH, WIDTH)
            tensors[f"{at}mlp.{name}_proj.bias"] = drawn(2 * WIDTH)
        tensors[f"{at}mlp.down_proj.weight"] = drawn(WIDTH, 2 * WIDTH)
        tensors[f"{at}mlp.down_proj.bias"] = drawn(WIDTH)
        for number in (1, 2):
            tensors[f"{at}norm{number}.weight"] = 1 + drawn(WIDTH)
            tensors[f"{at}norm{number}.bias"] = drawn(WIDTH)
            tensors[f"{at}layer_scale{number}.lambda1"] = drawn(WIDTH)
    return tensors | {"norm.weight": 1 + drawn(WIDTH), "norm.bias": drawn(WIDTH)}


def described_dinov3(gated: bool = False, registers: int = 4, **more: object) -> dict:
    return {
        "model_type": "dinov3_vit",
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": DEPTH,
        "num_attention_heads": HEADS,
        "num_register_tokens": registers,
        "patch_size": PATCH,
        "layer_norm_eps": 1e-5,
        "rope_theta": 50.0,
        "hidden_act": "silu" if gated else "gelu",
        "use_gated_mlp": gated,
        "query_bias": True,
        "key_bias": False,
        "value_bias": True,
    } | more


def rotated(x: Tensor, grid: tuple[int, int], theta: float) -> Tensor:
    """Patches [1, heads, patches, d] turned by their place: centres from -1 to 1, d / 4 periods a side."""
    d = x.shape[-1]
    places = [(2 * torch.arange(side) + 1) / side - 1 for side in grid]
    y, x_ = torch.meshgrid(*places, indexing="ij")
    speeds = 2 * torch.pi / theta ** (4 * torch.arange(d // 4) / d)
    angles = torch.cat([y.reshape(-1, 1) * speeds, x_.reshape(-1, 1) * speeds], dim=1).repeat(1, 2)
    first, second = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat([-second, first], dim=-1) * angles.sin()


def plain_dinov3_tokens(weights: dict[str, Tensor], images: Tensor, gated: bool) -> Tensor:
    """DINOv3's forward from transformers' names: [1, tokens, width]."""

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", torch.zeros(1))

    def norm(x: Tensor, name: str) -> Tensor:
        return nn.functional.layer_norm(x, (WIDTH,), weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-5)

    embedding = "embeddings.patch_embeddings"
    x = nn.functional.conv2d(images, weights[f"{embedding}.weight"], weights[f"{embedding}.bias"], PATCH)
    grid = (x.shape[2], x.shape[3])
    prefix = [weights["embeddings.cls_token"]]
    if "embeddings.register_tokens" in weights:
        prefix.append(weights["embeddings.register_tokens"])
    x = torch.cat([*prefix, x.flatten(2).transpose(1, 2)], dim=1)
    still = x.shape[1] - grid[0] * grid[1]
    for block in range(DEPTH):
        at = f"layer.{block}."
        y = norm(x, f"{at}norm1")
        query, key, value = (
            linear(y, f"{at}attention.{part}_proj").unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in "qkv"
        )
        query, key = (
            torch.cat([part[:, :, :still], rotated(part[:, :, still:], grid, 50)], dim=2)
            for part in (query, key)
        )
        y = ((query @ key.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5).softmax(-1) @ value).transpose(1, 2)
        x = x + linear(y.flatten(2), f"{at}attention.o_proj") * weights[f"{at}layer_scale1.lambda1"]
        y = norm(x, f"{at}norm2")
        up = linear(y, f"{at}mlp.up_proj")
        y = nn.functional.silu(linear(y, f"{at}mlp.gate_proj")) * up if gated else nn.functional.gelu(up)
        x = x + linear(y, f"{at}mlp.down_proj") * weights[f"{at}layer_scale2.lambda1"]
    return norm(x, "norm")


@pytest.mark.parametrize(("gated", "registers", "prefix"), [(False, 4, ""), (True, 1, "dinov3_vit.")])
def test_hub_transformers_dinov3_equals_plain_forward(gated: bool, registers: int, prefix: str, hf: Path):
    tensors = dinov3_tensors(gated, registers)
    config = described_dinov3(gated, registers)
    repository(hf / "a" / "b", config, {prefix + name: tensor for name, tensor in tensors.items()})
    model = load_model("hf:a/b")
    for height, width in ((32, 32), (48, 24)):
        images = torch.randn(1, 3, height, width)
        with torch.no_grad():
            found = model.backbone.forward_features(images)
        expected = plain_dinov3_tokens(tensors, images, gated)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    predictor = AttentionPredictor(model, size=32, precision="fp32", device="cpu")
    predictor.set_image(np.random.default_rng(0).integers(0, 256, (48, 32, 3), np.uint8))
    assert predictor.cls_attention().shape == (HEADS, 6, 4)
    assert "(dinov3_vit)" in facts("hf:a/b").source


def test_hub_timm_repository_loads_strictly(hf: Path):
    model = timm.create_model("test_vit", num_classes=7)
    config = {
        "architecture": "test_vit",
        "num_classes": 7,
        "pretrained_cfg": {"mean": MEAN, "std": STD},
    }
    repository(hf / "timm" / "test_vit.r160", config, model.state_dict())
    loaded = load_model("hf:timm/test_vit.r160")
    assert loaded.std == tuple(STD)
    for name, tensor in loaded.backbone.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])
    (hf / "timm" / "test_vit.r160" / "config.json").write_text(json.dumps(config | {"num_classes": 8}))
    with pytest.raises(WeightsError, match="do not fit"):
        load_model("hf:timm/test_vit.r160")


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        (
            {"model_type": "swin"},
            {},
            "holds a swin: expected a repository of timm's or one of transformers' vit",
        ),
        ({}, {}, "a model of no named kind"),
        ({"architecture": "vit_of_tomorrow"}, {}, "'vit_of_tomorrow', which timm .* does not have"),
        ({"model_type": "dinov2"}, {}, "does not describe a dinov2: KeyError"),
        (
            described("dinov2"),
            {"encoder.layer.0.adapter.weight": 1},
            "'encoder.layer.0.adapter.weight', which no",
        ),
        (described("dinov2"), {"layernorm.bias": None}, r"of \d+ tensors 1 missing \(norm.bias\)"),
        (described("dinov2"), {"layernorm.bias": 2 * WIDTH}, "of another shape"),
        (
            described("dinov2"),
            {"encoder.layer.1.attention.attention.key.bias": None},
            "without keys and values",
        ),
    ],
)
def test_hub_weights_that_do_not_fit_are_refused(config: dict, change: dict, message: str, hf: Path):
    tensors = transformers_tensors("dinov2")
    for name, value in change.items():
        if value is None:
            del tensors[name]
        else:
            tensors[name] = drawn(value)
    repository(hf / "a" / "b", config, tensors)
    with pytest.raises(WeightsError, match=message):
        load_model("hf:a/b")


def test_hub_broken_or_missing_files_are_named(hf: Path):
    with pytest.raises(DownloadError, match=f"put it at {hf / 'a' / 'b' / 'config.json'}"):
        load_model("hf:a/b")
    assert not is_local("hf:a/b")
    with pytest.raises(WeightsError, match="is not on this machine, and `show` downloads nothing"):
        facts("hf:a/b")
    with pytest.raises(WeightsError, match="names no repository: write hf:owner/name"):
        load_model("hf:a")
    repository(hf / "a" / "b", described("vit"), transformers_tensors("vit"))
    (hf / "a" / "b" / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(WeightsError, match=r"no readable \.safetensors"):
        load_model("hf:a/b")
    (hf / "a" / "b" / "config.json").write_text("[1]")
    with pytest.raises(WeightsError, match="holds a list"):
        load_model("hf:a/b")


def test_list_timm_shows_readable_maps(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    main(["list", "--timm", "vit_small_*dinov3.*", "--json", str(tmp_path / "list.json")])
    shown = capsys.readouterr().out
    assert (
        "vit_small_patch16_dinov3.lvd1689m\n    ViT (Eva), patches of 16, 12 blocks × 384, 6 heads" in shown
    )
    assert "4 registers; 21.6 M parameters; licence dinov3-license; here: no, 86 MB" in shown
    assert "maps of [CLS] and of points" in shown
    assert json.loads((tmp_path / "list.json").read_text())[0]["parameters"] > 21e6
    main(["list", "--timm", "resnet18.a1*"])
    assert "none: the attention of a ResNet cannot be read: expected one of" in capsys.readouterr().out
    with pytest.raises(WeightsError, match="timm has no weights whose name matches"):
        main(["list", "--timm", "nothing_of_the_kind"])
