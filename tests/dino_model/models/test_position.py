import copy
import math
import pickle

import pytest
import timm
import torch
import torch.nn.functional as F

from dino_model.models import position
from dino_model.models.backbones import BackboneConfig, create_backbone
from dino_model.models.families import position_mode

ANTIALIAS = {"antialias": True, "offset": 0.0}
OFFICIAL = {"antialias": False, "offset": 0.1}
EXACT = {"antialias": False, "offset": 0.0}


def official_positions(
    embedding: torch.Tensor, grid: tuple[int, int], *, antialias: bool, offset: float
) -> torch.Tensor:
    """DINOv2's interpolate_pos_encoding, written from its description: [1, 1 + patches, d]."""
    cls, patches = embedding[:, :1], embedding[:, 1:]
    side = math.isqrt(patches.shape[1])
    if grid == (side, side):
        return embedding
    maps = patches.reshape(1, side, side, -1).permute(0, 3, 1, 2)
    where = {"scale_factor": tuple((n + offset) / side for n in grid)} if offset else {"size": grid}
    maps = F.interpolate(maps, mode="bicubic", antialias=antialias, **where)
    assert tuple(maps.shape[2:]) == grid
    return torch.cat([cls, maps.permute(0, 2, 3, 1).reshape(1, -1, embedding.shape[-1])], dim=1)


@pytest.mark.parametrize("grid", [(1, 1), (6, 6), (7, 28), (14, 14), (30, 12), (60, 5)])
@pytest.mark.parametrize(
    ("name", "official"),
    [
        ("vit_small_patch14_reg4_dinov2.lvd142m", ANTIALIAS),
        ("hf:facebook/dinov2-with-registers-small dinov2_with_registers", ANTIALIAS),
        ("vit_small_patch14_dinov2.lvd142m", OFFICIAL),
        ("hf:facebook/dinov2-small dinov2", OFFICIAL),
        ("vit_small_patch16_224.dino", OFFICIAL),
        ("vit_base_patch16_224.mae", EXACT),
        ("deit_small_patch16_224.fb_in1k", EXACT),
    ],
)
def test_resample_in_family_mode_equals_official_code(name, official, grid):
    embedding = torch.randn(1, 1 + 196, 8)
    found = position.resample(embedding, (14, 14), grid, 1, position_mode(name))
    torch.testing.assert_close(found, official_positions(embedding, grid, **official))


def test_install_adds_resampled_positions_to_patches_alone_with_registers():
    options = {"embed_dim": 32, "depth": 1, "num_heads": 2, "img_size": 196, "num_classes": 0}
    vit = timm.create_model("vit_small_patch14_reg4_dinov2", **options)
    torch.nn.init.normal_(vit.pos_embed)
    position.install(vit, "antialias")
    with torch.no_grad():
        patches = vit.patch_embed(torch.zeros(1, 3, 84, 84))  # 6 x 6
        found = vit._pos_embed(patches)
    learned = torch.cat([torch.zeros(1, 1, 32), vit.pos_embed], dim=1)
    expected = patches.flatten(1, 2) + official_positions(learned, (6, 6), **ANTIALIAS)[:, 1:]
    torch.testing.assert_close(found[:, 5:], expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found[:, :5], torch.cat([vit.cls_token, vit.reg_token], dim=1))


def test_install_with_unknown_mode_or_model_raises():
    with pytest.raises(ValueError, match="choose one of size, official, antialias"):
        create_backbone(BackboneConfig("vit_tiny", position_mode="exact"))
    with pytest.raises(ValueError, match="no learned position embeddings"):
        position.install(torch.nn.Linear(2, 2), "size")


def test_sincos_embedding_equals_the_formula():
    """Sine and cosine of the column, then of the row, on the scale of a grid of 14 x 14."""
    rows, columns, width = 3, 5, 18
    found = position.sincos_embedding(rows, columns, width).view(rows, columns, width)
    rates = [10_000 ** (-k / 4) for k in range(4)]
    for row in range(rows):
        for column in range(columns):
            places = (column + 0.5) * 14 / columns, (row + 0.5) * 14 / rows
            waves = [wave(p * rate) for p in places for wave in (math.sin, math.cos) for rate in rates]
            torch.testing.assert_close(found[row, column], torch.tensor([*waves, 0.0, 0.0]))


@pytest.mark.parametrize("again", [lambda vit: pickle.loads(pickle.dumps(vit)), copy.deepcopy])
def test_install_survives_copy_and_pickle(again):
    vit = create_backbone(BackboneConfig("vit_tiny", 8, 16, width=12, depth=1, heads=2)).eval()
    images = torch.randn(1, 3, 32, 24)
    other = again(vit)
    assert torch.equal(other(images), vit(images))
    with torch.no_grad():
        other.pos_embed.add_(1.0)
    assert not torch.equal(other(images), vit(images))
