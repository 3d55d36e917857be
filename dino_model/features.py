"""Features of whole collections of pictures: which of a model's answers, from which view, kept on disk.

`Extractor` holds all that decides a feature, and its configuration is the key of the cache. `patch_tokens`,
`last_blocks` and `gem` are what it reads from a batch.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

import torch
from timm.models.beit import Beit
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from dino_model import ranks
from dino_model.ahead import load_ahead
from dino_model.backbones import forward_tokens, patch_grid
from dino_model.device import Precision, autocast, choose_device, choose_precision
from dino_model.feature_cache import FeatureCache, model_fingerprint
from dino_model.images import ImageError, Images
from dino_model.views import Box, View
from dino_model.weights import LoadedModel

Track = Callable[[range], Iterable[int]]
"""Hands on numbers of pictures and tells how far they are; a large collection comes in parts."""
_TOLD = 3  # broken pictures that are named one by one


@dataclass(frozen=True)
class Kind:
    """Which of a model's answers is the feature of a picture: [CLS] of some blocks, then pooled patches."""

    blocks: int = 1
    """[CLS] of so many last blocks, each after the final norm, oldest first; 0: none."""
    pool: Literal["none", "average", "gem", "grid"] = "none"
    """Patch tokens of the last block, after the final norm: left out, their mean, their generalised mean of
    power 4, or every one on its grid."""

    def __post_init__(self) -> None:
        if self.blocks < 0 or (self.blocks == 0 and self.pool == "none"):
            raise ValueError(f"blocks is {self.blocks}: expected at least 1, or 0 with pooled patches")
        if self.pool == "grid" and self.blocks:
            raise ValueError("patches on their grid come without [CLS]: blocks must be 0")

    def __str__(self) -> str:
        several = f"[CLS] of the last {self.blocks} blocks"
        cls = {0: "", 1: "[CLS]"}.get(self.blocks, several)
        pooled = {"average": "mean of the patches", "gem": "GeM of the patches", "grid": "patches"}
        parts = [part for part in (cls, pooled.get(self.pool, "")) if part]
        return f"{' and '.join(parts)} after the final norm"

    def of(self, backbone: nn.Module, images: Tensor) -> Tensor:
        """Normalised images [batch, 3, height, width] -> [batch, vectors * width], or the grid
        [batch, rows, columns, width].

        Raises:
            ValueError: patches or blocks of what is no ViT, or more blocks than there are.
        """
        if self == CLS:
            answer: Tensor = backbone(images)
            return answer
        if self.pool == "grid" and isinstance(backbone, TOKEN_FAMILIES):
            return patch_tokens(backbone, images)
        if not has_cls_tokens(backbone):
            raise ValueError(
                f"{type(backbone).__name__} has one feature per image, no {self}: only the kind [CLS] fits it"
            )
        layers = _layers(backbone, images, max(1, self.blocks))
        parts = [prefix[:, 0] for _, prefix in layers[len(layers) - self.blocks :]]
        if self.pool != "none":
            tokens = layers[-1][0]
            parts.append(tokens.mean(dim=1) if self.pool == "average" else gem(tokens.float()))
        return torch.cat(parts, dim=-1)


TOKEN_FAMILIES = (VisionTransformer, Eva, Beit)
"""timm's classes whose blocks output [CLS] and patch tokens. Eva includes EVA-02 and DINOv3."""


def has_cls_tokens(backbone: nn.Module) -> bool:
    """Whether every block of a backbone outputs a [CLS] token and patch tokens."""
    return isinstance(backbone, TOKEN_FAMILIES) and getattr(backbone, "cls_token", None) is not None


CLS = Kind()
"""The backbone's own answer: [CLS] after the final norm, or a ResNet's pooled feature."""


@dataclass(frozen=True)
class Extracted:
    """Features, and of which pictures they are."""

    images: Images
    """Those that could be read, in their order."""
    features: Tensor
    """float32 [len(images), ...], on the CPU, not normalised; where they were kept, mapped from the disk."""
    broken: tuple[str, ...]
    """What is wrong with those that could not, in words."""

    def __str__(self) -> str:
        """What was left out, for people; empty when nothing was."""
        if not self.broken:
            return ""
        more = f"; and {len(self.broken) - _TOLD} more" if len(self.broken) > _TOLD else ""
        return f"left out ({len(self.broken)}): {'; '.join(self.broken[:_TOLD])}{more}"


