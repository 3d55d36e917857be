"""Folders for transformers: read back by `hf:`'s own reader, and by the library where it is installed."""

from functools import partial
from pathlib import Path

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from dino_model import commands
from dino_model.backbones import BackboneConfig, create_backbone
from dino_model.checkpoints import WeightsError
from dino_model.transformers_export import write_transformers
from dino_model.weights import LoadedModel, load_model

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)


def vit(kind: str) -> LoadedModel:
    """A small model with random weights, also where training begins at 0 or 1."""
    torch.manual_seed(0)
    if kind == "vit":
        config = BackboneConfig("vit_tiny", patch_size=8, image_size=32, width=48, depth=2, heads=3)
        model = create_backbone(config)
    else:
        registers = 4 if kind == "dinov2_with_registers" else 0
        model = VisionTransformer(
            img_size=32, patch_size=8, num_classes=0, embed_dim=48, depth=2, num_heads=3, init_values=1.0,
            reg_tokens=registers, no_embed_class=bool(registers), norm_layer=partial(nn.LayerNorm, eps=1e-6),
        )  # fmt: skip
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return LoadedModel("tiny", model.eval(), MEAN, STD, "a test", None)


@pytest.mark.parametrize("kind", ["vit", "dinov2", "dinov2_with_registers"])
def test_exported_folder_read_back_gives_equal_tokens(kind: str, cache: Path):
    model = vit(kind)
    write_transformers(model, cache / "hf" / "me" / "tiny")
    loaded = load_model("hf:me/tiny")
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        expected, found = (one.backbone.forward_features(images) for one in (model, loaded))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert (loaded.mean, loaded.std) == (MEAN, STD)
    assert "add_pooling_layer" in (cache / "hf" / "me" / "tiny" / "README.md").read_text() or kind != "vit"


@pytest.mark.parametrize("kind", ["vit", "dinov2", "dinov2_with_registers"])
def test_transformers_own_class_gives_equal_tokens(kind: str, tmp_path: Path):
    transformers = pytest.importorskip("transformers", reason="optional: pip install transformers")
    model = vit(kind)
    write_transformers(model, tmp_path / "out")
    name = {"vit": "ViTModel", "dinov2": "Dinov2Model"}.get(kind, "Dinov2WithRegistersModel")
    theirs = getattr(transformers, name).from_pretrained(tmp_path / "out").eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        found, expected = theirs(images).last_hidden_state, model.backbone.forward_features(images)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_export_command_writes_a_transformers_folder_with_provenance(tmp_path: Path):
    output = tmp_path / "embedded"
    commands.main(["export", "embedded", "--format", "transformers", "--output", str(output)])
    files = ["README.md", "config.json", "model.safetensors", "preprocessor_config.json", "provenance.json"]
    assert sorted(path.name for path in output.iterdir()) == files


def test_model_that_transformers_cannot_hold_is_refused(tmp_path: Path):
    with pytest.raises(WeightsError, match="ResNet: transformers' ViT and DINOv2 hold ViTs"):
        write_transformers(load_model("random:resnet50"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
