"""Queue of the newest keys: the negatives of MoCo, further images of SwAV for small batches."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Queue(nn.Module):
    """Ring buffer of vectors; the newest overwrite the oldest (Algorithm 1 of arXiv:1911.05722)."""

    vectors: Tensor
    """[length, width]; random directions until overwritten."""
    seen: Tensor
    """Number of vectors put in so far; the next one goes to row `seen` modulo `length`."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.register_buffer("vectors", F.normalize(torch.randn(length, width), dim=-1))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.count = 0  # `seen` on the host, which must not wait for the device

    @torch.no_grad()
    def put(self, vectors: Tensor) -> None:
        """Overwrite the oldest rows with `vectors` [n, width], n at most the length."""
        places = (self.seen + torch.arange(len(vectors), device=vectors.device)) % len(self.vectors)
        self.vectors[places] = vectors.to(self.vectors.dtype)
        self.seen += len(vectors)
        self.count += len(vectors)

    def full(self) -> bool:
        """Whether all random rows were overwritten."""
        return self.count >= len(self.vectors)

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        super()._load_from_state_dict(*arguments, **options)
        self.count = int(self.seen)