@dataclass(frozen=True)
class Extractor:
    """All that decides the features of pictures."""

    model: LoadedModel
    view: View
    kind: Kind = CLS
    precision: Precision = "auto"
    device: str = "auto"
    batch_size: int = 64
    """Pictures of one size at once."""
    cache: FeatureCache | None = field(default=None, compare=False)
    """Where features are kept and looked up."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size}, expected at least 1")
        if self.kind.pool == "grid" and self.view.framing in ("short-side", "long-side"):
            raise ValueError("patches on their grid need pictures of one size: choose another framing")

    def of(
        self, images: Images, *, boxes: Sequence[Box | None] | None = None, track: Track = iter
    ) -> Extracted:
        """The features of pictures; one that cannot be read is left out, and named.

        The backbone is moved to the device, runs in evaluation mode and is put back into the mode it was in.

        Args:
            images: the pictures; while one batch is computed, threads read the next. Of several processes
                each takes its share of them, and all have the result.
            boxes: of each picture what is shown at all; None: everything.
            track: tells how far it is.

        Raises:
            ValueError: no pictures, none that can be read, boxes that do not fit, pictures of which the model
                gives no finite feature, a kind that the backbone has not, a damaged cache.
        """
        if not len(images):
            raise ValueError("no pictures to compute features of")
        if boxes is not None and len(boxes) != len(images):
            raise ValueError(f"{len(boxes)} boxes for {len(images)} pictures")

        def lead(compute: ranks.Compute[Tensor | None]) -> Tensor:
            if self.cache is None:
                return _stacked(images, compute(range(len(images))))
            key = self.key(images, boxes)
            return self.cache.rows(key, len(images), lambda numbers: _stacked(images, compute(numbers)))

        def compute(numbers: range) -> list[Tensor | None]:
            return self._compute(images, boxes, track(numbers))

        return _sound(images, ranks.led(lead, compute))

    def of_crop(self, crop: Tensor) -> Tensor:
        """The feature of one picture that the view has cropped, uint8 [3, rows, columns]: [1, ...]."""
        (feature,) = self._run(iter([crop]))
        assert feature is not None
        return feature[None]

    def key(self, images: Images, boxes: Sequence[Box | None] | None = None) -> dict[str, str]:
        """What the features of these pictures are kept under: every setting that could change them."""
        where = choose_device(self.device)
        key = {
            "feature": json.dumps(asdict(self.kind)),
            "model": model_fingerprint(self.model.backbone),
            "pictures": images.fingerprint(),
            "view": json.dumps(asdict(self.view)),
            "computed": f"{choose_precision(self.precision, where)} on {where.type}",
        }
        return key if boxes is None else key | {"boxes": json.dumps(list(boxes))}

    def _compute(
        self, images: Images, boxes: Sequence[Box | None] | None, numbers: Iterable[int]
    ) -> list[Tensor | None]:
        """Features of these numbers, None where a picture cannot be read."""

        def load(index: int) -> Tensor | ValueError:
            try:
                return self.view.crop(images.read(index), None if boxes is None else boxes[index])
            except ImageError as error:
                return error
            except ValueError as error:
                raise ValueError(f"{images.names[index]}: {error}") from error

        return self._run(load_ahead(load, numbers, depth=self.batch_size))

    def _run(self, crops: Iterator[Tensor | ValueError]) -> list[Tensor | None]:
        """The feature of every crop, None where there is none."""
        where, training = choose_device(self.device), self.model.backbone.training
        self.model.backbone.to(where).eval()
        rows: list[Tensor | None] = []
        try:
            with torch.no_grad(), autocast(choose_precision(self.precision, where), where):
                for batch in _batches(crops, self.batch_size):
                    rows.extend(self._answers(batch, where, len(rows)))
        finally:
            self.model.backbone.train(training)
        return rows

    def _answers(self, batch: list[Tensor | None], where: torch.device, done: int) -> list[Tensor | None]:
        crops = [crop for crop in batch if crop is not None]
        if not crops:
            return [None] * len(batch)
        images = self.view.normalise(torch.stack(crops).to(where))
        answers = [self.kind.of(self.model.backbone, shown).float() for shown in self.view.shown(images)]
        features = torch.stack(answers).mean(dim=0).cpu() if len(answers) > 1 else answers[0].cpu()
        if not features.isfinite().all():
            raise ValueError(
                f"{self.model.name} gives NaN or infinity for one of the pictures {done + 1} to"
                f" {done + len(batch)}: the model is broken, or needs --precision fp32"
            )
        found = iter(features)
        return [None if crop is None else next(found) for crop in batch]


def _batches(crops: Iterator[Tensor | ValueError], size: int) -> Iterator[list[Tensor | None]]:
    """Up to `size` neighbours of one shape; None for what could not be read."""
    batch: list[Tensor | None] = []
    shape: torch.Size | None = None
    for crop in crops:
        item = crop if isinstance(crop, Tensor) else None
        if len(batch) == size or (item is not None and shape is not None and item.shape != shape):
            yield batch
            batch, shape = [], None
        batch.append(item)
        shape = shape if item is None else item.shape
    if batch:
        yield batch


def _stacked(images: Images, rows: Sequence[Tensor | None]) -> Tensor:
    """Rows of NaN in the place of those that are missing."""
    some = next((row for row in rows if row is not None), None)
    if some is None:
        raise ImageError(f"{len(rows):,} pictures in a row cannot be read, such as {images.names[0]}")
    return torch.stack([torch.full_like(some, torch.nan) if row is None else row for row in rows])


def _sound(images: Images, rows: Tensor) -> Extracted:
    """The rows of pictures that could be read; the others are opened again to tell what is wrong."""
    missing = rows.flatten(1)[:, 0].isnan()
    if not missing.any():
        return Extracted(images, rows, ())
    broken = []
    for index in missing.nonzero()[:, 0].tolist():
        try:
            images.read(index)
        except ImageError as error:
            broken.append(str(error))
        else:
            raise ValueError(
                f"the feature kept of {images.names[index]} is NaN, though the picture can be read:"
                " empty the folder of the cache"
            )
    if len(broken) == len(images):
        raise ImageError(f"none of the {len(images)} pictures can be read; the first: {broken[0]}")
    kept = (~missing).nonzero()[:, 0]
    return Extracted(images.subset(kept.tolist()), rows[kept], tuple(broken))


def patch_tokens(vit: VisionTransformer | Eva | Beit, images: Tensor) -> Tensor:
    """Patch tokens after the final norm, on their grid.

    Takes images [batch, 3, height, width], returns [batch, rows, columns, width].
    """
    tokens = forward_tokens(vit, images)[:, vit.num_prefix_tokens :]
    return tokens.unflatten(1, patch_grid(vit, *images.shape[-2:]))


def last_blocks(vit: VisionTransformer, images: Tensor, blocks: int) -> Tensor:
    """[CLS] of the last `blocks` blocks, each after the final norm, oldest first.

    Args:
        vit: with a [CLS] token.
        images: [batch, 3, height, width].
        blocks: how many; 4 is the paper's linear evaluation of ViT-S (appendix, "Evaluation").

    Returns:
        [batch, blocks * width].

    Raises:
        ValueError: more blocks than there are, or none.
    """
    return torch.cat([prefix[:, 0] for _, prefix in _layers(vit, images, blocks)], dim=-1)


def _layers(vit: VisionTransformer, images: Tensor, blocks: int) -> list[tuple[Tensor, Tensor]]:
    """Patch and prefix tokens of the last blocks after the final norm: [batch, tokens, width] each."""
    if not 1 <= blocks <= len(vit.blocks):
        raise ValueError(f"cannot take the last {blocks} blocks of a ViT with {len(vit.blocks)}")
    layers: list[tuple[Tensor, Tensor]] = vit.forward_intermediates(
        images, blocks, return_prefix_tokens=True, norm=True, output_fmt="NLC", intermediates_only=True
    )
    return layers


def gem(tokens: Tensor, power: float = 4.0, floor: float = 1e-6) -> Tensor:
    """Generalised mean over tokens, (mean x^power)^(1/power): [..., tokens, width] -> [..., width].

    What is below `floor` counts as `floor`. Power 4 is the official copy detection's.
    """
    return tokens.clamp(min=floor).pow(power).mean(dim=-2).pow(1 / power)
