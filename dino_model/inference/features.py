"""Compute features of image collections, cached on disk.

`FeatureExtractor` holds every setting of a feature; its configuration is the key of the cache.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from dino_model.data.collection import Images
from dino_model.data.framing import Box, Framing
from dino_model.data.images import ImageError
from dino_model.inference.feature_cache import CachedRows, model_fingerprint
from dino_model.models.attention import find_vit
from dino_model.models.load import LoadedModel
from dino_model.runtime import ranks
from dino_model.runtime.ahead import load_ahead
from dino_model.runtime.device import Precision, autocast, choose_device, choose_precision
from dino_model.runtime.outputs import first_reasons
from dino_model.runtime.progress import progress

IMAGES_AT_ONCE = 1024
"""Images of one rank whose features are sent and written together: the most that an interruption loses."""


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

        Returns:
            [batch, width], or [batch, tokens, width] for the patches or all tokens.

        Raises:
            ValueError: A model without these tokens, or more blocks than there are.
        """
        vit, kind = find_vit(backbone), type(backbone).__name__
        if self == OUTPUT:
            output: Tensor = vit.output(images) if vit else backbone(images)
            return output
        if vit is None or vit.summary == "class-attention":
            raise ValueError(
                f"the blocks of a {kind} have no [CLS] and patch tokens: choose the tokens output"
            )
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
    """Features, and the images that could be read.

    Attributes:
        images: In their order.
        features: float32 [len(images), ...] on the CPU, not normalized; mapped from the disk if cached.
        broken: One message for each image that could not be read.
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
            images: Read ahead by threads.
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
        """Compute the feature of one image uint8 [height, width, 3], or of a part of it, on the CPU: [width].

        Raises:
            ValueError: A box that is not inside the image.
        """
        device, backbone = choose_device(self.device), self.model.backbone
        backbone.to(device).eval()
        with torch.no_grad(), autocast(choose_precision(self.precision, device), device):
            return self._forward(self.framing.crop(image, box)[None], device)[0].cpu()

    def rows(self, images: Images, boxes: Sequence[Box | None] | None = None, title: str = "") -> Tensor:
        """Extract like `extract`, from images with the model's channels; an unreadable image gives NaN."""
        if not len(images):
            raise ValueError("no images to compute features of")
        if boxes is not None and len(boxes) != len(images):
            raise ValueError(f"{len(boxes)} boxes for {len(images)} images")
        parts = partial(self._parts, images, boxes, title)
        if self.cache is None:
            rows, done = torch.empty(0), 0
            for part in parts(0):  # without a second copy of all of them
                rows = rows if done else part.new_empty(len(images), *part.shape[1:])
                rows[done : done + len(part)] = part
                done += len(part)
            return rows
        key = ranks.on_first(lambda: self.key(images, boxes))
        with closing(CachedRows(self.cache, key, len(images))) as cached:
            for part in parts(ranks.on_first(cached.open)):
                ranks.on_first(partial(cached.append, part))
            ranks.on_first(cached.finish)
        return torch.from_numpy(cached.read())

    def key(self, images: Images, boxes: Sequence[Box | None] | None = None) -> dict[str, str]:
        """Return the cache key of these images' features: every setting that could change them."""
        device = choose_device(self.device)
        key = {
            "feature": json.dumps(asdict(self.kind)),
            "model": model_fingerprint(self.model.backbone),
            "images": images.fingerprint(),
            "framing": json.dumps(asdict(self.framing)),
            "computed": f"{choose_precision(self.precision, device)} on {device.type}",
        }
        return key if boxes is None else key | {"boxes": json.dumps(list(boxes))}

    def _parts(
        self, images: Images, boxes: Sequence[Box | None] | None, title: str, start: int
    ) -> Iterator[Tensor]:
        """Features of all images from `start` on, in parts: NaN where an image cannot be read."""
        at_once, shape = IMAGES_AT_ONCE * ranks.world(), None
        with progress((), title, len(images), done=start) as bar:
            for first in range(start, len(images), at_once):
                numbers = range(first, min(first + at_once, len(images)))
                part = ranks.gather_rows(partial(self._compute, images, boxes, bar), numbers)
                if part is None and shape is None:
                    find_readable(images.subset(numbers), torch.full((len(numbers), 1), torch.nan))  # raises
                part = torch.full((len(numbers), *(shape or ())), torch.nan) if part is None else part
                shape = part.shape[1:]
                bar.update(numbers.stop - bar.n)  # images that cannot be read, or of other ranks
                yield part

    def _compute(
        self, images: Images, boxes: Sequence[Box | None] | None, bar: "tqdm[Any]", numbers: range
    ) -> Tensor | None:
        """Features of these numbers, NaN where an image cannot be read; None if none can."""

        def load(index: int) -> Tensor | None:
            try:
                return self.framing.crop(images.read(index), None if boxes is None else boxes[index])
            except ImageError:
                return None
            except ValueError as error:
                raise ValueError(f"{images.names[index]}: {error}") from error

        device, backbone = choose_device(self.device), self.model.backbone
        training = backbone.training
        backbone.to(device).eval()
        computed: list[tuple[list[int], Tensor]] = []
        try:
            with torch.no_grad(), autocast(choose_precision(self.precision, device), device):
                crops = load_ahead(load, numbers, depth=self.batch_size)
                for batch in _batches(crops, self.batch_size):
                    places, stacked = zip(*batch, strict=True)
                    computed.append((list(places), self._forward(torch.stack(stacked), device)))
                    bar.update(len(batch))
        finally:
            backbone.train(training)
        if not computed:
            return None
        rows = torch.full((len(numbers), *computed[0][1].shape[1:]), torch.nan)
        for where, features in computed:  # a device computes without waiting for copies
            if not features.isfinite().all():
                raise ValueError(
                    f"{self.model.name} outputs NaN or infinity for one of {len(where)} images from "
                    f"{images.names[numbers[where[0]]]} on: the model is broken, or needs --precision fp32"
                )
            rows[where] = features.cpu()
        return rows

    def _forward(self, crops: Tensor, device: torch.device) -> Tensor:
        """Features of crops, uint8 [batch, channels, rows, columns], on the device; mean of the scales."""
        crops = crops.pin_memory() if device.type == "cuda" else crops
        images = self.framing.normalize(crops.to(device, non_blocking=True))
        backbone = self.model.backbone
        scales = [self.kind.compute(backbone, scaled).float() for scaled in self.framing.rescale(images)]
        return torch.stack(scales).mean(dim=0) if len(scales) > 1 else scales[0]


def _batches(crops: Iterable[Tensor | None], size: int) -> Iterator[list[tuple[int, Tensor]]]:
    """Up to `size` neighbors of one shape with their places; None, what could not be read, is left out."""
    readable = ((place, crop) for place, crop in enumerate(crops) if crop is not None)
    for _, group in groupby(readable, key=lambda pair: pair[1].shape):
        while batch := list(islice(group, size)):
            yield batch


def find_readable(images: Images, rows: Tensor) -> tuple[list[int], tuple[str, ...]]:
    """Find rows without NaN; open the images of the others for their error messages.

    Returns:
        Numbers of the images that could be read, and one message for each of the others.
    """
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
