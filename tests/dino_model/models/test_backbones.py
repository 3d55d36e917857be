import pytest
import torch
from torchvision.models import resnet50

from dino_model.models import position
from dino_model.models.backbones import BackboneConfig, create_backbone, features_of_patches

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
    vit = create_backbone(BackboneConfig(**TINY)).eval()
    images, noise = torch.randn(2, 2, 3, 32, 32)
    everything = torch.stack([torch.randperm(16), torch.randperm(16)])
    torch.testing.assert_close(features_of_patches(vit, images, everything), vit(images))
    kept = torch.tensor([[0, 5, 6], [3, 10, 15]])
    hidden = torch.ones(2, 16).scatter(1, kept, 0.0).view(2, 1, 4, 4).bool()
    other = torch.where(hidden.repeat_interleave(8, 2).repeat_interleave(8, 3), noise, images)
    torch.testing.assert_close(features_of_patches(vit, images, kept), features_of_patches(vit, other, kept))
    assert not torch.allclose(features_of_patches(vit, images, kept), vit(images))


def test_position_start_sincos_initializes_the_patches_alone():
    embedding = create_backbone(BackboneConfig(**TINY, position_start="sincos")).pos_embed
    torch.testing.assert_close(embedding[0, 1:], 0.7 * position.sincos_embedding(4, 4, 24))
    assert embedding[0, 0].abs().max() < 0.2
    assert embedding.requires_grad


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
