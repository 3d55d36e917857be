"""Position embeddings on any grid.

A ViT learns one embedding per patch of its training grid. Another image size needs another grid, and families
of models resample to it in different ways. From 14 to 6 patches the ways differ by 8 to 25 % (relative L2),
so each family is resampled as its own code does: `families.PUBLISHED` lists the ways.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from dino_model.models.configs import PositionMode


def resample(
    embedding: Tensor,
    learned: tuple[int, int],
    grid: tuple[int, int],
    prefix: int = 1,
    mode: PositionMode = "size",
) -> Tensor:
    """Resample a position embedding to another grid by bicubic interpolation.

    Args:
        embedding: [1, prefix + rows * columns, width] of the learned grid.
        learned: Rows and columns of the learned grid.
        grid: Rows and columns of the result.
        prefix: Leading tokens ([CLS], registers), which are not resampled.
        mode: `size` samples exactly `grid`. `antialias` does so with antialiasing, as DINOv2 with registers.
            `official` is used by DINO and DINOv2 without registers. Its scale factors are (rows + 0.1) /
            learned rows and (columns + 0.1) / learned columns. It returns the learned embedding only for a
            square grid of the learned number of patches.

    Returns:
        [1, prefix + rows * columns, width].
    """
    if grid == learned and (mode != "official" or grid[0] == grid[1]):
        return embedding
    prefixes, patches = embedding[:, :prefix], embedding[:, prefix:]
    patches = patches.unflatten(1, learned).permute(0, 3, 1, 2)  # [1, width, rows, columns]
    if mode == "official":
        size: Any = {"scale_factor": ((grid[0] + 0.1) / learned[0], (grid[1] + 0.1) / learned[1])}
    else:
        size = {"size": grid, "antialias": mode == "antialias"}
    patches = F.interpolate(patches, mode="bicubic", **size)
    return torch.cat([prefixes, patches.flatten(2).transpose(1, 2)], dim=1)


def sincos_embedding(rows: int, columns: int, width: int) -> Tensor:
    """Compute a fixed 2-D sine and cosine embedding: [rows * columns, width], values -1 to 1.

    Sine and cosine of column and row have a quarter of the width each; the rest of the width is 0. The
    wavelengths are 2 pi to 20,000 pi patches of a grid of 14 x 14. A position in the image has the same
    embedding on every grid.

    Source: A. Vaswani et al. (2017), section 3.5, in two dimensions as X. Chen et al. (2021).
    """
    quarter = width // 4
    frequencies = 10_000 ** -(torch.arange(quarter) / quarter)
    x, y = ((torch.arange(count) + 0.5) * 14 / count for count in (columns, rows))
    angles = (x[:, None] * frequencies, y[:, None, None] * frequencies)
    waves = [wave.expand(rows, columns, -1) for angle in angles for wave in (angle.sin(), angle.cos())]
    return F.pad(torch.cat(waves, dim=-1).flatten(0, 1), (0, width - 4 * quarter))


def install(vit: VisionTransformer, mode: PositionMode, resample: Callable[..., Tensor] = resample) -> None:
    """Make a timm ViT resample its position embeddings with `resample` in the given mode.

    Raises:
        ValueError: A model without learned position embeddings, or an unknown mode.
    """
    if not isinstance(vit, VisionTransformer) or vit.pos_embed is None:
        raise ValueError(f"{type(vit).__name__} has no learned position embeddings to resample")
    if mode not in (modes := get_args(PositionMode)):
        raise ValueError(f"unknown position mode {mode!r}: choose one of {', '.join(modes)}")
    vit.dynamic_img_size = True
    vit.patch_embed.strict_img_size = False
    vit.patch_embed.flatten = False
    vit.patch_embed.output_fmt = type(vit.patch_embed.output_fmt)("NHWC")
    vit.position_mode = mode
    vit._pos_embed = partial(_add_positions, vit, resample)  # a bound method could not be pickled


def _add_positions(vit: VisionTransformer, resample: Callable[..., Tensor], patches: Tensor) -> Tensor:
    """[batch, rows, columns, width] -> [batch, prefix + rows * columns, width], positions added."""
    batch, rows, columns, _ = patches.shape
    carries = 0 if vit.no_embed_class else vit.num_prefix_tokens  # prefix tokens with a position of their own
    position = resample(vit.pos_embed, vit.patch_embed.grid_size, (rows, columns), carries, vit.position_mode)
    prefix = [token.expand(batch, -1, -1) for token in (vit.cls_token, vit.reg_token) if token is not None]
    tokens = patches.flatten(1, 2)
    if vit.no_embed_class:
        tokens = torch.cat([*prefix, tokens + position], dim=1)
    else:
        tokens = torch.cat([*prefix, tokens], dim=1) + position
    return vit.pos_drop(tokens)
