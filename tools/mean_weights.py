"""Average weights of fine-tuned models: `python -m tools.mean_weights A B --shares 0.7 0.3 --output FILE`.

Source: Wortsman et al. 2022, Model soups (arXiv:2203.05482).
"""

import math
from pathlib import Path

import torch
import tyro
from tyro.conf import Positional

from dino_model.models.checkpoint import write_safetensors
from dino_model.models.load import load_model


def main(models: Positional[tuple[str, ...]], shares: tuple[float, ...], output: Path) -> None:
    """Write the weighted mean of models in fp16.

    Args:
        models: Names, runs or files of one architecture, trained from the same weights.
        shares: Weight of each model; their sum is 1.
        output: File to write (.safetensors).

    Raises:
        SystemExit: The shares do not fit, or the architectures or normalizations differ.
    """
    if len(shares) != len(models) or not math.isclose(sum(shares), 1):
        raise SystemExit(f"{len(shares)} shares with a sum of {sum(shares):g} for {len(models)} models")
    first, *others = (load_model(name) for name in models)
    for other in others:
        if other.config is None or first.misfits(other.backbone, other.mean, other.std):
            raise SystemExit(f"{other.name} has another architecture or normalization than {first.name}")
    states = [model.backbone.state_dict() for model in (first, *others)]
    with torch.no_grad():
        for name, tensor in states[0].items():
            parts = (share * state[name].double() for share, state in zip(shares, states, strict=True))
            tensor.copy_(sum(parts, torch.zeros((), dtype=torch.float64)))
    assert first.config is not None
    write_safetensors(
        first.backbone, output, config=first.config, mean=first.mean, std=first.std, dtype=torch.float16
    )
    print(f"mean of {', '.join(models)}: {output}")


if __name__ == "__main__":
    tyro.cli(main, prog="python -m tools.mean_weights")
