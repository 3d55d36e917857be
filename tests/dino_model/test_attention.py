from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dino_model.attention import attention_rows
from tests.dino_model.test_attention_families import made, picture

VIT = made("ViT, no bias")  # three blocks of three heads, built for 32 x 32 pixels in patches of 8


@settings(max_examples=20, deadline=None)
@given(
    height=st.integers(1, 50),
    width=st.integers(1, 50),
    block=st.integers(-3, 2),
    queries=st.lists(st.integers(0, 1), max_size=3),
)
def test_attention_rows_of_any_size_sum_to_one(height: int, width: int, block: int, queries: list[int]):
    rows = attention_rows(VIT, picture((height, width)), queries, block)
    tokens = 1 + -(-height // 8) * -(-width // 8)  # padded to whole patches
    assert rows.shape == (1, 3, len(queries), tokens)
    assert rows.dtype == torch.float32
    torch.testing.assert_close(rows.sum(-1), torch.ones(1, 3, len(queries)))


def test_attention_rows_run_only_the_blocks_before():
    vit, computed = made("ViT, no bias"), []
    for number, block in enumerate(vit.blocks):
        block.mlp.register_forward_hook(lambda *_, number=number: computed.append(number))
    attention_rows(vit, picture((32, 32)), [0], block=1)
    assert computed == [0]


def test_attention_rows_in_bf16_have_fp32_softmax():
    vit, images = made("ViT, no bias"), picture((64, 64))
    exact = attention_rows(vit, images, [0])
    with torch.autocast("cpu", torch.bfloat16):
        mixed = attention_rows(vit, images, [0])
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(mixed.sum(-1), torch.ones(1, 3, 1))
    assert 0 < (mixed - exact).abs().max() < 0.02
    half = attention_rows(vit.bfloat16(), images, [0])
    assert half.dtype == torch.float32
    assert (half - exact).abs().max() < 0.05


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"block": 3}, "no block 3: the model has 3, so choose -3 to 2"),
        ({"block": -4}, "no block -4"),
        ({"queries": [17]}, "no query token 17: the image has 17 tokens, 0 to 16"),
        ({"queries": [-1]}, "no query token -1"),
        ({"images": torch.zeros(3, 32, 32)}, r"\[3, 32, 32\], expected \[batch, 3, height, width\]"),
        ({"images": torch.zeros(1, 4, 32, 32)}, r"\[1, 4, 32, 32\], expected \[batch, 3,"),
        ({"images": torch.zeros(1, 3, 0, 32)}, r"\[1, 3, 0, 32\]"),
    ],
)
def test_attention_rows_with_invalid_arguments_raise(arguments: dict, message: str):
    with pytest.raises(ValueError, match=message):
        attention_rows(**{"model": VIT, "images": picture((32, 32)), "queries": [0]} | arguments)


def test_attention_rows_of_unfused_model_in_threads_equal_one_thread():
    model = made("DINOv3")
    for layer in model.modules():
        if hasattr(layer, "fused_attn"):
            layer.fused_attn = False
    images = [picture((32, 32 + 8 * number)) for number in range(3)] * 40
    expected = [attention_rows(model, image, [0]) for image in images[:3]] * 40
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda image: attention_rows(model, image, [0]), images))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
