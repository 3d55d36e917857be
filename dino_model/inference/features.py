"""Compute features of image collections, cached on disk.

`FeatureExtractor` holds every setting of a feature; its configuration is the key of the cache.
"""

import json
import os
import signal
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from dino_model.data.collection import Images
from dino_model.data.framing import Box, Framing
from dino_model.data.images import ImageError
from dino_model.inference.feature_cache import CachedRows, model_fingerprint
from dino_model.models.attention import find_vit
from dino_model.models.load import LoadedModel
from dino_model.runtime import ranks
from dino_model.runtime.device import Precision, autocast, choose_device, choose_precision
from dino_model.runtime.outputs import first_reasons
from dino_model.runtime.progress import progress

IMAGES_AT_ONCE = 1024
"""Images of one rank whose features are written together: the most that an interruption loses."""
IMAGES_OF_WORKER = 64
"""Fewest images for which another process starts; fewer are read by this one."""


@dataclass(frozen=True)
class FeatureType:
    """Feature of an image: what the model outputs, or tokens of a ViT's last blocks after the final norm.

    The tokens of several blocks are joined along their width, oldest block first, then the pooled patches of
    the last block.
    """

    blocks: int = 1
    """Number of last blocks whose `tokens` are taken; 0: none."""
    pool: Literal["none", "average", "gem"] = "none"
    """Pooling of the last block's patches: none, their mean, or their generalized mean of power 4."""
    tokens: Literal["output", "cls", "mean", "patches", "all"] = "output"
    """The model's output, [CLS], the mean of the patches, the patches, or all tokens ([CLS] and registers
    first)."""

    def __post_init__(self) -> None:
        if self.blocks < 0 or (self.blocks == 0 and self.pool == "none"):
            raise ValueError(f"blocks is {self.blocks}: expected at least 1, or 0 with pooled patches")
        if self.tokens == "output" and self.blocks and (self.blocks > 1 or self.pool != "none"):
            raise ValueError(
                "the output of a model is one vector of its last layer: choose the tokens cls or mean for "
                "several layers"
            )

    def describe(self, backbone: nn.Module) -> str:
        """Describe the feature of a model in words."""
        vit = find_vit(backbone)
        if self.tokens == "output" and self.blocks:
            return vit.output_title if vit else f"the pooled output of a {type(backbone).__name__}"
        words = {"cls": "[CLS]", "mean": "the mean of the patches", "patches": "patches", "all": "all tokens"}
        pools = {"none": "", "average": "the mean of the patches", "gem": "GeM of the patches"}
        many = f" of the last {self.blocks} blocks" if self.blocks > 1 else ""
        tokens = words[self.tokens] + many if self.blocks else ""
        return f"{' and '.join(filter(None, (tokens, pools[self.pool])))} after the final norm"

    def compute(self, backbone: nn.Module, images: Tensor) -> Tensor:
        """Compute the features of normalized images [batch, channels, height, width] in evaluation mode.

        Returns [batch, width], or [batch, tokens, width] for the patches or all tokens. Raises ValueError for
        a model without these tokens, or with fewer blocks.
        """
        vit, kind = find_vit(backbone), type(backbone).__name__
        if self == OUTPUT:
            output: Tensor = vit.output(images) if vit else backbone(images)
            return output
        if vit is None or vit.summary == "class-attention":
            raise ValueError(f"blocks of a {kind} have no [CLS] and patch tokens: choose the tokens output")
        if self.tokens == "cls" and self.blocks and not vit.has_cls:
            raise ValueError(
                f"a {kind} outputs {vit.output_title}, not a [CLS] token: choose the tokens output or mean"
            )
        layers = [vit.norm(tokens) for tokens in vit.block_tokens(images, max(1, self.blocks))]
        parts = [self._choose(layer, vit.prefix_tokens) for layer in layers[len(layers) - self.blocks :]]
        patches = layers[-1][:, vit.prefix_tokens :]
        match self.pool:
            case "none":
                pass
            case "average":
                parts.append(patches.mean(dim=1))
            case "gem":
                parts.append(gem(patches.float()))
        return torch.cat(parts, dim=-1)

    def _choose(self, tokens: Tensor, prefix: int) -> Tensor:
        match self.tokens:
            case "cls":
                return tokens[:, 0]
            case "mean":
                return tokens[:, prefix:].mean(dim=1)
            case "patches":
                return tokens[:, prefix:]
            case "all" | "output":
                return tokens


OUTPUT = FeatureType()
"""The output of the model: [CLS] after the final norm of a DINO, pooled patches or a pooled map of others."""


def has_cls(backbone: nn.Module) -> bool:
    """Return whether a model outputs a [CLS] token, which all of its blocks have."""
    vit = find_vit(backbone)
    return vit is not None and vit.has_cls


def gem(tokens: Tensor) -> Tensor:
    """Compute the generalized mean (mean x^4)^(1/4) over tokens: [..., tokens, width] -> [..., width].

    Values below 1e-6 count as 1e-6, as in the official copy detection.
    """
    return tokens.clamp(min=1e-6).pow(4.0).mean(dim=-2).pow(1 / 4)


