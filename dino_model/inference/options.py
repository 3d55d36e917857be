"""Options of every command with a model. Torch is imported only when a model is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dino_model.models.configs import CheckpointOptions, Resize
from dino_model.runtime.precision import ComputePrecision, Precision

if TYPE_CHECKING:
    from dino_model.data.framing import Framing
    from dino_model.inference.features import FeatureExtractor
    from dino_model.inference.predictor import AttentionPredictor
    from dino_model.models.load import LoadedModel


@dataclass(frozen=True, kw_only=True)
class PrecisionOptions:
    """Precision and device of a model."""

    precision: Precision = "auto"
    """Arithmetic of the model. auto is bf16 where the hardware has it, but fp32 where labels are carried from
    frame to frame."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""


@dataclass(frozen=True, kw_only=True)
class ComputeOptions(CheckpointOptions, PrecisionOptions):
    """Network, precision and device; `ModelOptions` adds the model."""

    def chosen_precision(self) -> ComputePrecision:
        """Return the precision to compute in on the device; errors as `choose_precision`."""
        from dino_model.runtime.device import choose_device, choose_precision

        return choose_precision(self.precision, choose_device(self.device))

    def open_predictor(
        self,
        model: LoadedModel,
        size: int,
        resize: Resize = "short-side",
        *,
        tiles: TileOptions | None = None,
        **more: Any,
    ) -> AttentionPredictor:
        """Create a predictor in this precision, on this device; `more` as for `AttentionPredictor`."""
        from dino_model.inference.predictor import AttentionPredictor
        from dino_model.inference.tiles import TiledPredictor

        shared: Any = {"size": size, "resize": resize, "precision": self.precision, "device": self.device}
        if tiles and tiles.tile:
            return TiledPredictor(model, tile=tiles.tile, overlap=tiles.overlap, **shared | more)
        return AttentionPredictor(model, **shared | more)


@dataclass(frozen=True, kw_only=True)
class FeatureOptions(ComputeOptions):
    """Options of commands that compute features of many images."""

    batch_size: int = 64
    """Images per forward pass."""

    def extractor(self, model: LoadedModel, framing: Framing, **more: Any) -> FeatureExtractor:
        """Create an extractor with these options; `more` as for `FeatureExtractor`."""
        from dino_model.inference.features import FeatureExtractor

        shared: Any = {"precision": self.precision, "device": self.device, "batch_size": self.batch_size}
        return FeatureExtractor(model, framing, **shared | more)


@dataclass(frozen=True, kw_only=True)
class ModelOptions(ComputeOptions):
    """Model and image size."""

    model: str = "embedded"
    """Name of a model, checkpoint file or run; `python -m dino_model list` lists names."""
    size: int = 480
    """Pixels of the input's short side (of both sides with --resize squash)."""

    def load(self) -> LoadedModel:
        """Load the model; errors as `load_model`."""
        from dino_model.models.load import load_model

        return load_model(self.model, **self.checkpoint())

    def predictor(self, resize: Resize = "short-side", **more: Any) -> AttentionPredictor:
        """Load the model, and create its predictor; `more` as for `open_predictor`."""
        return self.open_predictor(self.load(), self.size, resize, **more)


@dataclass(frozen=True, kw_only=True)
class ChannelOptions:
    """Option of commands that read images of any channels."""

    channels: int | None = None
    """Channels of the images, which are then read as they are stored (gray, 16-bit and multispectral TIFF,
    .npy). A model of RGB is adapted to them. Default: images are read as RGB."""


@dataclass(frozen=True, kw_only=True)
class TileOptions:
    """Options of commands that encode images larger than the model's input."""

    tile: int | None = None
    """Side in pixels of tiles that the resized image is encoded in, such as 518. Default: all at once."""
    overlap: float = 0.25
    """Share of a tile that overlaps the next one, 0 to 0.5."""
    max_megapixels: float = 100.0
    """Largest image that is read, in millions of pixels."""
