"""Backbone, position embeddings and attention rows agree with the official code, to 1e-4."""

import numpy as np
import torch

from dino_model.models.attention import attention_rows, readable
from dino_model.models.backbones import patch_grid
from dino_model.models.position import resample
from tests.oracles.arrays import vit_of


@torch.no_grad()
def test_features_tokens_attention_and_positions_agree(oracle):
    arrays = oracle("vit")
    vit = vit_of(arrays, "official")
    reader = readable(vit)
    cases = {name.split("/")[0] for name in arrays if name.startswith("case")}
    assert len(cases) >= 2, "the oracle has several sizes, one of them not square"
    for case in sorted(cases):
        image = torch.from_numpy(arrays[f"{case}/image"])
        grid = patch_grid(vit, *image.shape[2:])
        rows = attention_rows(vit, image, [0, 5])[0]
        found = {
            "cls_feature": vit(image),
            "last_attention_cls_row": rows[:, 0],
            "last_attention_row_of_token_5": rows[:, 1],
            "position_embedding": resample(vit.pos_embed, vit.patch_embed.grid_size, grid, mode="official"),
        }
        named = f"{case}/tokens_block_"
        blocks = [int(name.removeprefix(named)) for name in arrays if name.startswith(named)]
        assert blocks
        for block in blocks:
            found[f"tokens_block_{block}"] = vit.norm(reader.calls(image, block)[-1]())
        for name, values in found.items():
            expected = arrays[f"{case}/{name}"]
            np.testing.assert_allclose(values.numpy(), expected, atol=1e-4, rtol=0, err_msg=f"{case}/{name}")
