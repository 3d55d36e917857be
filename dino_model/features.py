"""Features of whole collections of pictures: [CLS], patch grids, last blocks, GeM, and a cache on disk.

`features` takes pictures through any function of a batch; `cls_features` is that for a backbone's own
answer; `patch_tokens` and `last_blocks` are other functions to hand it, `gem` pools what they return.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from dino_model import files
from dino_model.ahead import load_ahead
from dino_model.backbones import forward_tokens, patch_grid
from dino_model.device import Precision, autocast, choose_device, choose_precision
from dino_model.images import Images


@dataclass(frozen=True)
class View:
    """How an evaluation shows a picture to a network: short side resized, centre cropped, normalised.

    Resized by Pillow's bicubic (antialiased), as torchvision does with Pillow pictures and so the
    official evaluation code.
    """

    size: int
    """Side of the square crop, in pixels."""
    mean: tuple[float, ...]
    """Of red, green and blue, on a scale of 0 to 1."""
    std: tuple[float, ...]
    """Likewise."""
    resize_to: int | None = None
    """Short side before the crop; None: `size`, so that only the long side is cropped."""

    def __post_init__(self) -> None:
        if len(self.mean) != 3 or len(self.std) != 3:
            raise ValueError(f"the model takes {len(self.mean)} channels, pictures have 3")
        if not 0 < self.size <= self.short_side:
            raise ValueError(f"cannot crop {self.size} pixels from a short side of {self.short_side}")

    @property
    def short_side(self) -> int:
        """Short side before the crop, in pixels."""
        return self.size if self.resize_to is None else self.resize_to

    def crop(self, picture: np.ndarray) -> Tensor:
        """uint8 [height, width, 3] -> uint8 [3, size, size]."""
        height, width = picture.shape[:2]
        short = min(height, width)
        image = Image.fromarray(picture)
        if short != self.short_side:
            width, height = (self.short_side * side // short for side in (width, height))
            image = image.resize((width, height), Image.Resampling.BICUBIC)
        left, top = round((width - self.size) / 2), round((height - self.size) / 2)
        image = image.crop((left, top, left + self.size, top + self.size))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)

    def normalise(self, crops: Tensor) -> Tensor:
        """uint8 [batch, 3, size, size] -> float32, zero mean and unit deviation on average."""
        mean, std = (
            torch.tensor(three, device=crops.device)[:, None, None] for three in (self.mean, self.std)
        )
        return (crops / 255 - mean) / std


def features(
    extract: Callable[[Tensor], Tensor],
    images: Images,
    view: View,
    *,
    batch_size: int = 64,
    precision: Precision = "auto",
    device: str | torch.device = "auto",
) -> Tensor:
    """What `extract` says of every picture, in their order: float32 [pictures, ...], on the CPU.

    Args:
        extract: normalised images [batch, 3, size, size] on `device` -> [batch, ...], run without gradient.
        images: the pictures; while one batch is computed, threads read the next.
        view: how they are resized, cropped and normalised.
        batch_size: pictures at once.
        precision: bf16 runs matrix products in bfloat16; auto does so where the hardware has it.
        device: auto takes the first of cuda, mps and cpu.

    Raises:
        ImageError: a picture that cannot be read, by name. None is skipped: figures would be of other data.
        ValueError: no pictures, or a device or precision that cannot be.
    """
    if not len(images):
        raise ValueError("no pictures to compute features of")
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, expected at least 1")
    where = choose_device(str(device))
    rows = []
    with torch.no_grad(), autocast(choose_precision(precision, where), where):
        for crops in _batches(lambda index: view.crop(images.read(index)), len(images), batch_size):
            rows.append(extract(view.normalise(crops.to(where))).float().cpu())
    return torch.cat(rows)


def _batches(load: Callable[[int], Tensor], count: int, size: int) -> Iterator[Tensor]:
    """`load(0)`, `load(1)`, ... stacked by `size`; threads load one batch ahead of the one in use."""
    loaded = load_ahead(load, range(count), depth=size)
    while batch := list(islice(loaded, size)):
        yield torch.stack(batch)


def cls_features(
    backbone: nn.Module,
    images: Images,
    *,
    size: int,
    mean: Sequence[float],
    std: Sequence[float],
    resize_to: int | None = None,
    batch_size: int = 64,
    precision: Precision = "auto",
    device: str | torch.device = "auto",
    cache: "FeatureCache | None" = None,
) -> Tensor:
    """The backbone's feature of every picture ([CLS] after the final norm; pooled for a ResNet).

    Args:
        backbone: normalised images [batch, 3, size, size] -> [batch, width]. Moved to `device`; runs in
            evaluation mode and is put back into the mode it was in.
        images: the pictures.
        size, mean, std, resize_to: see `View`.
        batch_size, precision, device: see `features`.
        cache: where features are kept and looked up.

    Returns:
        float32 [pictures, width], in the order of `images`, not normalised, on the CPU.

    Raises:
        ImageError, ValueError: as `features`.
    """
    view = View(size, tuple(mean), tuple(std), resize_to)
    where = choose_device(str(device))
    how = choose_precision(precision, where)

    def compute() -> Tensor:
        was_training = backbone.training
        backbone.to(where).eval()
        try:
            return features(backbone, images, view, batch_size=batch_size, precision=how, device=where)
        finally:
            backbone.train(was_training)

    if cache is None:
        return compute()
    key = {
        "feature": "cls",
        "model": model_fingerprint(backbone),
        "pictures": images.fingerprint(),
        "view": json.dumps(asdict(view)),
        "computed": f"{how} on {where.type}",
    }
    return cache.get(key, compute)


def patch_tokens(vit: VisionTransformer, images: Tensor) -> Tensor:
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
    if not 1 <= blocks <= len(vit.blocks):
        raise ValueError(f"cannot take the last {blocks} blocks of a ViT with {len(vit.blocks)}")
    layers = vit.forward_intermediates(
        images, blocks, return_prefix_tokens=True, norm=True, intermediates_only=True
    )
    return torch.cat([prefix[:, 0] for _, prefix in layers], dim=-1)


def gem(tokens: Tensor, power: float = 4.0, floor: float = 1e-6) -> Tensor:
    """Generalised mean over tokens, (mean x^power)^(1/power): [..., tokens, width] -> [..., width].

    What is below `floor` counts as `floor`. Power 4 is the official copy detection's.
    """
    return tokens.clamp(min=floor).pow(power).mean(dim=-2).pow(1 / power)


def picture_key(what: str, picture: np.ndarray, *, weights: str, view: str, computed: str) -> dict[str, str]:
    """A key for `FeatureCache` of what a model says of one picture.

    Args:
        what: which feature.
        picture: uint8 [height, width, channels].
        weights: `model_fingerprint` of the model.
        view: how the picture was brought to it.
        computed: in which precision and where.
    """
    content = hashlib.blake2b(np.ascontiguousarray(picture).data, digest_size=16).hexdigest()
    return {
        "feature": what,
        "model": weights,
        "picture": f"{picture.shape} {content}",
        "view": view,
        "computed": computed,
    }


class FeatureCache:
    """Tensors on disk by what they were made from, shared by all evaluations.

    One safetensors file for each; the key stands readable in its metadata. Files appear complete or not
    at all; any of them may be deleted at any time.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def get(self, key: Mapping[str, str], compute: Callable[[], Tensor]) -> Tensor:
        """The tensor kept under `key`; computed and kept when there is none.

        Raises:
            ValueError: the file of this key is damaged.
        """
        path = self.folder / f"{_digest(key)}.safetensors"
        if path.exists():
            try:
                return load_file(path)["features"]
            except (SafetensorError, KeyError) as error:
                raise ValueError(f"{path} is no feature file of this program: delete it") from error
        tensor = compute()
        with files.replacing(path) as beside:
            save_file({"features": tensor.contiguous()}, beside, metadata=dict(key))
        return tensor


def model_fingerprint(model: nn.Module) -> str:
    """A hash of every weight, and of the numbers and words that modules keep beside their weights.

    The latter tell apart models of equal weights that compute otherwise: heads, epsilon, position mode.
    """
    parts = hashlib.sha256()
    for name, module in model.named_modules():
        plain = {k: v for k, v in vars(module).items() if isinstance(v, str | int | float | tuple)}
        plain.pop("training", None)  # features are taken in evaluation mode
        parts.update(f"{name} {type(module).__name__} {sorted(plain.items())}".encode())
    for name, tensor in model.state_dict().items():
        parts.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        parts.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return parts.hexdigest()[:32]


def _digest(key: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(key), sort_keys=True).encode()).hexdigest()[:32]
