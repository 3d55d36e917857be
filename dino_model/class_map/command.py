"""`python -m dino_model class-map`: from labelled pictures to a class map on disk.

How the map that ships with the page is made stands in docs/embedded-model.md.
"""

import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dino_model import files
from dino_model.class_map import files as class_map_files
from dino_model.class_map.layout import (
    FEWEST_CLASSES,
    ClassMap,
    Origin,
    Protocol,
    cosine_distances,
    draw,
)
from dino_model.feature_cache import FeatureCache, weights_fingerprint
from dino_model.features import FeatureExtractor, ImageFeatures
from dino_model.images import Images, open_images
from dino_model.options import ModelOptions
from dino_model.progress import following
from dino_model.views import View
from dino_model.weights import LoadedModel


@dataclass(frozen=True)
class DrawClassMap(ModelOptions):
    """Draw every class as a point near those that a model finds alike: mean features, PCA, t-SNE.

    Writes a folder: map.json, map.csv, map.png (a figure) and thumbnails.webp. The page shows it when it lies
    in the page's --models-dir.
    """

    data: Path
    """Pictures in a folder for each class: FOLDER, uncompressed TAR or LIST."""
    output: Path
    """Folder to write the map to."""
    size: int = field(default=224, kw_only=True)
    """Side of the centre crop in pixels."""
    resize_to: int | None = None
    """Short side before the crop, --size if left out. ImageNet's protocol is --resize-to 256 --size 224."""
    perplexity: float = 20.0
    """Of t-SNE; lowered where classes are few."""
    iterations: int = 5000
    """Of t-SNE."""
    seed: int = 0
    """Of t-SNE: the same seed draws the same map."""
    leave_out: tuple[str, ...] = ("BACKGROUND_Google",)
    """Folders that are no class; as it stands, Caltech-101's."""
    thumbnails: bool = True
    """Keep a small picture of each class, the one nearest to its mean. Mind the pictures' licence."""
    batch_size: int = 64
    """Pictures at once."""
    cache: Path | None = None
    """Folder that keeps features, so that another map of them takes seconds."""
    json: Path | None = None
    """Write protocol, quality and times to this file."""

    def run(self) -> None:
        """Read, compute, write, print."""
        files.make_room(self.json, self.output / class_map_files.JSON)
        protocol = Protocol(perplexity=self.perplexity, iterations=self.iterations, seed=self.seed)
        images = labelled(open_images(self.data), self.leave_out)
        model = self.load()
        view = View(self.size, model.mean, model.std, self.resize_to)
        print(f"{model.name}: {model.source}; {images}", flush=True)

        started = time.perf_counter()
        extracted = self._features(model, view, images)
        images, features = labelled(extracted.images, ()), extracted.features
        seconds = {"features": time.perf_counter() - started}
        if extracted.broken:
            print(extracted, file=sys.stderr)
        keys, labels = classes_of(images)
        lowered = protocol.fitted(len(keys), features.shape[1]).perplexity
        if lowered < protocol.perplexity:
            print(
                f"{len(keys)} classes are few: perplexity lowered from {protocol.perplexity:g} to {lowered:g}"
            )

        started = time.perf_counter()
        origin = Origin(model.name, weights_fingerprint(model.backbone), self.data.stem, view)
        drawn = draw(features, labels, keys, protocol, origin)
        pictures = typical_pictures(images, labels, features, drawn) if self.thumbnails else None
        drawn = class_map_files.write(self.output, drawn, pictures)
        seconds["map"] = time.perf_counter() - started
        self._report(drawn, len(images), len(extracted.broken), seconds)

    def _features(self, model: LoadedModel, view: View, images: Images) -> ImageFeatures:
        extractor = FeatureExtractor(
            model,
            view,
            precision=self.precision,
            device=self.device,
            batch_size=self.batch_size,
            cache=FeatureCache(self.cache) if self.cache else None,
        )
        return extractor.extract(images, track=following("features", len(images)))

    def _report(self, drawn: ClassMap, pictures: int, broken: int, seconds: dict[str, float]) -> None:
        alone = sum(point.pictures == 1 for point in drawn.classes)
        print(f"{len(drawn.classes):,} classes, {pictures:,} pictures; with one picture: {alone:,}")
        print(drawn.protocol, drawn.overlap, sep="\n")
        print(f"features in {seconds['features']:.1f} s, map in {seconds['map']:.1f} s: {self.output}")
        if self.json:
            figures = {
                "name": "class-map",
                "model": drawn.origin.model,
                "data": drawn.origin.data,
                "classes": len(drawn.classes),
                "pictures": pictures,
                "broken": broken,
                "overlap": asdict(drawn.overlap) | {"by_features": "cosine", "on_map": "Euclidean"},
                "protocol": asdict(drawn.protocol) | {"view": asdict(drawn.origin.view)},
                "seconds": seconds,
            }
            files.write_text(self.json, json.dumps(figures, indent=2) + "\n")


def labelled(images: Images, leave_out: Sequence[str]) -> Images:
    """The pictures whose folder is a class.

    Raises:
        ValueError: fewer than three classes.
    """
    labels = images.labels or ()
    kept = [index for index, label in enumerate(labels) if images.classes[label] not in leave_out]
    found = {labels[index] for index in kept}
    if len(found) < FEWEST_CLASSES:
        raise ValueError(
            f"found {len(found) or 'no'} classes in {images.root}, a map needs at least {FEWEST_CLASSES}: "
            "put the pictures of each class into a folder of its own"
        )
    return images.subset(kept)


def classes_of(images: Images) -> tuple[list[str], list[int]]:
    """Folders that have pictures, and of each picture the index of its folder among them."""
    labels = images.labels or ()
    present = sorted(set(labels))
    place = {label: index for index, label in enumerate(present)}
    return [images.classes[label] for label in present], [place[label] for label in labels]


def typical_pictures(
    images: Images, labels: Sequence[int], features: Tensor, drawn: ClassMap
) -> list[NDArray[np.uint8]]:
    """Of every class, the picture whose feature is nearest (cosine) to the class mean."""
    of = np.array(labels)
    chosen = []
    for label, mean in enumerate(drawn.features.astype(np.float32)):
        members = np.flatnonzero(of == label)
        chosen.append(members[cosine_distances(features[members].numpy(), mean[None])[:, 0].argmin()])
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda index: images.read(int(index)), chosen))
