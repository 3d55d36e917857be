"""Small models of every family, with weights large enough for uneven attention."""

import torch
from timm.models.beit import Beit
from timm.models.cait import Cait
from timm.models.eva import Eva
from timm.models.vision_transformer import ResPostBlock, VisionTransformer
from timm.models.xcit import Xcit
from torch import Tensor, nn

SHAPE = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 3, "num_heads": 3, "num_classes": 0}
ANY_SIZE = {"dynamic_img_size": True, "dynamic_img_pad": True}
ROTARY = {"use_rot_pos_emb": True, **ANY_SIZE}
ROTATED = {
    "EVA: no rotation": ANY_SIZE,
    "EVA-02: rotation after a learned grid": {**ROTARY, "ref_feat_shape": (4, 4), "swiglu_mlp": True},
    "separate projections": {**ROTARY, "qkv_fused": False, "scale_mlp": True, "swiglu_mlp": True},
    "normed after attention": {**ROTARY, "use_post_norm": True},
    "DINOv3": dict(
        use_abs_pos_emb=False, rope_type="dinov3", rope_rotate_half=True, num_reg_tokens=4, qkv_bias=False,
        init_values=0.5, global_pool="token", **ROTARY,
    ),
    "Perception Encoder": dict(
        attn_type="rope", rope_grid_offset=1.0, rope_grid_indexing="xy", use_pre_transformer_norm=True,
        global_pool="map", **ROTARY,
    ),
    "learned rotation": {**ROTARY, "rope_type": "mixed", "use_abs_pos_emb": False},
    "q and k norms": {**ROTARY, "qk_norm": True},
    "heads that share keys": {**ROTARY, "attn_type": "rope", "qkv_fused": False, "num_kv_heads": 1},
    "no bias": {**ROTARY, "qkv_bias": False},
}  # fmt: skip
SHARED_BIAS = {"use_shared_rel_pos_bias": True}
BIASED = {
    "BEiT": {"use_abs_pos_emb": False, "use_rel_pos_bias": True, "init_values": 0.5},
    "BEiT of a shared bias": {**SHARED_BIAS, "use_abs_pos_emb": True, "qkv_bias": False},
    "BEiT of both biases": {**SHARED_BIAS, "use_rel_pos_bias": True, "global_pool": "token"},
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


def made(name: str = "ViT, no bias") -> nn.Module:
    """Make a model of three blocks and three heads, for 32 × 32 pixels in patches of 8."""
    kind, options = (FAMILIES | CLASS_ATTENTION)[name]
    torch.manual_seed(0)
    model, generator = kind(**SHAPE | options).eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(0.2 * torch.randn(tensor.shape, generator=generator))
    return model


def noise(size: tuple[int, int], batch: int = 1) -> Tensor:
    """Draw normalized images of a size."""
    return torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(sum(size)))
