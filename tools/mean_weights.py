"""Average weights of fine-tuned models: `python -m tools.mean_weights A B --shares 0.7 0.3 --output FILE`.

Source: Wortsman et al. 2022, Model soups (arXiv:2203.05482).
"""

import math
from dataclasses import dataclass, field
from pathlib import Path

import torch
import tyro
from tyro.conf import Positional

from dino_model.models.checkpoint import write_safetensors
from dino_model.models.load import load_model


@dataclass(frozen=True)
class MeanWeights:
    """Write the weighted mean of models in fp16."""

    models: Positional[tuple[str, ...]]
    """Names, runs or files of one architecture, trained from the same weights."""
    shares: tuple[float, ...] = field(kw_only=True)
    """Weight of each model; their sum is 1."""
    output: Path = field(kw_only=True)
    """File to write (.safetensors)."""

    def run(self) -> None:
        """Load, average, write.

        Raises:
            SystemExit: The shares do not fit, or the architectures or normalizations differ.
        """
        shares = self.shares
        if len(shares) != len(self.models) or not math.isclose(sum(shares), 1):
            raise SystemExit(
                f"{len(shares)} shares with a sum of {sum(shares):g} for {len(self.models)} models: "
                "expected one for each, with a sum of 1"
            )
        first, *others = (load_model(name) for name in self.models)
        for other in others:
            if other.config is None or first.misfits(other.backbone, other.mean, other.std):
                raise SystemExit(f"{other.name} has another architecture or normalization than {first.name}")
        states = [model.backbone.state_dict() for model in (first, *others)]
        with torch.no_grad():
            for name, tensor in states[0].items():
                parts = [share * state[name].double() for share, state in zip(shares, states, strict=True)]
                tensor.copy_(torch.stack(parts).sum(dim=0))
        if first.config is None:
            raise SystemExit(f"{first.name} is no backbone of this package")
        write_safetensors(
            first.backbone,
            self.output,
            config=first.config,
            mean=first.mean,
            std=first.std,
            dtype=torch.float16,
        )
        print(f"mean of {', '.join(self.models)}: {self.output}")


if __name__ == "__main__":
    tyro.cli(MeanWeights).run()
