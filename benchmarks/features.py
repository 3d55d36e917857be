"""Extraction of features against a plain DataLoader with an fp32 forward, on the same images and cores.

python -m benchmarks.features --data IMAGES [--json FILE]
"""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from benchmarks.measure import Result, report
from dino_model.collections import Images, open_images
from dino_model.features import FeatureExtractor
from dino_model.views import View
from dino_model.weights import LoadedModel, load_model
from training.evaluation.knn import knn_accuracy


class _Plain(Dataset[Tensor]):
    """Normalized center crops by torchvision."""

    def __init__(self, images: Images, model: LoadedModel, size: int) -> None:
        resize = v2.Resize(size, interpolation=v2.InterpolationMode.BICUBIC)
        pixels = [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)]
        normalize = v2.Normalize(model.mean, model.std)
        self.images, self.view = images, v2.Compose([resize, v2.CenterCrop(size), *pixels, normalize])

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        found: Tensor = self.view(Image.fromarray(self.images.read(index)))
        return found


@dataclass(frozen=True)
class Features:
    """Images per second of both, cosine of their features, and k-NN accuracy."""

    data: Path
    """Labeled images."""
    model: str = "embedded"
    """Name of a model."""
    size: int = 112
    """Side of the center crop in pixels."""
    count: int = 800
    """Number of images, taken at even distances."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Extract by both, compare, print."""
        images = open_images(self.data)
        images = images.subset(range(0, len(images), max(1, len(images) // self.count)))
        model = load_model(self.model)
        view = View(self.size, model.mean, model.std)
        extractor = FeatureExtractor(model, view, precision="auto", device="cpu")
        extractor.extract(images.subset(range(min(256, len(images)))))  # compiled, and read once
        started = time.perf_counter()
        ours = extractor.extract(images).features
        seconds = time.perf_counter() - started
        started = time.perf_counter()
        loader = DataLoader(_Plain(images, model, self.size), 64, num_workers=0)
        with torch.no_grad():
            plain = torch.cat([model.backbone(batch) for batch in loader])
        reference = time.perf_counter() - started
        labels = torch.tensor(images.labels)
        asked = torch.arange(len(images)) % 5 == 4
        top1 = [
            knn_accuracy(f[~asked], labels[~asked], f[asked], labels[asked], k=20).top1 for f in (ours, plain)
        ]
        cosines = torch.cosine_similarity(ours, plain)
        remarks = (
            f"{len(images):,} images, {self.model} at {self.size} pixels:"
            f" {len(images) / seconds:.1f} against {len(images) / reference:.1f} images/s",
            f"cosine of features: mean {float(cosines.mean()):.5f}, least {float(cosines.min()):.5f}; k-NN"
            f" {top1[0]:.1f} against {top1[1]:.1f} %",
        )
        report(Result("features", seconds, reference, remarks=remarks), self.json)


if __name__ == "__main__":
    tyro.cli(Features).run()
