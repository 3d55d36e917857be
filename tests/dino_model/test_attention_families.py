"""Every family of ViTs, judged by the softmax that its own unfused forward computes."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import timm
import torch
from timm.layers import resample_abs_pos_embed
from timm.models.beit import Beit
from timm.models.cait import Cait
from timm.models.eva import Eva
from timm.models.vision_transformer import ResPostBlock, VisionTransformer
from timm.models.xcit import Xcit
from torch import Tensor, nn

from dino_model.attention import accept_any_size, attention_rows, readable
from dino_model.backbones import BackboneConfig, create_backbone

SHAPE = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 3, "num_heads": 3, "num_classes": 0}
SIZES = [(32, 32), (72, 40), (40, 64)]  # that of the model, a tall one, a wide one
ANY_SIZE = {"dynamic_img_size": True, "dynamic_img_pad": True}
ROTARY = {"use_rot_pos_emb": True, **ANY_SIZE}

ROTATED = {
    "EVA: no rotation": ANY_SIZE,
    "EVA-02: rotation after a learned grid": {**ROTARY, "ref_feat_shape": (4, 4), "swiglu_mlp": True},
    "separate projections": {**ROTARY, "qkv_fused": False, "scale_mlp": True, "swiglu_mlp": True},
    "normed after attention": {**ROTARY, "use_post_norm": True},
    "DINOv3": {
        **ROTARY,
        "use_abs_pos_emb": False,
        "rope_type": "dinov3",
        "rope_rotate_half": True,
        "num_reg_tokens": 4,
        "qkv_bias": False,
        "init_values": 0.5,
        "global_pool": "token",
    },
    "Perception Encoder": {
        **ROTARY,
        "attn_type": "rope",
        "rope_grid_offset": 1.0,
        "rope_grid_indexing": "xy",
        "use_pre_transformer_norm": True,
        "global_pool": "map",
    },
    "learned rotation": {**ROTARY, "rope_type": "mixed", "use_abs_pos_emb": False},
    "q and k norms": {**ROTARY, "qk_norm": True},
    "heads that share keys": {**ROTARY, "attn_type": "rope", "qkv_fused": False, "num_kv_heads": 1},
    "no bias": {**ROTARY, "qkv_bias": False},
}
BIASED = {
    "BEiT": {"use_abs_pos_emb": False, "use_rel_pos_bias": True, "init_values": 0.5},
    "BEiT that shares its bias": {
        "use_abs_pos_emb": True,
        "use_shared_rel_pos_bias": True,
        "qkv_bias": False,
    },
    "BEiT of both biases": {
        "use_rel_pos_bias": True,
        "use_shared_rel_pos_bias": True,
        "global_pool": "token",
    },
    "BEiT without bias": {"use_rel_pos_bias": False, "swiglu_mlp": True, "scale_mlp": True},
}
PLAIN = {
    "no bias": {**ANY_SIZE, "qkv_bias": False},
    "q and k norms": {**ANY_SIZE, "qk_norm": True},
    "norm before the blocks": {**ANY_SIZE, "pre_norm": True},
    "average pooling": {**ANY_SIZE, "class_token": False, "global_pool": "avg"},
    "normed after attention": {**ANY_SIZE, "block_fn": ResPostBlock},
    "registers": {**ANY_SIZE, "reg_tokens": 4, "no_embed_class": True, "init_values": 0.5},
    "SigLIP": {**ANY_SIZE, "class_token": False, "global_pool": "map"},
}
CLASS_ATTENTION: dict[str, tuple[type[nn.Module], dict]] = {
    "CaiT": (Cait, {}),
    "XCiT": (Xcit, {"tokens_norm": False}),
    "XCiT, tokens normed": (Xcit, {"tokens_norm": True}),
}
FAMILIES: dict[str, tuple[type[nn.Module], dict]] = {
    **{name: (Eva, options) for name, options in ROTATED.items()},
    **{name: (Beit, options) for name, options in BIASED.items()},
    **{f"ViT, {name}": (VisionTransformer, options) for name, options in PLAIN.items()},
}


def lively(model: nn.Module) -> nn.Module:
    """Weights large enough for uneven attention; running statistics and buffers stay."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(0.2 * torch.randn(tensor.shape, generator=generator))
    return model.eval()


def made(name: str) -> nn.Module:
    kind, options = (FAMILIES | CLASS_ATTENTION)[name]
    torch.manual_seed(0)
    return lively(kind(**SHAPE | options))


