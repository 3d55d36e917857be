"""Attention maps of a ViT-S/8 on a 480 × 480 image, against every block's attention written out in fp32.

python -m benchmarks.attention [--json FILE]
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

import numpy as np
import torch
import tyro

from benchmarks.measure import Benchmark, Computation
from dino_model.inference.predictor import AttentionPredictor
from dino_model.models.attention import readable
from dino_model.models.load import LoadedModel, load_model
from dino_model.runtime.device import Precision

MODEL = "random:vit_small/8"
SIZE = 480  # 60 × 60 patches and [CLS]: 3,601 tokens
# Random weights give flat maps, which always agree; larger queries and keys give peaks.
SHARPENING = 4.0
AGREEMENT = 1e-4  # of the maps, in fp32


@dataclass(frozen=True, kw_only=True)
class Attention(Benchmark):
    """Maps of the last block for the [CLS] query: `AttentionPredictor` against a plain ViT in fp32."""

    def peers(self) -> dict[str, tuple[Computation, Computation]]:
        """Compute the maps of the images in turn, with all attention written out, or timm's fused one."""
        exact, fast = predictor("fp32"), predictor()
        peers = {
            "timm's fused attention, both in fp32": (exact, True),
            "attention written out, both in fp32": (exact, False),
            f"attention written out, {fast.precision} against fp32": (fast, False),
        }

        def sides(package: AttentionPredictor, fused: bool) -> tuple[Computation, Computation]:
            own, other, maps = cycle(images()), cycle(images()), plain_maps(sharpened_model(), fused)
            return lambda: fused_maps(package, next(own)), lambda: maps(next(other))

        return {name: sides(*pair) for name, pair in peers.items()}

    def compare(self) -> tuple[str, ...]:
        """Compare the maps."""
        image, fast = images()[0], predictor()
        expected = plain_maps(sharpened_model())(image)
        difference = np.abs(fused_maps(predictor("fp32"), image) - expected).max()
        if difference > AGREEMENT:
            raise SystemExit(f"the maps differ by {difference:.1e} in fp32, expected at most {AGREEMENT:.0e}")
        loss = np.abs(fused_maps(fast, image) - expected).max()
        return (
            f"ViT-S/8 at {SIZE} × {SIZE}, {torch.get_num_threads()} threads",
            f"largest difference of the maps: {difference:.1e} in fp32 (allowed {AGREEMENT:.0e}), "
            f"{loss:.1e} in {fast.precision}; their largest value is {expected.max():.2f}",
        )


def fused_maps(predictor: AttentionPredictor, image: np.ndarray) -> np.ndarray:
    """Compute maps with fused attention everywhere, and one row of the last block."""
    predictor.set_image(image)
    return predictor.cls_attention()


def plain_maps(model: LoadedModel, fused: bool = False) -> Callable[[np.ndarray], np.ndarray]:
    """The reference: timm's forward, with the attention of all tokens by all tokens in the last block.

    The other blocks have written-out or, with `fused`, fused attention.
    """
    vit, attention = readable(model.backbone), list[torch.Tensor]()
    for block in vit.vit.blocks:
        block.attn.fused_attn = fused
    vit.vit.blocks[-1].attn.fused_attn = False
    vit.vit.blocks[-1].attn.attn_drop.register_forward_hook(lambda *args: attention.append(args[-1]))

    @torch.no_grad()
    def maps(image: np.ndarray) -> np.ndarray:
        pixels = (torch.from_numpy(image) / 255 - torch.tensor(model.mean)) / torch.tensor(model.std)
        model.backbone(pixels.permute(2, 0, 1).unsqueeze(0))
        side = SIZE // vit.patch_size[0]
        rows = attention.pop()[0, :, 0, vit.prefix_tokens :]  # [heads, patches]
        return rows.unflatten(-1, (side, side)).numpy()

    return maps


def sharpened_model() -> LoadedModel:
    """The model of both sides: random weights, but with attention that has peaks."""
    model = load_model(MODEL)
    for block in readable(model.backbone).vit.blocks:
        block.attn.qkv.weight.data[: 2 * block.attn.qkv.in_features] *= SHARPENING
    return model


def predictor(precision: Precision = "auto") -> AttentionPredictor:
    """Load the predictor of this project."""
    return AttentionPredictor(
        sharpened_model(), size=SIZE, resize="squash", precision=precision, device="cpu"
    )


def images() -> list[np.ndarray]:
    """Two images of colored squares, uint8 [SIZE, SIZE, 3], used in turn so that none is cached."""
    coarse = np.random.default_rng(0).integers(0, 256, (2, SIZE // 24, SIZE // 24, 3), dtype=np.uint8)
    return list(coarse.repeat(24, axis=1).repeat(24, axis=2))


if __name__ == "__main__":
    tyro.cli(Attention, prog="python -m benchmarks.attention").run()
