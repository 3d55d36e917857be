import pytest
import torch
from torchvision.models import resnet50

from dino_model import position
from dino_model.backbones import (
    BackboneConfig,
    create_backbone,
    features_of_patches,
    patch_grid,
)


@pytest.mark.parametrize(("height", "width"), [(48, 48), (50, 33), (8, 100), (5, 5)])
@pytest.mark.parametrize("channels", [3, 5])
def test_backbone_accepts_any_size_and_channels(height, width, channels):
    backbone = create_backbone(
        BackboneConfig("vit_tiny", 8, 48, in_channels=channels, width=24, depth=2, heads=3)
    )
    images = torch.randn(2, channels, height, width)
    rows, columns = patch_grid(backbone, height, width)
    assert backbone(images).shape == (2, backbone.num_features) == (2, 24)
    assert backbone.forward_features(images).shape == (2, 1 + rows * columns, 24)


def test_backbone_pads_with_zeros_at_bottom_and_right():
    backbone = create_backbone(BackboneConfig("vit_tiny", 8, 48, width=24, depth=2, heads=3)).eval()
    images = torch.randn(1, 3, 21, 30)
    padded = torch.nn.functional.pad(images, (0, 2, 0, 3))
    torch.testing.assert_close(backbone(images), backbone(padded))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"architecture": "vit_huge"}, "vit_huge.*vit_tiny, vit_small"),
        ({"heads": 5}, "width 384 cannot be split over 5 heads"),
        ({"patch_size": 0}, "patch_size is 0"),
        ({"heads": 0}, "heads is 0"),
        ({"image_size": 8}, "smaller than one patch"),
        ({"drop_path": 1.0}, "drop_path"),
        ({"in_channels": 0}, "in_channels is 0"),
    ],
)
def test_create_backbone_with_invalid_config_raises(settings, named):
    with pytest.raises(ValueError, match=named):
        create_backbone(BackboneConfig(**settings))


def test_features_of_patches_ignore_the_other_patches():
    torch.manual_seed(0)
    vit = create_backbone(BackboneConfig("vit_tiny", 8, 32, width=24, depth=2, heads=3)).eval()
    images, noise = torch.randn(2, 2, 3, 32, 32)
    everything = torch.stack([torch.randperm(16), torch.randperm(16)])
    torch.testing.assert_close(features_of_patches(vit, images, everything), vit(images))
    kept = torch.tensor([[0, 5, 6], [3, 10, 15]])
    hidden = torch.ones(2, 16).scatter(1, kept, 0.0).view(2, 1, 4, 4).bool()
    other = torch.where(hidden.repeat_interleave(8, 2).repeat_interleave(8, 3), noise, images)
    torch.testing.assert_close(features_of_patches(vit, images, kept), features_of_patches(vit, other, kept))
    assert not torch.allclose(features_of_patches(vit, images, kept), vit(images))


def test_position_start_sincos_initializes_the_embedding():
    waves, normal = (
        create_backbone(BackboneConfig("vit_tiny", 8, 32, width=24, depth=1, heads=3, position_start=start))
        for start in ("sincos", "normal")
    )
    expected = 0.7 * position.sincos_embedding(4, 4, 24)
    torch.testing.assert_close(waves.pos_embed[0, 1:], expected)
    assert waves.pos_embed[0, 0].abs().max() < 0.2  # [CLS] keeps its own
    assert normal.pos_embed.abs().max() < 0.2
    assert waves.pos_embed.requires_grad


def test_resnet_initialization_equals_torchvisions():
    """Every branch with a gain of 1, convolutions with the same spread: the official code's start."""
    torch.manual_seed(0)
    ours, theirs = create_backbone(BackboneConfig("resnet50")).state_dict(), resnet50().state_dict()
    assert ours.keys() == theirs.keys() - {"fc.weight", "fc.bias"}
    for name, tensor in ours.items():
        if tensor.ndim == 4:
            assert tensor.std() == pytest.approx(theirs[name].std().item(), rel=0.1), name
        else:
            assert torch.equal(tensor, theirs[name]), name