def picture(size: tuple[int, int], batch: int = 1) -> Tensor:
    return torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(sum(size)))


@contextmanager
def recorded_softmaxes() -> Iterator[list[Tensor]]:
    """Every softmax that is computed meanwhile."""
    seen: list[Tensor] = []
    plain = Tensor.softmax

    def softmax(self: Tensor, *arguments: object, **named: object) -> Tensor:
        seen.append(plain(self, *arguments, **named))
        return seen[-1]

    Tensor.softmax = softmax
    try:
        yield seen
    finally:
        Tensor.softmax = plain


@torch.no_grad()
def by_the_model_itself(model: nn.Module, images: Tensor) -> tuple[list[Tensor], Tensor]:
    """The softmax of every attention layer, in order, and all tokens, by the model's own unfused forward.

    A model built for one size is brought to that of the pictures by timm first.
    """
    model = copy.deepcopy(model)
    size = tuple(images.shape[2:])
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
    with recorded_softmaxes() as seen:
        tokens = model.forward_features(images)
        model.forward_head(tokens)
    return seen, tokens


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FAMILIES)
def test_rows_and_tokens_of_each_family_equal_its_own(name: str, size: tuple[int, int]):
    model, images = made(name), picture(size, batch=2)
    whole, tokens = by_the_model_itself(model, images)
    vit = readable(model)
    assert whole[0].shape[-1] == vit.prefix_tokens + size[0] * size[1] // 64
    for block in (0, 1, -1):
        expected = whole[range(3)[block]]
        torch.testing.assert_close(attention_rows(model, images, None, block), expected, atol=2e-6, rtol=1e-4)
        some = [0, vit.prefix_tokens + 5, vit.prefix_tokens]
        found = attention_rows(model, images, some, block)
        torch.testing.assert_close(found, expected[:, :, some], atol=2e-6, rtol=1e-4)
    assert whole[2].std() > 0.005, "flat maps judge nothing"
    assert (whole[2][0] - whole[2][1]).abs().max() > 0.01, "both pictures look alike: nothing is judged"
    with torch.no_grad():
        found = model.norm(vit.calls(images)[-1]())
    torch.testing.assert_close(found, tokens, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["ViT, SigLIP", *CLASS_ATTENTION])
def test_summary_rows_equal_the_softmax_of_the_last_query(name: str, size: tuple[int, int]):
    model, images = made(name), picture(size, batch=2)
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
    model = made(name)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    images = picture((72, 40))
    _, tokens = by_the_model_itself(model, images)
    accept_any_size(model)
    with torch.no_grad():
        torch.testing.assert_close(model.forward_features(images), tokens, atol=2e-5, rtol=1e-4)
        odd = model.forward_features(picture((37, 50)))
    assert odd.shape == (1, 1 + 5 * 7, 48), "padded to whole patches"
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


# --- models of timm's by name, and those that are refused


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("vit_small_patch16_dinov3", 5),
        ("vit_pe_core_tiny_patch16_384", 1),
        ("beitv2_base_patch16_224", 1),
        ("vit_base_patch16_siglip_224", 0),
        ("deit_tiny_distilled_patch16_224", 2),
        ("vit_betwixt_patch16_rope_reg4_gap_256", 4),
        ("xcit_nano_12_p16_224", 0),
    ],
)
def test_readable_accepts_published_models(name: str, tokens: int):
    with torch.device("meta"):
        assert readable(timm.create_model(name, pretrained=False)).prefix_tokens == tokens


def of(name: str, **options: object) -> Callable[[], nn.Module]:
    return lambda: timm.create_model(name, pretrained=False, num_classes=0, **options)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: create_backbone(BackboneConfig("resnet50")), "a ResNet cannot be read: expected one of"),
        (of("vit_tiny_r_s16_p8_224"), "not cut from the image but from the output of HybridEmbed"),
        (lambda: VisionTransformer(**SHAPE, attn_layer="diff"), "block 0 has a DiffAttention"),
        (of("vit_base_patch16_18x2_224", depth=1, embed_dim=24, num_heads=3), "has a ParallelThingsBlock"),
    ],
)
def test_readable_of_unsupported_model_raises(model: Callable[[], nn.Module], message: str):
    with torch.device("meta"), pytest.raises(ValueError, match=message):
        readable(model())
