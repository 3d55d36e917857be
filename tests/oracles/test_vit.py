"""The backbone, its position embeddings and its attention rows agree with the official code, to 1e-4."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

from dino_model.attention import attention_rows, readable
from dino_model.backbones import patch_grid
from dino_model.position import resample
from tests.oracles.arrays import vit_of

Arrays = dict[str, np.ndarray]
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def arrays(oracle: Callable[[str], Arrays]) -> Arrays:
    return oracle("vit")


@pytest.fixture(scope="module")
def vit(arrays: Arrays) -> VisionTransformer:
    return vit_of(arrays, "official")


def cases(arrays: Arrays) -> list[tuple[str, torch.Tensor]]:
    """Name and picture [1, 3, height, width] of every case."""
    found = sorted({name.split("/")[0] for name in arrays if name.startswith("case")})
    assert len(found) >= 2, "the oracle has several sizes, one of them not square"
    return [(case, torch.from_numpy(arrays[f"{case}/image"])) for case in found]


def assert_close(found: torch.Tensor, expected: np.ndarray, what: str) -> None:
    assert found.shape == expected.shape, what
    assert np.abs(found.detach().numpy() - expected).max() < TOLERANCE, what


def test_cls_feature_agrees(vit: VisionTransformer, arrays: Arrays):
    for case, image in cases(arrays):
        assert_close(vit(image), arrays[f"{case}/cls_feature"], case)


def test_tokens_after_the_last_blocks_agree(vit: VisionTransformer, arrays: Arrays):
    reader = readable(vit)
    for case, image in cases(arrays):
        blocks = [int(name.rsplit("_", 1)[1]) for name in arrays if name.startswith(f"{case}/tokens_block_")]
        assert blocks
        for block in blocks:
            tokens = vit.norm(reader.calls(image, block)[-1]())
            assert_close(tokens, arrays[f"{case}/tokens_block_{block}"], f"{case}, block {block}")


def test_attention_rows_of_cls_and_of_a_patch_agree(vit: VisionTransformer, arrays: Arrays):
    for case, image in cases(arrays):
        rows = attention_rows(vit, image, [0, 5])[0]
        assert_close(rows[:, 0], arrays[f"{case}/last_attention_cls_row"], f"{case}, [CLS]")
        assert_close(rows[:, 1], arrays[f"{case}/last_attention_row_of_token_5"], f"{case}, token 5")


def test_position_embedding_agrees(vit: VisionTransformer, arrays: Arrays):
    for case, image in cases(arrays):
        grid = patch_grid(vit, *image.shape[2:])
        found = resample(vit.pos_embed, vit.patch_embed.grid_size, grid, mode="official")
        assert_close(found, arrays[f"{case}/position_embedding"], case)
