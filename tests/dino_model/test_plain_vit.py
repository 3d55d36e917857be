"""A ViT written from the paper, plainly and in double precision, judges the fast one."""

import math

import pytest
import torch
from torch import Tensor, nn

from dino_model.attention import attention_rows
from dino_model.backbones import BackboneConfig, create_backbone, forward_tokens

TOLERANCE = 1e-5


class PlainViT:
    """Section 3.2 and Table 1 of the paper, after Vaswani et al. and Dosovitskiy et al.: one step a line.

    Everything is explicit: patches are cut by reshaping, attention is a matrix, positions are resampled by a
    bicubic kernel written out below.
    """

    def __init__(self, weights: dict[str, Tensor], heads: int, patch: int) -> None:
        self.weights = {name: tensor.double() for name, tensor in weights.items()}
        self.heads, self.patch = heads, patch
        self.depth = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))

    def __call__(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Final tokens [batch, tokens, width]; attention of each block [batch, heads, tokens, tokens]."""
        tokens, attentions = self.embed(images.double()), []
        for number in range(self.depth):
            prefix = f"blocks.{number}."
            mixed, attention = self.attend(self.norm(tokens, f"{prefix}norm1"), f"{prefix}attn.")
            tokens = tokens + mixed
            hidden = self.linear(self.norm(tokens, f"{prefix}norm2"), f"{prefix}mlp.fc1")
            hidden = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2  # GELU, exact
            tokens = tokens + self.linear(hidden, f"{prefix}mlp.fc2")
            attentions.append(attention)
        return self.norm(tokens, "norm"), attentions

    def embed(self, images: Tensor) -> Tensor:
        batch, channels, height, width = images.shape
        rows, columns = height // self.patch, width // self.patch
        cut = images.reshape(batch, channels, rows, self.patch, columns, self.patch)
        patches = cut.permute(0, 2, 4, 1, 3, 5).reshape(batch, rows * columns, -1)
        weight, bias = self.weights["patch_embed.proj.weight"], self.weights["patch_embed.proj.bias"]
        patches = patches @ weight.reshape(len(weight), -1).T + bias
        cls = self.weights["cls_token"].expand(batch, 1, -1)
        return torch.cat([cls, patches], dim=1) + self.positions(rows, columns)

    def positions(self, rows: int, columns: int) -> Tensor:
        learned = self.weights["pos_embed"][0]
        side = math.isqrt(len(learned) - 1)
        grid = learned[1:].reshape(side, side, -1)
        grid = torch.einsum("ri,cj,ijd->rcd", bicubic(side, rows), bicubic(side, columns), grid)
        return torch.cat([learned[:1], grid.reshape(rows * columns, -1)])

    def attend(self, tokens: Tensor, prefix: str) -> tuple[Tensor, Tensor]:
        batch, count, width = tokens.shape
        projected = self.linear(tokens, f"{prefix}qkv").reshape(
            batch, count, 3, self.heads, width // self.heads
        )
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) / math.sqrt(width / self.heads)
        attention = torch.exp(scores - scores.amax(-1, keepdim=True))
        attention = attention / attention.sum(-1, keepdim=True)
        mixed = (attention @ value).transpose(1, 2).reshape(batch, count, width)
        return self.linear(mixed, f"{prefix}proj"), attention

    def linear(self, tokens: Tensor, name: str) -> Tensor:
        return tokens @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, tokens: Tensor, name: str) -> Tensor:
        centred = tokens - tokens.mean(-1, keepdim=True)
        deviation = torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-6)
        return centred / deviation * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]


def bicubic(inputs: int, outputs: int) -> Tensor:
    """Weights [outputs, inputs] of Keys' kernel (a = -0.75), pixel centres aligned, edges repeated."""
    a, matrix = -0.75, torch.zeros(outputs, inputs, dtype=torch.double)
    for output in range(outputs):
        centre = (output + 0.5) * inputs / outputs - 0.5
        for tap in range(math.floor(centre) - 1, math.floor(centre) + 3):
            x = abs(centre - tap)
            if x <= 1:
                weight = (a + 2) * x**3 - (a + 3) * x**2 + 1
            else:
                weight = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
            matrix[output, min(max(tap, 0), inputs - 1)] += weight
    return matrix


def with_lively_weights(backbone: nn.Module) -> nn.Module:
    """Weights of a trained model's size: with fresh ones every attention is flat and judges nothing."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in backbone.named_parameters():
            noise = torch.randn(tensor.shape, generator=generator)
            gain = name.endswith("weight") and tensor.ndim == 1  # of a norm
            scale = 1.5 / math.sqrt(tensor[0].numel()) if name.endswith("weight") and not gain else 0.1
            tensor.copy_(noise * scale + gain)
    return backbone.eval()


@pytest.mark.parametrize("architecture", ["vit_small", "vit_base"])
def test_a_vit_written_from_the_paper_gives_the_same_tokens_and_maps(architecture: str):
    config = BackboneConfig(architecture, patch_size=16)
    vit = with_lively_weights(create_backbone(config))
    plain = PlainViT(vit.state_dict(), heads=config.vit_shape()[2], patch=16)
    for size in (224, 96):
        images = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(size))
        tokens, attentions = plain(images)
        with torch.no_grad():
            assert (forward_tokens(vit, images) - tokens).abs().max() < TOLERANCE
            assert (vit(images) - tokens[:, 0]).abs().max() < TOLERANCE
        for block in (4, -1):
            rows = attention_rows(vit, images, [0, 7], block)
            assert (rows - attentions[block][:, :, [0, 7]]).abs().max() < TOLERANCE
            assert rows.std() > 1e-4, "flat maps judge nothing"
