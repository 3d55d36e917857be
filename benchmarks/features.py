"""Extraction of features against torchvision's crops and an fp32 forward, on the same JPEGs of 500 × 375.

python -m benchmarks.features [--json FILE]
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import tyro
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from benchmarks import data
from benchmarks.measure import Benchmark, Computation, median_seconds
from dino_model.data.framing import Framing
from dino_model.inference.features import FeatureExtractor
from dino_model.models.load import load_model


@dataclass(frozen=True, kw_only=True)
class Features(Benchmark):
    """Images per second of the features that evaluations read."""

    model: str = "embedded"
    """Name of a model."""
    size: int = 112
    """Side of the center crop in pixels."""
    count: int = 480
    """Number of images."""
    repeats: int = 1
    """Timed turns of each side, after one to warm up."""

    def peers(self) -> dict[str, tuple[Computation, Computation]]:
        """Extract as the commands do, and from center crops of torchvision."""
        return {"torchvision's crops, fp32": self.sides()}

    def sides(self) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
        """Draw the images, load the model, return both computations of the features."""
        images, model = data.images(self.count), load_model(self.model)
        framing = Framing(self.size, model.mean, model.std)
        extractor = FeatureExtractor(model, framing, precision="auto", device="cpu")
        resize = v2.Resize(self.size, interpolation=v2.InterpolationMode.BICUBIC)
        pixels = [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)]
        preprocess = v2.Compose(
            [resize, v2.CenterCrop(self.size), *pixels, v2.Normalize(model.mean, model.std)]
        )

        def crops(indices: Tensor) -> Tensor:
            return torch.stack([preprocess(Image.fromarray(images.read(i))) for i in indices.tolist()])

        @torch.no_grad()
        def extract_plainly() -> Tensor:
            batches = torch.arange(len(images)).split(64)
            return torch.cat([model.backbone(crops(batch)) for batch in batches])

        return lambda: extractor.extract(images).features, extract_plainly

    def compare(self) -> tuple[str, ...]:
        """Compare the features, and compute the cores that feed a GPU."""
        extract, extract_plainly = self.sides()
        cosines = torch.cosine_similarity(extract(), extract_plainly())
        rate = self.count / median_seconds(extract, repeats=self.repeats)[0]
        return (
            f"{self.count:,} images, {self.model} at {self.size} pixels",
            f"cosine of features: mean {float(cosines.mean()):.5f}, least {float(cosines.min()):.5f}",
            f"{rate:,.0f} images/s of a core, reading, cropping and the network on the CPU",
        )


if __name__ == "__main__":
    tyro.cli(Features).run()
