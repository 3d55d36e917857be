"""Every family of ViTs, judged by the softmax that its own unfused forward computes."""

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import timm
import torch
from timm.layers import resample_abs_pos_embed
from timm.models.beit import Beit
from timm.models.cait import Cait
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from dino_model.models.attention import accept_any_size, attention_rows, readable
from dino_model.models.backbones import BackboneConfig, create_backbone
from tests.dino_model.small_models import CLASS_ATTENTION, FAMILIES, SHAPE, made, noise

SIZES = [(32, 32), (72, 40), (40, 64)]  # that of the model, a tall one, a wide one


@torch.no_grad()
def by_the_model_itself(model: nn.Module, images: Tensor) -> tuple[list[Tensor], Tensor]:
    """The softmax of every attention layer, in order, and all tokens, by the model's own unfused forward.

    timm first brings a model built for one size to that of the images.
    """
    model, size = copy.deepcopy(model), tuple(images.shape[2:])
    if isinstance(model, Beit):
        model.set_input_size(size)
    elif isinstance(model, Cait):
        grid = (size[0] // 8, size[1] // 8)
        positions = resample_abs_pos_embed(model.pos_embed, grid, (4, 4), num_prefix_tokens=0)
        model.pos_embed = nn.Parameter(positions)
        model.patch_embed.set_input_size(size)
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False
    found: list[Tensor] = []
    plain = Tensor.softmax

    def softmax(self: Tensor, *arguments: object, **options: object) -> Tensor:
        found.append(plain(self, *arguments, **options))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "softmax", softmax)
        tokens = model.forward_features(images)
        model.forward_head(tokens)
    return found, tokens


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FAMILIES)
def test_rows_and_tokens_of_each_family_equal_its_own(name: str, size: tuple[int, int]):
    model, images = made(name), noise(size, batch=2)
    whole, tokens = by_the_model_itself(model, images)
    vit = readable(model)
    assert whole[0].shape[-1] == vit.prefix_tokens + size[0] * size[1] // 64
    some = [0, vit.prefix_tokens + 5, vit.prefix_tokens]
    for block in (0, 1, -1):
        expected = whole[range(3)[block]]
        torch.testing.assert_close(attention_rows(model, images, None, block), expected, atol=2e-6, rtol=1e-4)
        found = attention_rows(model, images, some, block)
        torch.testing.assert_close(found, expected[:, :, some], atol=2e-6, rtol=1e-4)
    assert whole[2].std() > 0.005, "flat maps judge nothing"
    assert (whole[2][0] - whole[2][1]).abs().max() > 0.01, "two similar images judge nothing"
    with torch.no_grad():
        found = model.norm(vit.calls(images)[-1]())
    torch.testing.assert_close(found, tokens, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["ViT, SigLIP", *CLASS_ATTENTION])
def test_summary_rows_equal_the_softmax_of_the_last_query(name: str, size: tuple[int, int]):
    model, images = made(name), noise(size, batch=2)
    whole, _ = by_the_model_itself(model, images)
    vit, patches = readable(model), size[0] * size[1] // 64
    with torch.no_grad():
        found = vit.summary_rows(vit.calls(images)[-1]())
    torch.testing.assert_close(found, whole[-1][:, :, 0, -patches:], atol=2e-6, rtol=1e-4)
    assert vit.summary == ("class-attention" if name in CLASS_ATTENTION else "pooling")
    if name in CLASS_ATTENTION:
        with pytest.raises(ValueError, match=r"of a (Cait|Xcit) do not attend by a softmax"):
            attention_rows(model, images, [0])


@pytest.mark.parametrize("name", ["BEiT of both biases", *CLASS_ATTENTION])
def test_model_accepts_any_size_without_changing_weights(name: str):
    model, images = made(name), noise((72, 40))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    _, tokens = by_the_model_itself(model, images)
    accept_any_size(model)
    with torch.no_grad():
        torch.testing.assert_close(model.forward_features(images), tokens, atol=2e-5, rtol=1e-4)
        odd = model.forward_features(noise((37, 50)))
    assert odd.shape == (1, 1 + 5 * 7, 48), "padded to whole patches"
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_attention_rows_run_only_the_blocks_before():
    vit, computed = made(), []
    for number, block in enumerate(vit.blocks):
        block.mlp.register_forward_hook(lambda *_, number=number: computed.append(number))
    attention_rows(vit, noise((32, 32)), [0], block=1)
    assert computed == [0]


def test_attention_rows_in_bf16_have_fp32_softmax():
    vit, images = made(), noise((61, 50))
    exact = attention_rows(vit, images, [0])
    with torch.autocast("cpu", torch.bfloat16):
        mixed = attention_rows(vit, images, [0])
    assert 0 < (mixed - exact).abs().max() < 0.02
    half = attention_rows(vit.bfloat16(), images, [0])
    assert (half - exact).abs().max() < 0.05
    for rows in (exact, mixed, half):
        assert (rows.dtype, rows.shape) == (torch.float32, (1, 3, 1, 1 + 8 * 7)), "padded to whole patches"
        torch.testing.assert_close(rows.sum(-1), torch.ones(1, 3, 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"block": 3}, "no block 3: the model has 3, so choose -3 to 2"),
        ({"queries": [17]}, "no query token 17: the image has 17 tokens, 0 to 16"),
        ({"images": torch.zeros(3, 32, 32)}, r"\[3, 32, 32\], expected \[batch, 3, height, width\]"),
        ({"images": torch.zeros(1, 4, 32, 32)}, r"\[1, 4, 32, 32\], expected \[batch, 3,"),
    ],
)
def test_attention_rows_with_invalid_arguments_raise(arguments: dict, message: str):
    with pytest.raises(ValueError, match=message):
        attention_rows(**{"model": made(), "images": noise((32, 32)), "queries": [0]} | arguments)


def test_attention_rows_of_unfused_model_in_threads_equal_one_thread():
    model = made("DINOv3")
    for layer in model.modules():
        if hasattr(layer, "fused_attn"):
            layer.fused_attn = False
    images = [noise((32, 32 + 8 * number)) for number in range(3)] * 40
    expected = [attention_rows(model, image, [0]) for image in images[:3]] * 40
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda image: attention_rows(model, image, [0]), images))
    torch.testing.assert_close(found, expected)


def test_readable_accepts_published_models():
    for name, prefix_tokens in {
        "vit_small_patch16_dinov3": 5,
        "vit_pe_core_tiny_patch16_384": 1,
        "beitv2_base_patch16_224": 1,
        "vit_base_patch16_siglip_224": 0,
        "deit_tiny_distilled_patch16_224": 2,
        "vit_betwixt_patch16_rope_reg4_gap_256": 4,
        "xcit_nano_12_p16_224": 0,
    }.items():
        with torch.device("meta"):
            assert readable(timm.create_model(name, pretrained=False)).prefix_tokens == prefix_tokens, name


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: create_backbone(BackboneConfig("resnet50")), "a ResNet cannot be read: expected one of"),
        (lambda: timm.create_model("vit_tiny_r_s16_p8_224"), "not cut .* but from the output of HybridEmbed"),
        (lambda: VisionTransformer(**SHAPE, attn_layer="diff"), "block 0 has a DiffAttention"),
        (lambda: timm.create_model("vit_base_patch16_18x2_224", depth=1), "has a ParallelThingsBlock"),
    ],
)
def test_readable_of_unsupported_model_raises(model: Callable[[], nn.Module], message: str):
    with torch.device("meta"), pytest.raises(ValueError, match=message):
        readable(model())
