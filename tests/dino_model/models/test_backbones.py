import pytest
import timm
import torch
from torchvision.models import resnet50

from dino_model.models import position
from dino_model.models.backbones import (
    BackboneConfig,
    MaskedPatches,
    choose_training_attention,
    compute_features,
    create_backbone,
)

TINY = {"patch_size": 8, "image_size": 32, "width": 24, "depth": 2, "heads": 3}


@pytest.mark.parametrize(("height", "width", "grid"), [(48, 48, 36), (50, 33, 35), (8, 100, 13), (5, 5, 1)])
@pytest.mark.parametrize("channels", [3, 5])
def test_backbone_pads_any_size_with_zeros_at_bottom_and_right(height, width, grid, channels):
    backbone = create_backbone(BackboneConfig(**TINY, in_channels=channels)).eval()
    images = torch.randn(2, channels, height, width)
    assert backbone.forward_features(images).shape == (2, 1 + grid, backbone.num_features)
    padded = torch.nn.functional.pad(images, (0, -width % 8, 0, -height % 8))
    torch.testing.assert_close(backbone(images), backbone(padded))


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (BackboneConfig("vit_tiny"), "vit_tiny_patch16_224"),
        (BackboneConfig(), "vit_small_patch16_224.dino"),
        (BackboneConfig("vit_base", 8), "vit_base_patch8_224.dino"),
        (BackboneConfig("vit_large"), "vit_large_patch16_224.mae"),
        (BackboneConfig("vit_giant", 14, 518), "vit_giant_patch14_dinov2"),
    ],
)
def test_architectures_are_those_of_the_published_models(config, name):
    with torch.device("meta"):
        own, published = create_backbone(config), timm.create_model(name, num_classes=0)
    shapes = [{key: tensor.shape for key, tensor in model.state_dict().items()} for model in (own, published)]
    assert shapes[0] == shapes[1]
    heads, scales = (
        [getattr(getattr(model.blocks[0], layer), name, None) for model in (own, published)]
        for layer, name in (("attn", "num_heads"), ("ls1", "init_values"))
    )
    assert (heads[0], scales[0]) == (heads[1], scales[1])
    assert isinstance(own.blocks[-1].drop_path1, torch.nn.Identity)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"architecture": "vit_huge"}, "vit_huge.*vit_tiny, vit_small"),
        ({"heads": 5}, "width 384 cannot be split over 5 heads"),
        ({"image_size": 8}, "smaller than one patch"),
        ({"drop_path": 1.0}, "drop_path"),
        ({"drop_path": -0.1}, "drop_path"),
        ({"depth": 0}, "depth is 0, expected at least 1"),
    ],
)
def test_create_backbone_with_invalid_config_raises(settings, named):
    with pytest.raises(ValueError, match=named):
        create_backbone(BackboneConfig(**settings))


def test_features_of_visible_patches_ignore_the_others():
    torch.manual_seed(0)
    vit = create_backbone(BackboneConfig(**TINY)).eval()
    images, noise = torch.randn(2, 2, 3, 32, 32)
    everything = torch.stack([torch.randperm(16), torch.randperm(16)])
    torch.testing.assert_close(compute_features(vit, images, everything).cls, vit(images))
    kept = torch.tensor([[0, 5, 6], [3, 10, 15]])
    hidden = torch.ones(2, 16).scatter(1, kept, 0.0).view(2, 1, 4, 4).bool()
    other = torch.where(hidden.repeat_interleave(8, 2).repeat_interleave(8, 3), noise, images)
    few, same = (compute_features(vit, pixels, kept) for pixels in (images, other))
    torch.testing.assert_close(few, same)
    assert few.patches.shape == (2, 3, 24)
    assert not torch.allclose(few.cls, vit(images))


def test_features_of_masked_patches_depend_on_the_token_alone():
    torch.manual_seed(0)
    vit = create_backbone(BackboneConfig(**TINY)).eval()
    images, noise = torch.randn(2, 2, 3, 32, 32)
    masked = MaskedPatches(torch.zeros(2, 16, dtype=torch.bool), torch.randn(24))
    torch.testing.assert_close(compute_features(vit, images, masked=masked).cls, vit(images))
    masked.masked[0, 5], masked.masked[1, 10:] = True, True
    pixels = masked.masked.view(2, 1, 4, 4).repeat_interleave(8, 2).repeat_interleave(8, 3)
    other = torch.where(pixels, noise, images)
    found, same = (compute_features(vit, image, masked=masked) for image in (images, other))
    torch.testing.assert_close(found, same)
    another = masked._replace(token=torch.randn(24))
    assert not torch.allclose(found.patches, compute_features(vit, images, masked=another).patches)


@pytest.mark.parametrize("config", [TINY, {"architecture": "resnet50"}])
def test_features_are_those_of_the_backbone_and_of_its_positions(config):
    network = create_backbone(BackboneConfig(**config)).eval()
    images = torch.randn(2, 3, 32, 32)
    cls, patches = compute_features(network, images)
    torch.testing.assert_close(cls, network(images))
    tokens = network.forward_features(images)
    expected = tokens[:, 1:] if tokens.ndim == 3 else tokens.flatten(2).transpose(1, 2)
    torch.testing.assert_close(patches, expected)


def test_position_start_sincos_initializes_the_patches_alone():
    embedding = create_backbone(BackboneConfig(**TINY, position_start="sincos")).pos_embed
    torch.testing.assert_close(embedding[0, 1:], 0.7 * position.sincos_embedding(4, 4, 24))
    assert embedding[0, 0].abs().max() < 0.2
    assert create_backbone(BackboneConfig(depth=1)).cls_token.std().item() == pytest.approx(0.02, rel=0.15)
    assert embedding.requires_grad


def test_attention_is_explicit_in_bf16_on_a_cpu_alone():
    vit, choices = (
        create_backbone(BackboneConfig(**TINY)),
        [("cpu", "bf16"), ("cpu", "fp32"), ("cuda", "bf16")],
    )
    for device, precision in choices:
        choose_training_attention(vit, torch.device(device), precision)
        assert vit.blocks[1].attn.fused_attn == ((device, precision) != ("cpu", "bf16"))


def test_resnet_initialization_equals_torchvisions():
    """The official code's start: every branch with a gain of 1, convolutions with equal deviations."""
    torch.manual_seed(0)
    ours, theirs = create_backbone(BackboneConfig("resnet50")).state_dict(), resnet50().state_dict()
    assert ours.keys() == theirs.keys() - {"fc.weight", "fc.bias"}
    for name, tensor in ours.items():
        if tensor.ndim == 4:
            assert tensor.std() == pytest.approx(theirs[name].std().item(), rel=0.1), name
        else:
            assert torch.equal(tensor, theirs[name]), name


def test_options_replace_the_settings_of_the_architecture():
    """Blocks: a gated MLP of 8/3 of the width, layer scale and stochastic depth."""
    assert create_backbone(BackboneConfig(**TINY | {"image_size": 8})).patch_embed.grid_size == (1, 1)
    block = create_backbone(BackboneConfig(**TINY, mlp="swiglu", layer_scale=0.3, drop_path=0.2)).blocks[1]
    assert (block.mlp.fc1.out_features, block.mlp.fc2.in_features) == (128, 64)
    assert (block.ls1.init_values, block.drop_path1.drop_prob) == (0.3, pytest.approx(0.2))
