"""Official DINOv2 and DINOv3 files: structure as published, weights drawn here."""

from pathlib import Path

import pytest
import timm
import torch
from torch import Tensor, nn

from dino_model.models.catalogue import WeightsError
from dino_model.models.load import load_model

WIDTH, DEPTH = 192, 2
SMALL = {"num_classes": 0, "embed_dim": WIDTH, "depth": DEPTH, "num_heads": WIDTH // 64}


def randomized(model: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model.eval()


def dinov2(registers: int, gated: bool) -> tuple[nn.Module, dict[str, Tensor]]:
    """A model of timm's, and its tensors as DINOv2 publishes them: [CLS] apart from its position."""
    name = f"vit_{'giant' if gated else 'small'}_patch14{'_reg4' if registers else ''}_dinov2"
    options = {"mlp_ratio": 5.3334} if gated else {}
    model = randomized(timm.create_model(name, img_size=56, dynamic_img_size=True, **SMALL, **options))
    tensors = dict(model.state_dict())
    if registers:
        cls_position = torch.randn(1, 1, WIDTH)
        tensors["register_tokens"] = tensors.pop("reg_token")
        tensors["cls_token"] = tensors["cls_token"] - cls_position
        tensors["pos_embed"] = torch.cat([cls_position, tensors["pos_embed"]], dim=1)
    if gated:
        names = {"mlp.fc1": "mlp.w12", "mlp.fc2": "mlp.w3"}
        for name in [name for name in tensors if ".mlp." in name]:
            old = next(old for old in names if old in name)
            tensors[name.replace(old, names[old])] = tensors.pop(name)
    return model, tensors | {"mask_token": torch.zeros(1, WIDTH)}


def dinov3(gated: bool, theta: float = 100.0) -> tuple[nn.Module, dict[str, Tensor]]:
    """A model of timm's, and its tensors as DINOv3 publishes them: biases of q, k, v in one, k's masked."""
    options = {"mlp_ratio": 2, "rope_temperature": theta, "global_pool": "token"}
    options |= {"swiglu_align_to": 1} if gated else {}
    name = f"vit_small{'_plus' if gated else ''}_patch16_dinov3_qkvb"
    model = randomized(timm.create_model(name, **SMALL, **options))
    names = {"reg_token": "storage_tokens", "mlp.fc1_g.": "mlp.w1.", "mlp.fc1_x.": "mlp.w2.",
             "gamma_1": "ls1.gamma", "gamma_2": "ls2.gamma"}  # fmt: skip
    names |= {"mlp.fc2.": "mlp.w3."} if gated else {}
    tensors = {}
    for name, tensor in model.state_dict().items():
        for old, new in names.items():
            name = name.replace(old, new)
        tensors[name] = tensor
    for block in range(DEPTH):
        at = f"blocks.{block}.attn."
        query, value = tensors.pop(f"{at}q_bias"), tensors.pop(f"{at}v_bias")
        tensors.pop(f"{at}k_bias", None)
        tensors[f"{at}qkv.bias"] = torch.cat([query, torch.zeros(WIDTH), value])
        tensors[f"{at}qkv.bias_mask"] = torch.ones(3 * WIDTH)
    tensors["rope_embed.periods"] = torch.ones(16)
    return model, tensors | {"mask_token": torch.zeros(1, WIDTH)}


def assert_equal_tokens(found: nn.Module, expected: nn.Module, height: int, width: int) -> None:
    images = torch.randn(2, 3, height, width)
    with torch.no_grad():
        tokens = [model.forward_features(images) for model in (found, expected)]
    torch.testing.assert_close(*tokens, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("registers", "gated"), [(0, False), (4, False), (0, True)])
def test_official_dinov2_file_gives_the_tokens_of_its_model(tmp_path: Path, registers: int, gated: bool):
    model, tensors = dinov2(registers, gated)
    torch.save(tensors, tmp_path / "dinov2.pth")
    loaded = load_model(str(tmp_path / "dinov2.pth"))
    assert_equal_tokens(loaded.backbone, model, 56, 56)
    assert loaded.backbone.norm.eps == loaded.backbone.blocks[0].norm1.eps == 1e-6
    assert loaded.backbone.position_mode == ("antialias" if registers else "official")
    words = "3 heads assumed from the width 192, --heads chooses others"
    assert loaded.source == f"dinov2.pth, {words} (dinov2{'_with_registers' if registers else ''})"


@pytest.mark.parametrize("gated", [False, True])
def test_official_dinov3_file_gives_the_tokens_of_its_model(tmp_path: Path, gated: bool):
    model, tensors = dinov3(gated)
    torch.save(tensors, tmp_path / "dinov3.pth")
    loaded = load_model(str(tmp_path / "dinov3.pth"))
    assert_equal_tokens(loaded.backbone, model, 64, 48)
    assert loaded.backbone.norm.eps == 1e-5
    assert loaded.source == "dinov3.pth (dinov3_vit)"
    torch.save(model.state_dict(), tmp_path / "timm.pth")  # under timm's own names
    with pytest.raises(WeightsError, match="Load those by their name, or put their config"):
        load_model(str(tmp_path / "timm.pth"), heads=3)
