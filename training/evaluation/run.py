"""Run an evaluation: load the models, extract features, write protocol and metrics."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from dino_model.data.channels import measure_channels
from dino_model.data.collection import Images
from dino_model.data.framing import Box, Framing, by_channel
from dino_model.inference.features import OUTPUT, FeatureType, ImageFeatures
from dino_model.models.adaptation import fit_channels
from dino_model.models.load import LoadedModel, load_model
from dino_model.runtime import files, ranks
from dino_model.runtime.ahead import load_ahead
from dino_model.runtime.device import choose_device
from dino_model.runtime.errors import pluralize
from training.augmentation.crops import BOX_NUMBERS, random_box
from training.augmentation.randomness import mix
from training.evaluation import paper
from training.evaluation.datasets import Split, open_labeled, open_split
from training.evaluation.options import Classification, Evaluation, Knn

Metrics = dict[str, Any]


class Pixels(nn.Module):
    """Baseline without a network: the image in 16 × 16 pixels, mean subtracted."""

    def forward(self, images: Tensor) -> Tensor:
        """[batch, 3, height, width] -> [batch, 768]."""
        pixels = F.adaptive_avg_pool2d(images, 16).flatten(1)
        return pixels - pixels.mean(dim=1, keepdim=True)


class Labeled(NamedTuple):
    """Features of labeled images that could be read."""

    features: Tensor
    """float32 [images, values]."""
    labels: Tensor
    """int64 [images], or bool [images, classes] if images have several classes."""
    images: Images
    broken: tuple[str, ...]
    """Messages, one for each unreadable image."""


def open_options(options: Classification) -> Split:
    """Open the images that the options name, on the first rank for all; errors as `open_split`."""

    def open_here() -> Split:
        arrays, labels = options.channels is not None, options.label_options()
        if isinstance(options, Knn) and options.leave_one_out:
            images = open_labeled(options.data, arrays=arrays, options=labels)
            return Split(images, images, "each among all others")
        paths = options.data, options.test, options.split
        return open_split(*paths, test_labels=options.test_labels, arrays=arrays, options=labels)

    return ranks.on_first(open_here, ranks.LISTING_LIMIT)


def framing_of(options: Evaluation, model: LoadedModel | None = None, **how: Any) -> Framing:
    """Return the framing of a model; without one, a framing whose string describes it.

    Args:
        options, model: Size and normalization.
        how: Further arguments of `Framing`. Default: a center crop.
    """
    if isinstance(options, Classification):
        how["resize_to"] = options.resize_to
    return Framing(options.size, *((model.mean, model.std) if model else ((), ())), **how)


def extract(
    options: Evaluation,
    model: LoadedModel,
    framing: Framing,
    images: Images,
    kind: FeatureType = OUTPUT,
    boxes: list[Box | None] | None = None,
) -> ImageFeatures:
    """Extract features; images that cannot be read are left out and named on stderr."""
    title = f"{model.name}, {pluralize(len(images), 'image')}"
    extractor = options.extractor(model, framing, kind=kind, cache=options.cache)
    return extractor.extract(images, boxes=boxes, title=title)


def extract_parts(
    options: Classification, model: LoadedModel, split: Split, kind: FeatureType = OUTPUT
) -> tuple[Labeled, Labeled]:
    """Extract features of the training and the test images of a split, with their labels."""
    framing = framing_of(options, model)
    seen = extract(options, model, framing, split.train, kind)
    parts = [seen, seen if split.test is split.train else extract(options, model, framing, split.test, kind)]
    warnings = split.unreadable(parts[0].images, parts[1].images)
    print(*(f"warning: {sentence}\n" for sentence in warnings), sep="", end="", flush=True)
    train, test = (Labeled(p.features, split.labels(p.images), p.images, p.broken) for p in parts)
    return train, test


def random_view(image: np.ndarray, size: int, seed: int) -> Tensor:
    """Resize a random box (bilinear) and flip it every second time, with torchvision's default parameters.

    Args:
        image: uint8 [height, width, channels].
        size: Side of the result in pixels.
        seed: Seed of box and flip.

    Returns:
        uint8 [channels, size, size].
    """
    numbers = np.random.default_rng(seed).random(BOX_NUMBERS + 1).tolist()
    height, width = image.shape[:2]
    box = random_box(width, height, (0.08, 1.0), numbers)

    def change(image: Image.Image) -> Image.Image:
        view = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
        return view.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if numbers[-1] < 0.5 else view

    return by_channel(image, change)


def random_batches(
    images: Images, batches: Sequence[Sequence[int]], size: int, seed: int
) -> Iterator[Tensor]:
    """Yield a `random_view` of every image of every batch, decoded ahead: uint8 [batch, 3, size, size].

    `batches` holds the numbers of their images, `seed` is that of the epoch.
    """

    def load(index: int) -> Tensor:
        return random_view(images.read(index), size, mix(seed, index))

    depth = max(map(len, batches), default=1)
    views = load_ahead(load, (index for batch in batches for index in batch), depth)
    for batch in batches:
        yield torch.stack(list(islice(views, len(batch))))


def evaluate_models(
    options: Evaluation,
    name: str,
    description: str,
    measure: Callable[[LoadedModel], Metrics],
    *published: str,
    split: Split | None = None,
    warnings: Sequence[str] = (),
) -> None:
    """Measure every model; write the results after each, so that an interruption loses one model at most.

    Args:
        options: Models, device, file, and the settings that the results depend on.
        name: Name of the evaluation.
        description: Protocol in words.
        measure: Computes "metrics" and further entries of a model.
        published: Table of the paper, and its measures that are comparable.
        split: Labeled images; the models are adapted to the channels of the training images.
        warnings: What makes the metrics uncertain, besides `Split.warnings`.
    """
    files.make_room(options.json)
    precision, device = options.chosen_precision(), str(choose_device(options.device))
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
    protocol = settings | {"description": description, "precision": precision, "device": device}
    print(description)
    if split:
        notes = dict.fromkeys((*split.train.notes, *split.test.notes))
        reading = [*dict.fromkeys(filter(None, (split.train.reading, split.test.reading)))]
        print("; ".join([f"{settings['data'].removesuffix(':')}: {split}", *notes]), *reading, sep="\n")
        warnings = [*split.warnings(), *warnings]
        protocol |= {
            "split": str(split),
            "classes": len(split.classes),
            "notes": list(notes),
            "reading": reading,
        }
    print(*(f"warning: {sentence}\n" for sentence in warnings), sep="", end="", flush=True)
    protocol |= {"warnings": list(warnings)}
    results: list[Metrics] = []
    for model_name in options.model or ("embedded",):
        model = _load(options, model_name, split.train if split else None)
        output = OUTPUT.describe(model.backbone)
        print(f"{model.name}: {model.source}; {precision} on {device}; output: {output}", flush=True)
        result = measure(model)
        rows = paper.of_model(model.name, *published) if published else []
        print(*(f"paper: {paper.describe(row)}\n" for row in rows), sep="", end="")
        about = {"model": model.name, "source": model.source, "output": output}
        results.append({**about, **result, "paper": rows})
        if ranks.rank() == 0:
            options.save({"name": name, "protocol": protocol, "results": results})


def _load(options: Evaluation, name: str, images: Images | None) -> LoadedModel:
    """Load a model, or the baseline without a network, for the channels of images; None: RGB."""
    channels = options.channels if isinstance(options, Classification) else None
    raw = images.raw_channels(channels) if images and channels else None
    if name != "pixels":
        return fit_channels(load_model(name, **options.checkpoint()), raw, channels)
    zeros, ones = ((value,) * (channels or 3) for value in (0.0, 1.0))
    channel_range = measure_channels(raw).range if raw else None
    return LoadedModel(name, Pixels(), zeros, ones, "16 × 16 pixels", None, channel_range)