@dataclass(frozen=True)
class ImageFeatures:
    """Features of the images that could be read: float32 [len(images), ...] on the CPU, not normalized.

    They are mapped from the disk if cached. `broken` has one message for each image that could not be read.
    """

    images: Images
    features: Tensor
    broken: tuple[str, ...] = ()


@dataclass(frozen=True)
class FeatureExtractor:
    """Model, framing and kind of features, with their precision and cache."""

    model: LoadedModel
    framing: Framing
    kind: FeatureType = OUTPUT
    precision: Precision = "auto"
    device: str = "auto"
    batch_size: int = 64
    """Images of one size at once."""
    reduced: bool = False
    """Whether large JPEGs are decoded at 1/2, 1/4 or 1/8 of their size, at least twice the framing's."""
    cache: Path | None = field(default=None, compare=False)
    """Folder that stores features and returns stored ones."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size}, expected at least 1")

    def extract(
        self, images: Images, *, boxes: Sequence[Box | None] | None = None, title: str = ""
    ) -> ImageFeatures:
        """Compute the features of images; images that cannot be read are left out and named.

        The backbone is moved to the device, runs in evaluation mode and returns to its former mode. Each rank
        computes its share, and all ranks have the result.

        Args:
            images: Read ahead by processes.
            boxes: Part of each image that is used; None: all of it.
            title: Name of the work, whose progress and unreadable images are printed; empty: nothing is.

        Raises:
            ValueError: No readable image, boxes that do not fit, features that are not finite, a kind that
                the backbone does not have, or a damaged cache.
        """
        images = replace(images, channel_range=self.model.channel_range)
        rows = self.rows(images, boxes, title)
        numbers, broken = find_readable(images, rows)
        if broken:
            images, rows = images.subset(numbers), rows[numbers]
            if title:
                print(f"left out ({len(broken)}): {first_reasons(broken)}", file=sys.stderr)
        return ImageFeatures(images, rows, broken)

    def feature(self, image: np.ndarray, box: Box | None = None) -> Tensor:
        """Compute the feature of an image uint8 [height, width, 3], or of a part, on the CPU: [width]."""
        device, backbone = choose_device(self.device), self.model.backbone
        backbone.to(device).eval()
        with torch.no_grad(), autocast(choose_precision(self.precision, device), device):
            return self._forward(self.framing.crop(image, box)[None], device)[0].cpu()

    def rows(self, images: Images, boxes: Sequence[Box | None] | None, title: str) -> Tensor:
        """Extract like `extract`, from images with the model's channels; an unreadable image gives NaN."""
        if not len(images):
            raise ValueError("no images to compute features of")
        if boxes is not None and len(boxes) != len(images):
            raise ValueError(f"{len(boxes)} boxes for {len(images)} images")
        crops = _Crops(images, self.framing, boxes, 2 * self.framing.short_side * self.reduced)
        count = len(images)
        if self.cache is None:
            with progress((), title, count) as bar:
                found = ranks.gather_rows(lambda own: next(self._compute(crops, [own], bar)), range(count))
                bar.update(count - bar.n)  # images that cannot be read, or of other ranks
            return cast(Tensor, found)
        key = ranks.on_first(lambda: self.key(images, boxes))
        with closing(CachedRows(self.cache, key, count)) as cached:
            start, at_once = ranks.on_first(cached.open), IMAGES_AT_ONCE * ranks.world()
            parts = [range(first, min(first + at_once, count)) for first in range(start, count, at_once)]
            shares = [ranks.local_range(part) for part in parts]
            with progress((), title, count, done=start) as bar:
                computed, rows_of = self._compute(crops, shares, bar), list[np.ndarray]()
                for part, share in zip(parts, shares, strict=True):
                    ranks.gather_results(lambda: rows_of.append(next(computed).numpy()))
                    rows = rows_of.pop()
                    ranks.on_first(partial(cached.create, rows.shape[1:], rows.dtype))
                    ranks.gather_results(partial(cached.write, share.start, rows))
                    ranks.on_first(partial(cached.mark, part.stop))
                    bar.update(part.stop - bar.n)
        return torch.from_numpy(cached.read())

    def key(self, images: Images, boxes: Sequence[Box | None] | None = None) -> dict[str, str]:
        """Return the cache key of these images' features: every setting that could change them."""
        device = choose_device(self.device)
        key = {
            "decoding": "reduced" if self.reduced else "exact",
            "feature": json.dumps(asdict(self.kind)),
            "model": model_fingerprint(self.model.backbone),
            "images": images.fingerprint(),
            "framing": json.dumps(asdict(self.framing)),
            "computed": f"{choose_precision(self.precision, device)} on {device.type}",
        }
        return key if boxes is None else key | {"boxes": json.dumps(list(boxes))}

    def _compute(
        self, crops: "_Crops", parts: Sequence[range], bar: "tqdm[Any]"
    ) -> Generator[Tensor, None, None]:
        """Yield the features of each part, NaN where an image cannot be read.

        Processes read ahead, also beyond the end of a part.
        """
        device, backbone = choose_device(self.device), self.model.backbone
        precision, training = choose_precision(self.precision, device), backbone.training
        numbers = [number for part in parts for number in part]
        workers = min(worker_count(), len(numbers) // IMAGES_OF_WORKER)
        ahead = max(2, 2 * self.batch_size // workers) if workers else None
        how: Any = {"num_workers": workers, "prefetch_factor": ahead, "generator": torch.Generator()}
        how |= {"collate_fn": _as_it_is, "worker_init_fn": _ignore_interrupts}
        stored = iter(DataLoader(crops, None, sampler=numbers, **how))
        launched, shape = list[tuple[list[int], Tensor]](), None
        backbone.to(device).eval()
        try:
            for part in parts:
                rows = None
                for batch in chain(_batches(islice(stored, len(part)), self.batch_size), [None]):
                    finished, launched = launched, []  # a device computes while the former batch is copied
                    if batch:
                        places, stacked = zip(*batch, strict=True)
                        with torch.no_grad(), autocast(precision, device):
                            launched = [([*places], self._forward(torch.stack(stacked), device))]
                        bar.update(len(batch))
                    for where, features in finished:
                        if not features.isfinite().all():
                            raise ValueError(
                                f"{self.model.name} outputs NaN or infinity for an image from "
                                f"{crops.images.names[part[where[0]]]} on: the model is broken, or needs "
                                "--precision fp32"
                            )
                        shape = features.shape[1:]
                        rows = torch.full((len(part), *shape), torch.nan) if rows is None else rows
                        rows[where] = features.cpu()
                if shape is None:  # of the features of an image without content
                    empty = crops.framing.crop(np.zeros((9, 9, len(crops.framing.mean)), np.uint8))
                    with torch.no_grad(), autocast(precision, device):
                        shape = self._forward(empty[None], device).shape[1:]
                yield torch.full((len(part), *shape), torch.nan) if rows is None else rows
        finally:
            backbone.train(training)

    def _forward(self, crops: Tensor, device: torch.device) -> Tensor:
        """Features of crops, uint8 [batch, channels, rows, columns], on the device; mean of the scales."""
        crops = crops.pin_memory() if device.type == "cuda" else crops
        images = self.framing.normalize(crops.to(device, non_blocking=True))
        backbone = self.model.backbone
        scales = [self.kind.compute(backbone, scaled).float() for scaled in self.framing.rescale(images)]
        return torch.stack(scales).mean(dim=0) if len(scales) > 1 else scales[0]


class _Crops(Dataset[Any]):
    """Crops uint8 [channels, rows, columns] for processes, as arrays, which take no shared memory."""

    def __init__(
        self, images: Images, framing: Framing, boxes: Sequence[Box | None] | None, at_least: int
    ) -> None:
        self.images, self.framing, self.boxes, self.at_least = images, framing, boxes, at_least

    def __getitem__(self, index: int) -> np.ndarray | ValueError:
        """Return the crop of an image, or the error: an ImageError if it cannot be read."""
        try:
            image = self.images.read(index, self.at_least)
        except ImageError as error:
            return error
        try:
            return self.framing.crop(image, None if self.boxes is None else self.boxes[index]).numpy()
        except ValueError as error:
            return ValueError(f"{self.images.names[index]}: {error}")


def _as_it_is(crop: Any) -> Any:
    return crop  # the loader itself would make tensors of arrays


def _ignore_interrupts(_: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends this process, and it ends the workers


def worker_count() -> int:
    """Return how many processes may read images: this process's cores, shared by the ranks of the node."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def _batches(crops: Iterable[Any], size: int) -> Iterator[list[tuple[int, Tensor]]]:
    """Up to `size` neighbors of one shape with their places; images that cannot be read are left out."""

    def readable() -> Iterator[tuple[int, Tensor]]:
        for place, crop in enumerate(crops):
            if isinstance(crop, ValueError) and not isinstance(crop, ImageError):
                raise crop
            if not isinstance(crop, ImageError):
                yield place, torch.from_numpy(crop)

    for _, group in groupby(readable(), key=lambda pair: pair[1].shape):
        while batch := list(islice(group, size)):
            yield batch


def find_readable(images: Images, rows: Tensor) -> tuple[list[int], tuple[str, ...]]:
    """Return the numbers of the rows without NaN, and the error of each other image."""
    missing = rows.flatten(1)[:, 0].isnan()
    broken = []
    for index in missing.nonzero()[:, 0].tolist():
        try:
            images.read(index)
        except ImageError as error:
            broken.append(str(error))
        else:
            raise ValueError(
                f"the feature kept of {images.names[index]} is NaN, though the image can be read:"
                " empty the folder of the cache"
            )
    if len(broken) == len(images):
        raise ImageError(f"none of the {len(images)} images can be read; the first: {broken[0]}")
    return (~missing).nonzero()[:, 0].tolist(), tuple(broken)
