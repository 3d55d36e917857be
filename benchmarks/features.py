"""Extraction of features against torchvision's crops and an fp32 forward, on the same images and cores.

python -m benchmarks.features --data IMAGES [--json FILE]
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from benchmarks.measure import Benchmark
from dino_model.data.collection import Images, open_images
from dino_model.data.framing import Framing
from dino_model.inference.features import FeatureExtractor
from dino_model.models.load import load_model
from training.evaluation.knn import knn_accuracy


@dataclass(frozen=True, kw_only=True)
class Features(Benchmark):
    """Images per second of the features that evaluations read."""

    data: Path
    """Labeled images."""
    model: str = "embedded"
    """Name of a model."""
    size: int = 112
    """Side of the center crop in pixels."""
    count: int = 800
    """Number of images, taken at even distances."""
    repeats: int = 1
    """Timed turns of each side, after one to warm up."""

    def images(self) -> Images:
        """Open the images."""
        images = open_images(self.data)
        return images.subset(range(0, len(images), max(1, len(images) // self.count)))

    def package(self) -> Callable[[], Tensor]:
        """Extract as the commands do."""
        model, images = load_model(self.model), self.images()
        framing = Framing(self.size, model.mean, model.std)
        extractor = FeatureExtractor(model, framing, precision="auto", device="cpu")
        return lambda: extractor.extract(images).features

    def reference(self) -> Callable[[], Tensor]:
        """Extract from center crops of torchvision."""
        model, images = load_model(self.model), self.images()
        resize = v2.Resize(self.size, interpolation=v2.InterpolationMode.BICUBIC)
        pixels = [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)]
        preprocess = v2.Compose(
            [resize, v2.CenterCrop(self.size), *pixels, v2.Normalize(model.mean, model.std)]
        )

        def crops(indices: Tensor) -> Tensor:
            return torch.stack(
                [preprocess(Image.fromarray(images.read(index))) for index in indices.tolist()]
            )

        @torch.no_grad()
        def extract() -> Tensor:
            batches = torch.arange(len(images)).split(64)
            return torch.cat([model.backbone(crops(batch)) for batch in batches])

        return extract

    def compare(self) -> tuple[str, ...]:
        """Compare features and their k-NN accuracy; every fifth image is a query."""
        package, reference = self.package()(), self.reference()()
        labels = torch.tensor(self.images().labels)
        is_query = torch.arange(len(labels)) % 5 == 4
        accuracies = (
            knn_accuracy(rows[~is_query], labels[~is_query], rows[is_query], labels[is_query], k=20).top1
            for rows in (package, reference)
        )
        cosines = torch.cosine_similarity(package, reference)
        return (
            f"{len(labels):,} images, {self.model} at {self.size} pixels",
            f"cosine of features: mean {float(cosines.mean()):.5f}, least {float(cosines.min()):.5f}; k-NN "
            "{:.1f} against {:.1f} %".format(*accuracies),
        )


if __name__ == "__main__":
    tyro.cli(Features).run()
