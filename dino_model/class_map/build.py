"""Build a class map on disk from labeled images."""

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dino_model import files
from dino_model.class_map import files as class_map_files
from dino_model.class_map.command import DrawClassMap
from dino_model.class_map.layout import (
    FEWEST_CLASSES,
    ClassMap,
    Origin,
    Protocol,
    cosine_distances,
    draw,
)
from dino_model.collections import Images, open_images
from dino_model.feature_cache import FeatureCache, weights_fingerprint
from dino_model.features import FeatureExtractor, ImageFeatures
from dino_model.outputs import PROVENANCE, write_provenance
from dino_model.progress import following
from dino_model.views import View
from dino_model.weights import LoadedModel


def build(options: DrawClassMap) -> None:
    """Compute features, draw the map, write and report it.

    Raises:
        ValueError: Fewer than three classes, or a model or images that cannot be used.
    """
    files.make_room(options.json, options.output / class_map_files.JSON)
    protocol = Protocol(perplexity=options.perplexity, iterations=options.iterations, seed=options.seed)
    images = labelled(open_images(options.data), options.leave_out)
    model = options.load()
    view = View(options.size, model.mean, model.std, options.resize_to)
    print(f"{model.name}: {model.source}; {images}", flush=True)

    started = time.perf_counter()
    extracted = _features(options, model, view, images)
    images, features = labelled(extracted.images, ()), extracted.features
    seconds = {"features": time.perf_counter() - started}
    if extracted.broken:
        print(extracted, file=sys.stderr)
    keys, labels = classes_of(images)
    lowered = protocol.fitted(len(keys), features.shape[1]).perplexity
    if lowered < protocol.perplexity:
        print(f"{len(keys)} classes: perplexity lowered from {protocol.perplexity:g} to {lowered:g}")

    started = time.perf_counter()
    origin = Origin(model.name, weights_fingerprint(model.backbone), options.data.stem, view)
    drawn = draw(features, labels, keys, protocol, origin)
    pictures = typical_images(images, labels, features, drawn) if options.thumbnails else None
    drawn = class_map_files.write(options.output, drawn, pictures)
    written = sorted(path.name for path in options.output.iterdir() if not path.name.startswith("."))
    seconds["map"] = time.perf_counter() - started
    _report(options, drawn, {"images": len(images), "broken": len(extracted.broken)}, seconds)
    settings = {"model": model.name, "precision": options.chosen_precision(), "view": asdict(view)}
    settings |= asdict(protocol) | {"data": str(options.data), "leave_out": options.leave_out}
    write_provenance(options.output / PROVENANCE, settings, contents=written)


def _features(options: DrawClassMap, model: LoadedModel, view: View, images: Images) -> ImageFeatures:
    extractor = FeatureExtractor(
        model,
        view,
        precision=options.precision,
        device=options.device,
        batch_size=options.batch_size,
        cache=FeatureCache(options.cache) if options.cache else None,
    )
    return extractor.extract(images, track=following("features", len(images)))


def _report(
    options: DrawClassMap, drawn: ClassMap, counts: dict[str, int], seconds: dict[str, float]
) -> None:
    alone = sum(point.pictures == 1 for point in drawn.classes)
    print(f"{len(drawn.classes):,} classes, {counts['images']:,} images; with one image: {alone:,}")
    print(drawn.protocol, drawn.overlap, sep="\n")
    print(f"features in {seconds['features']:.1f} s, map in {seconds['map']:.1f} s: {options.output}")
    if options.json:
        numbers = {"classes": len(drawn.classes), **counts, "seconds": seconds}
        quality = {"overlap": asdict(drawn.overlap), "protocol": asdict(drawn.protocol)}
        files.write_json(options.json, {"name": "class-map", "model": drawn.origin.model} | numbers | quality)


def labelled(images: Images, leave_out: Sequence[str]) -> Images:
    """Return the images whose folder is a class; raise ValueError for fewer than three classes."""
    labels = images.labels or ()
    kept = [index for index, label in enumerate(labels) if images.classes[label] not in leave_out]
    found = {labels[index] for index in kept}
    if len(found) < FEWEST_CLASSES:
        raise ValueError(
            f"found {len(found) or 'no'} classes in {images.root}, expected at least {FEWEST_CLASSES}: "
            "put the images of each class into a folder of its own"
        )
    return images.subset(kept)


def classes_of(images: Images) -> tuple[list[str], list[int]]:
    """Return the folders that have images, and the index of each image's folder among them."""
    labels = images.labels or ()
    present = sorted(set(labels))
    place = {label: index for index, label in enumerate(present)}
    return [images.classes[label] for label in present], [place[label] for label in labels]


def typical_images(
    images: Images, labels: Sequence[int], features: Tensor, drawn: ClassMap
) -> list[NDArray[np.uint8]]:
    """Read the image of every class whose feature is nearest (cosine) to the class mean."""
    of = np.array(labels)
    chosen = []
    for label, mean in enumerate(drawn.features.astype(np.float32)):
        members = np.flatnonzero(of == label)
        chosen.append(members[cosine_distances(features[members].numpy(), mean[None])[:, 0].argmin()])
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda index: images.read(int(index)), chosen))
