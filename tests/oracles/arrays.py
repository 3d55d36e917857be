"""Arrays of the reference files as tensors, and their comparison."""

from collections.abc import Mapping

import numpy as np
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from dino_model.models.backbones import BackboneConfig, create_backbone
from dino_model.models.checkpoint import load_strictly

PRECISIONS = ((torch.float64, 1e-10), (torch.float32, 1e-5))
"""Types of the arithmetic, and the largest difference as a share of the largest magnitude."""


def tensors(arrays: Mapping[str, np.ndarray], prefix: str = "") -> dict[str, Tensor]:
    """The arrays whose names begin with a prefix, by the rest of the name."""
    return {
        name.removeprefix(prefix): torch.as_tensor(array)
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def vit_of(arrays: Mapping[str, np.ndarray], position_mode: str = "size") -> VisionTransformer:
    """The ViT whose sizes and weights a file holds, in evaluation mode."""
    weights = tensors(arrays, "param/")
    vit = create_backbone(
        BackboneConfig(
            "vit_tiny",
            int(arrays["patch_size"]),
            int(arrays["image_size"]),
            width=weights["cls_token"].shape[-1],
            depth=len({name.split(".")[1] for name in weights if name.startswith("blocks.")}),
            heads=int(arrays["heads"]),
            position_mode=position_mode,
        )
    )
    load_strictly(vit, weights, "the oracle")
    return vit.eval()


def agree(found: Tensor, expected: Tensor, tolerance: float, name: str = "") -> None:
    """Compare relative to the largest magnitude, as the README has it."""
    torch.testing.assert_close(
        found.detach().double(),
        expected.double(),
        atol=tolerance * expected.abs().max().item(),
        rtol=0,
        msg=lambda text: f"{name}: {text}",
    )
