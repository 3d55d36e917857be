"""Models for other programs: one .onnx file that gives the feature and the maps of [CLS]."""

import importlib.util
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from dino_model import files
from dino_model.attention import checked_vit, embed, rows_from_tokens, run_blocks
from dino_model.backbones import patch_grid
from dino_model.checkpoints import WeightsError

NEEDED = ("onnx", "onnxscript")


class FeatureAndAttention(nn.Module):
    """A ViT that answers with [CLS] after the final norm and with where [CLS] looks in the last block."""

    def __init__(self, backbone: nn.Module, size: int) -> None:
        super().__init__()
        self.vit = checked_vit(backbone)
        if self.vit.cls_token is None:
            raise ValueError("the model has no [CLS] token, so there is no attention of [CLS] to export")
        self.grid = patch_grid(self.vit, size, size)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Images [batch, channels, size, size] -> feature [batch, width], [batch, heads, rows, columns]."""
        last = len(self.vit.blocks) - 1
        tokens = run_blocks(self.vit, embed(self.vit, images), 0, last)
        rows = rows_from_tokens(self.vit.blocks[last], tokens, [0])
        attention = rows[:, :, 0, self.vit.num_prefix_tokens :].unflatten(-1, self.grid)
        feature = self.vit.forward_head(self.vit.norm(run_blocks(self.vit, tokens, last, last + 1)))
        return feature, attention


def write_onnx(backbone: nn.Module, path: Path, *, size: int, channels: int = 3) -> None:
    """Write a backbone as .onnx, for normalised square pictures of `size` pixels in batches of any length.

    Outputs are `feature` and, for a ViT, `cls_attention`; see `FeatureAndAttention`.

    Raises:
        ValueError: packages that are missing, or a size below 1.
        OSError: `path` cannot be written.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise WeightsError(f"ONNX needs {' and '.join(missing)}: run `pip install {' '.join(NEEDED)}` first")
    if size < 1:
        raise ValueError(f"size is {size}, expected at least 1")
    is_vit = hasattr(backbone, "blocks")
    model = FeatureAndAttention(backbone, size).eval() if is_vit else backbone.eval()
    with files.replacing(path) as beside, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, on its own workings
        torch.onnx.export(
            model,
            (torch.zeros(2, channels, size, size),),
            beside,
            input_names=["images"],
            output_names=["feature", "cls_attention"][: 1 + is_vit],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            external_data=False,
            verbose=False,
        )
