"""The options that every command with a model shares: which model, and how it computes.

The module imports torch only when a model is loaded, so that `--help` and wrong options take no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dino_model.choices import CheckpointKey, ComputePrecision, Precision, Resize

if TYPE_CHECKING:
    from dino_model.predictor import AttentionPredictor
    from dino_model.weights import LoadedModel


@dataclass(frozen=True, kw_only=True)
class ComputeOptions:
    """How models are taken from their files and run; `ModelOptions` adds which one."""

    checkpoint_key: CheckpointKey = None
    """Which network of several in a checkpoint or run: teacher, student, …; left out: its usual one."""
    precision: Precision = "auto"
    """Arithmetic of the model. auto is bf16 where the hardware has it, but fp32 where labels are carried from
    frame to frame: there the few that bf16 changes would change others after them."""
    device: str = "auto"
    """Where the model runs: auto, cpu, cuda or mps."""

    def chosen_precision(self, *, carries_labels: bool = False) -> ComputePrecision:
        """Return the precision to compute in on the device; errors as `choose_precision`."""
        from dino_model.device import choose_device, choose_precision

        wanted: Precision = "fp32" if self.precision == "auto" and carries_labels else self.precision
        return choose_precision(wanted, choose_device(self.device))


@dataclass(frozen=True, kw_only=True)
class ModelOptions(ComputeOptions):
    """A command inherits these; where its `size` means something else, it says so in a `size` of its own."""

    model: str = "embedded"
    """Name of a model, checkpoint file or run; `python -m dino_model list` tells the names."""
    size: int = 480
    """Pixels of the short side that the model sees (of both sides with --resize squash)."""

    def load(self) -> LoadedModel:
        """Load the model; errors as `load_model`."""
        from dino_model.weights import load_model

        return load_model(self.model, checkpoint_key=self.checkpoint_key)

    def predictor(
        self,
        resize: Resize = "short-side",
        *,
        model: LoadedModel | None = None,
        std: Sequence[float] | None = None,
        carries_labels: bool = False,
    ) -> AttentionPredictor:
        """Create a predictor with these options.

        Args:
            resize, std: As in `AttentionPredictor`.
            model: Result of `load`; None: it is loaded.
            carries_labels: Whether labels of one image follow from those of the image before.
        """
        from dino_model.predictor import AttentionPredictor

        if self.size < 1:
            raise ValueError(f"--size is {self.size}; expected at least 1 pixel")
        precision = self.chosen_precision(carries_labels=carries_labels)
        return AttentionPredictor(
            model or self.load(),
            size=self.size,
            resize=resize,
            precision=precision,
            device=self.device,
            std=std,
        )
