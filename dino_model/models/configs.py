"""Configuration of networks and values of options, without torch: `--help` must not wait for it."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

Resize = Literal["short-side", "squash", "native", "davis"]
CheckpointKey = str | None
"""Name of one of several networks in a checkpoint; None: the default one of its method."""
PositionMode = Literal["size", "official", "antialias"]
PositionStart = Literal["normal", "sincos"]


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
    """Choice of a network in a checkpoint that holds several, or that does not describe itself."""

    checkpoint_key: CheckpointKey = None
    """Network of a checkpoint or run that holds several: teacher, student, … Default: the usual one."""
    checkpoint_prefix: str | None = None
    """Prefix of the backbone's tensors, where the search for them fails."""
    heads: int | None = None
    """Attention heads of a bare checkpoint. Default: by the published models with its names and width."""

    def checkpoint(self) -> dict[str, Any]:
        """Return these options as arguments of `load_model`."""
        return {name: getattr(self, name) for name in ("checkpoint_key", "checkpoint_prefix", "heads")}


VIT_SHAPES = {
    "vit_tiny": (192, 12, 3),
    "vit_small": (384, 12, 6),
    "vit_base": (768, 12, 12),
    "vit_large": (1024, 24, 16),
    "vit_giant": (1536, 40, 24),
}
"""Width, depth and heads: S and B of the paper's Table 1, Ti of DeiT, L of ViT, g of DINOv2."""
ARCHITECTURES = (*VIT_SHAPES, "resnet50")


@dataclass(frozen=True)
class BackboneConfig:
    """Configuration of a backbone."""

    architecture: str = "vit_small"
    """vit_tiny, vit_small, vit_base, vit_large, vit_giant or resnet50."""
    patch_size: int = 16
    """Side of a patch in pixels (ViT)."""
    image_size: int = 224
    """Side of the square image whose patch grid the position embeddings are learned on (ViT)."""
    in_channels: Annotated[int, tyro.conf.arg(name="channels")] = 3
    """Channels of the images. With this option, images are read as they are stored (gray, 16-bit and
    multispectral TIFF, PNG, .npy). Their range, mean and deviation are computed from the data."""
    width: int | None = None
    """Features per token, instead of the architecture's."""
    depth: int | None = None
    """Blocks, instead of the architecture's."""
    heads: int | None = None
    """Attention heads, instead of the architecture's."""
    layer_scale: float | None = None
    """Initial value of LayerScale (ViT); 0: none. Default: 1e-5 for vit_giant, as in DINOv2, else none."""
    mlp: Literal["auto", "gelu", "swiglu"] = "auto"
    """MLP of the blocks (ViT): two layers with GELU, or SwiGLU. auto: swiglu for vit_giant, else gelu."""
    drop_path: float = 0.0
    """Stochastic depth of the last block; earlier blocks get linearly less."""
    position_mode: PositionMode = "size"
    """Resampling of position embeddings, see `dino_model.models.position`."""
    position_start: PositionStart = "normal"
    """Initial position embeddings: normal (deviation 0.02) or sincos (ViT)."""

    def vit_shape(self) -> tuple[int, int, int]:
        """Return width, depth and heads with the overrides applied."""
        own = (self.width, self.depth, self.heads)
        width, depth, heads = (
            usual if value is None else value
            for value, usual in zip(own, VIT_SHAPES[self.architecture], strict=True)
        )
        return width, depth, heads


@dataclass(frozen=True)
class HeadConfig:
    """Configuration of a projection head; the defaults are DINO's, the rest variants of the appendix."""

    prototypes: int = 65536
    """K, the number of outputs."""
    layers: int = 3
    """Linear layers of the MLP, 1 to 4. The prototype layer after the bottleneck is one more."""
    hidden: int = 2048
    """Width of the MLP's hidden layers."""
    bottleneck: int | None = 256
    """Width of the l2-normalized bottleneck before the prototypes; None: the MLP's last layer gives the K."""
    batch_norm: bool = False
    """Batch normalization after every hidden layer."""
    activation: Literal["gelu", "relu"] = "gelu"
    """Non-linearity of the hidden layers."""
    train_gain: bool = False
    """Train the weight-norm gain of the prototypes instead of keeping it at 1."""
