import copy

import pytest
import timm
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from dino_model import position
from dino_model.backbones import BackboneConfig, create_backbone


@given(
    st.sampled_from([1, 2, 7, 14]),
    st.integers(1, 60),
    st.integers(1, 60),
    st.sampled_from(["size", "official"]),
)
@settings(max_examples=60, deadline=None)
def test_every_grid_gets_its_embedding(learned, rows, columns, mode):
    embedding = torch.randn(1, 1 + learned**2, 4)
    resampled = position.resample(embedding, (learned, learned), (rows, columns), 1, mode)
    assert resampled.shape == (1, 1 + rows * columns, 4)
    assert torch.equal(resampled[:, 0], embedding[:, 0])


@pytest.mark.parametrize("mode", ["size", "official"])
def test_the_learned_grid_is_left_alone(mode):
    embedding = torch.randn(1, 1 + 49, 4)
    assert position.resample(embedding, (7, 7), (7, 7), 1, mode) is embedding


def test_modes_are_the_two_interpolations():
    embedding = torch.randn(1, 1 + 196, 8)
    patches = embedding[:, 1:].unflatten(1, (14, 14)).permute(0, 3, 1, 2)
    for mode, arguments in {
        "size": {"size": (6, 20)},
        "official": {"scale_factor": (6.1 / 14, 20.1 / 14)},
    }.items():
        expected = F.interpolate(patches, mode="bicubic", **arguments).flatten(2).transpose(1, 2)
        found = position.resample(embedding, (14, 14), (6, 20), 1, mode)[:, 1:]
        torch.testing.assert_close(found, expected)


def test_a_transposed_grid_of_the_same_count_is_resampled_in_official_mode():
    embedding = torch.randn(1, 1 + 16, 4)
    assert not torch.equal(position.resample(embedding, (4, 4), (2, 8), 1, "official"), embedding)


def test_registers_without_positions_survive():
    vit = timm.create_model(
        "vit_small_patch14_reg4_dinov2", embed_dim=32, depth=1, num_heads=2, num_classes=0, img_size=56
    )
    position.install(vit, "size")
    tokens = vit.forward_features(torch.randn(1, 3, 70, 42))
    assert tokens.shape == (1, 5 + 5 * 3, 32)


def test_a_copied_model_resamples_its_own_embedding():
    vit = create_backbone(BackboneConfig("vit_tiny", 8, 32, width=16, depth=1, heads=2))
    twin = copy.deepcopy(vit)
    images = torch.randn(1, 3, 48, 40)
    torch.testing.assert_close(vit(images), twin(images))
    torch.nn.init.zeros_(twin.pos_embed)
    assert not torch.allclose(vit(images), twin(images))


def test_unknown_modes_and_models_are_refused():
    with pytest.raises(ValueError, match="choose 'size' or 'official'"):
        position.resample(torch.randn(1, 5, 2), (2, 2), (2, 2), 1, "exact")
    with pytest.raises(ValueError, match=r"expected 1 \+ 3x3"):
        position.resample(torch.randn(1, 5, 2), (3, 3), (2, 2))
    with pytest.raises(ValueError, match="no learned position embeddings"):
        position.install(torch.nn.Linear(2, 2), "size")
