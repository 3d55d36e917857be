import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from dino_model.attention import attention_rows


def tiny_vit(seed: int = 0, **settings) -> VisionTransformer:
    """Three blocks with weights large enough for uneven attention."""
    options = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 3, "num_classes": 0}
    vit = VisionTransformer(**options | {"dynamic_img_size": True, "dynamic_img_pad": True} | settings)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in vit.parameters():
            tensor.add_(0.3 * torch.randn(tensor.shape, generator=generator))
    return vit.eval()


def picture(height: int = 32, width: int = 32, batch: int = 1) -> Tensor:
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(height * width))


@settings(max_examples=20, deadline=None)
@given(
    height=st.integers(1, 50),
    width=st.integers(1, 50),
    block=st.integers(-3, 2),
    queries=st.lists(st.integers(0, 1), max_size=3),
)
def test_attention_rows_of_any_size_sum_to_one(height: int, width: int, block: int, queries: list[int]):
    rows = attention_rows(tiny_vit(), picture(height, width), queries, block)
    tokens = 1 + -(-height // 8) * -(-width // 8)  # padded to whole patches
    assert rows.shape == (1, 3, len(queries), tokens)
    assert rows.dtype == torch.float32
    torch.testing.assert_close(rows.sum(-1), torch.ones(1, 3, len(queries)))


def test_attention_rows_run_only_the_blocks_before(monkeypatch: pytest.MonkeyPatch):
    vit, calls = tiny_vit(), []
    fused = nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        nn.functional,
        "scaled_dot_product_attention",
        lambda *a, **k: calls.append(a[0].shape) or fused(*a, **k),
    )
    attention_rows(vit, picture(), [0], block=1)
    assert calls == [(1, 3, 17, 8)], (
        "block 0 attends by the fused kernel, block 1 only answers, block 2 rests"
    )


def test_attention_rows_in_bf16_have_fp32_softmax():
    vit, images = tiny_vit(), picture(64, 64)
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
        attention_rows(**{"model": tiny_vit(), "images": picture(), "queries": [0]} | arguments)
