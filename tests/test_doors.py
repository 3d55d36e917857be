"""Each door of CONTRIBUTING.md: the code in its section runs, and what it adds works."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from dino_model import AttentionPredictor


def door_code(title: str) -> str:
    """Return the Python code of a section "Door: TITLE" of CONTRIBUTING.md."""
    text = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
    section = text.partition(f"### Door: {title}\n")[2].partition("\n## ")[0].partition("\n### ")[0]
    return "\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL))


@torch.no_grad()
def test_door_model_computes_the_attention_of_its_blocks():
    names: dict[str, Any] = {"nn": nn, "F": F, "AttentionPredictor": AttentionPredictor}
    exec(door_code("a model"), names)
    predictor = names["predictor"]
    predictor.set_image(np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8))
    tokens = torch.from_numpy(predictor._encoding.tokens[1].float().cpu().numpy())
    attention = predictor.model.backbone.blocks[1].self_attn
    _, expected = attention(tokens, tokens, tokens, average_attn_weights=False)
    found = predictor.point_attention(0, 0, block=1)
    np.testing.assert_allclose(
        found.reshape(2, -1), expected[0, :, 0], atol=0.02 if predictor.precision != "fp32" else 1e-5
    )
    assert predictor.token_features().shape == (8, 12, 32)
