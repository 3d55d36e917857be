"""Compute the maps of an image: `AttentionPredictor` owns resizing, precision, device and caching."""

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch
from torch import Tensor, nn

from dino_model.inference.resize import fed_size, sample
from dino_model.models.attention import MAPS, BlockCall, FusedCall, attention_of, readable
from dino_model.models.configs import Resize
from dino_model.models.load import LoadedModel, load_model, wrap_module
from dino_model.runtime.device import autocast, choose_device, choose_precision
from dino_model.runtime.precision import ComputePrecision, Precision


@dataclass(frozen=True)
class EncodedImage:
    """Result of one pass of an image, or of the tiles of `TiledPredictor`, from which every map follows.

    `tokens` enter each block, [batch, tokens, width]; those that leave the last block are appended when
    needed.
    """

    image_size: tuple[int, int]
    input_size: tuple[int, int]
    grid: tuple[int, int]
    calls: list[BlockCall]
    tokens: list[Tensor]


class AttentionPredictor:
    """Attention maps, queries, keys and features of one image at a time, encoded once. Not thread-safe.

    Methods with a `block` count negative numbers from the last block. They raise ValueError without an image,
    for a block that does not exist, and for NaN or infinity.

    Args:
        model: A name for `load_model`, its result, a module of timm, or any module that fulfils
            `models.protocol.ViT`. It is moved to `device`.
        size: Pixels the image is resized to; `native` ignores it.
        resize: `short-side` resizes the short side to `size`, `squash` both sides, `native` none. All three
            round the sides to the nearest multiple of the patch and sample bilinearly with antialiasing.
            `davis` is the official video protocol: short side exactly `size`, long side rounded down to a
            multiple of 64. It uses OpenCV's bilinear sampling without antialiasing, and pads the image with
            the mean color to whole patches.
        precision: `bf16` runs matrix products in bfloat16, `auto` does so where the hardware has it.
        device: `auto` takes the first of cuda, mps and cpu.
        mean, std: Normalization instead of the model's own, one value per channel on a scale of 0 to 1. A
            module that is not of timm and has no attributes `mean` and `std` needs both.

    Attributes:
        heads, blocks, patch_size, prefix_tokens: Sizes of the model; prefix tokens are [CLS] and registers.
        model, precision, device: Values in use.
        max_patches: Larger images are refused.

    Raises:
        ValueError: A model without attention maps, such as ResNet-50, or an invalid setting.
    """

    max_patches = 16_384

    def __init__(
        self,
        model: LoadedModel | str | nn.Module = "embedded",
        *,
        size: int = 480,
        resize: Resize = "short-side",
        precision: Precision = "auto",
        device: str = "auto",
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        if resize not in get_args(Resize):
            raise ValueError(f"unknown resize {resize!r}: choose one of {', '.join(get_args(Resize))}")
        if size < 1:
            raise ValueError(f"size is {size}, expected at least 1")
        self.device = choose_device(device)
        self.precision: ComputePrecision = choose_precision(precision, self.device)
        if isinstance(model, nn.Module):
            model = wrap_module(model, mean, std)
        self.model = load_model(model) if isinstance(model, str) else model
        if not isinstance(self.model, LoadedModel):
            raise TypeError(
                f"model is {model!r}, expected the name of a model, a LoadedModel or a torch.nn.Module"
            )
        self._check_weights()
        self._vit = readable(self.model.backbone)
        self._vit.vit.to(self.device)
        self.heads, self.blocks = self._vit.heads, self._vit.depth
        self.patch_size, patch_width = self._vit.patch_size
        if self.patch_size != patch_width:
            raise ValueError(f"{self.model.name} has no square patches: {self.patch_size} × {patch_width}")
        self.prefix_tokens = self._vit.prefix_tokens
        self.size, self.resize = size, resize
        self._channels = self._vit.channels or len(self.model.mean)
        self._mean = self._per_channel("mean", self.model.mean if mean is None else mean)
        self._std = self._per_channel("std", self.model.std if std is None else std)
        self._key = b""
        self._encoded: EncodedImage | None = None

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the image."""
        return self._encoding.image_size

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width of the model's input."""
        return self._encoding.input_size

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self._encoding.grid

    def at(self, size: int) -> "AttentionPredictor":
        """Return a predictor at another resolution, without an image, that shares the model."""
        other = copy.copy(self)
        other.size, other._key, other._encoded = size, b"", None
        return other

    def check_patches(self, image: np.ndarray) -> np.ndarray:
        """Return the image; raise ValueError if it has more than `max_patches` patches."""
        self._fed_size(image)
        return image

    def set_image(self, image: np.ndarray) -> None:
        """Encode an image, uint8 [height, width, channels]. Setting the same image again costs a hash.

        Raises ValueError for another kind of array, too many patches, or a model that outputs NaN.
        """
        self._check_image(image)
        content = hashlib.blake2b(repr(image.shape).encode(), digest_size=16)
        content.update(np.ascontiguousarray(image).data)
        if content.digest() != self._key:
            self._encoded = self._encode(image)
            self._key = content.digest()

    def describe(self) -> str:
        """Describe the size and input of the image and the model in one sentence."""
        (height, width), (rows, columns) = self.input_size, self.grid
        padding = (rows * self.patch_size - height, columns * self.patch_size - width)
        padded = f", padded by {padding[0]} × {padding[1]}" if any(padding) else ""
        return (
            f"{self.image_size[0]} × {self.image_size[1]} image, resized ({self.resize}) "
            f"to {height} × {width}{padded} = {rows} × {columns} patches of {self.patch_size}; "
            f"{self.model.name}, {self.precision} on {self.device}"
            f"{'' if self._vit.summary == 'cls' else f'; {MAPS[self._vit.summary]}'}"
        )

    def cls_attention(self, block: int = -1) -> np.ndarray:
        """Compute the attention of [CLS]: float32 [heads, rows, columns].

        The softmax is over all tokens. Only the patches are returned, so each head sums to less than 1. Some
        models have a pooling query (SigLIP) or class token (CaiT, XCiT) after the last block. Their result is
        the attention of this query, and `block` must be the last. ValueError: a model without such a query.
        """
        return self._cls_attention(block)[0]

    def _cls_attention(self, block: int) -> np.ndarray:
        if self._vit.summary == "cls":
            return self._attention_of(0, block)
        if self._vit.summary is None:
            raise ValueError(f"{self.model.name} has no [CLS] token: compute the attention of a point")
        if self._vit.block_index(block) != self.blocks - 1:
            raise ValueError(
                f"{self.model.name} has no [CLS] token in block {block}, only a query after the last block: "
                "choose block -1, or the attention of a point"
            )
        tokens = self._tokens_after(block)
        with torch.no_grad(), autocast(self.precision, self.device):
            return self._on_grid(self._vit.summary_rows(tokens))

    def point_attention(self, y: int, x: int, block: int = -1) -> np.ndarray:
        """Compute the attention of the patch at a pixel, see `patch_at`: float32 [heads, rows, columns]."""
        row, column = self.patch_at(y, x)
        return self._attention_of(self.prefix_tokens + row * self.grid[1] + column, block)[0]

    def patch_at(self, y: int, x: int) -> tuple[int, int]:
        """Return row and column of the patch under a pixel; ValueError for a point outside of the image."""
        height, width = self.image_size
        if not (isinstance(y, int | np.integer) and isinstance(x, int | np.integer)):
            raise ValueError(f"the point y={y!r}, x={x!r} is not a pixel: expected whole numbers")
        if not (0 <= y < height and 0 <= x < width):
            raise ValueError(
                f"the point y={y}, x={x} is outside of the image: y ends at {height - 1}, x at {width - 1}"
            )
        fed_height, fed_width = self.input_size
        # Center of the pixel, in whole numbers: floor((y + 1/2) * fed / height / patch).
        row = (2 * int(y) + 1) * fed_height // (2 * height * self.patch_size)
        column = (2 * int(x) + 1) * fed_width // (2 * width * self.patch_size)
        return row, column

    def queries_keys(self, block: int = -1) -> tuple[np.ndarray, np.ndarray]:
        """Return queries and keys of every token: two float16 arrays [heads, tokens, d].

        Attention of token i is softmax(q[i] · k / sqrt(d)) over all tokens, prefix tokens first.

        Raises:
            ValueError: Values beyond float16, or a model with another attention: a BEiT adds a bias, and a
                CaiT or XCiT has no such queries and keys.
        """
        query, key, bias = self._queries_keys(block)
        if bias is not None:
            raise ValueError(
                f"{self.model.name} adds a bias by relative position to q · k, so its attention does not "
                "follow from queries and keys: use cls_attention, point_attention or keys"
            )
        query, key = query[0].half(), key[0].half()
        if not (query.isfinite().all() and key.isfinite().all()):
            raise ValueError(f"queries or keys of block {block} of {self.model.name} exceed float16")
        return query.cpu().numpy(), key.cpu().numpy()

    def keys(self, block: int = -1) -> np.ndarray:
        """Return keys of every token, prefix tokens first: float32 [heads, tokens, d]; none of CaiT, XCiT."""
        return self._keys(block)[0]

    def _keys(self, block: int) -> np.ndarray:
        return self._finite(self._queries_keys(block)[1].float()).cpu().numpy()

    def tokens(self, block: int = -1) -> np.ndarray:
        """Return every token after a block and the final norm: float32 [tokens, width]."""
        return self._tokens(block)[0]

    def _tokens(self, block: int) -> np.ndarray:
        with torch.no_grad():
            return self._finite(self._vit.norm(self._tokens_after(block))).float().cpu().numpy()

    def token_features(self, block: int = -1) -> np.ndarray:
        """Return `tokens` of the patches: float32 [rows, columns, width]."""
        return self.tokens(block)[self.prefix_tokens :].reshape(*self.grid, -1)

    def token_norms(self, block: int = -1) -> np.ndarray:
        """Compute the L2 norm of each patch token after a block, not normalized: float32 [rows, columns]."""
        return self._token_norms(block)[0]

    def _token_norms(self, block: int) -> np.ndarray:
        tokens = self._tokens_after(block)[:, self.prefix_tokens :]
        return self._on_grid(tokens.float().norm(dim=-1))

    def features(self, images: Sequence[np.ndarray]) -> Tensor:
        """Compute `token_features` of several images in one batch, without caching.

        Args:
            images: uint8 arrays [height, width, channels] of one size.

        Returns:
            float32 [images, rows, columns, width], on the predictor's device.
        """
        for image in images:
            self._check_image(image)
        sizes = {image.shape[:2] for image in images}
        if len(sizes) != 1:
            raise ValueError(f"expected images of one size, found {sorted(sizes) or 'none'}")
        batch = torch.cat([self.input_tensor(image) for image in images])
        with torch.no_grad():
            with autocast(self.precision, self.device):
                tokens = self._vit.calls(batch, keep=1)[0]()
            tokens = self._finite(self._vit.norm(tokens))
        return tokens[:, self.prefix_tokens :].float().unflatten(1, self._vit.grid(*batch.shape[2:]))

    def input_tensor(self, image: np.ndarray) -> Tensor:
        """Resize and normalize an image [height, width, channels]: float32 [1, channels, height, width]."""
        height, width = self._fed_size(image)
        pixels = torch.from_numpy(sample(image, height, width, self.resize)).to(self.device)
        normalized = (pixels.float() / 255 - self._mean) / self._std
        return normalized.permute(2, 0, 1).unsqueeze(0).contiguous()

    @property
    def _encoding(self) -> EncodedImage:
        if self._encoded is None:
            raise ValueError("no image is set: call set_image first")
        return self._encoded

    @torch.no_grad()
    def _tokens_after(self, block: int) -> Tensor:
        """Tokens that leave a block: [batch, tokens, width]."""
        encoding, index = self._encoding, self._vit.block_index(block)
        if index + 1 == len(encoding.tokens):
            with autocast(self.precision, self.device):
                encoding.tokens.append(encoding.calls[-1]())
        return encoding.tokens[index + 1]

    def _encode(self, image: np.ndarray) -> EncodedImage:
        return self._encode_batch([image])

    @torch.no_grad()
    def _encode_batch(self, images: Sequence[np.ndarray]) -> EncodedImage:
        """Encode images of one size together."""
        image, pixels = images[0], torch.cat([self.input_tensor(each) for each in images])
        with autocast(self.precision, self.device):
            calls = self._vit.calls(pixels)
        tokens = [call.args[0] for call in calls]
        self._finite(tokens[-1])
        sizes = (image.shape[0], image.shape[1]), (pixels.shape[2], pixels.shape[3])
        return EncodedImage(*sizes, self._vit.grid(*sizes[1]), calls, tokens)

    @torch.no_grad()
    def _queries_keys(self, block: int) -> FusedCall:
        """Return queries and keys of one block, in the precision of the computation."""
        with autocast(self.precision, self.device):
            return self._vit.queries_and_keys(self._encoding.calls[self._vit.block_index(block)])

    def _attention_of(self, token: int, block: int) -> np.ndarray:
        rows = attention_of(*self._queries_keys(block), [token])
        return self._on_grid(rows[:, :, 0, self.prefix_tokens :])

    def _on_grid(self, maps: Tensor) -> np.ndarray:
        """[..., patches] -> float32 [..., rows, columns]."""
        return self._finite(maps).unflatten(-1, self.grid).cpu().numpy()

    def _fed_size(self, image: np.ndarray) -> tuple[int, int]:
        """Return height and width of the model's input; raise ValueError for too many patches."""
        fed = fed_size(image.shape[0], image.shape[1], self.size, self.resize, self.patch_size)
        rows, columns = (-(-side // self.patch_size) for side in fed)
        if rows * columns > self.max_patches:
            raise ValueError(
                f"an image of {image.shape[0]} × {image.shape[1]} has {rows} × {columns} patches, more than "
                f"{self.max_patches:,}: choose a smaller size, the resize 'squash', tiles, or crop it"
            )
        return fed

    def _finite(self, values: Tensor) -> Tensor:
        if not values.isfinite().all():
            raise ValueError(
                f"{self.model.name} outputs NaN or infinity in {self.precision}: its weights are broken"
            )
        return values

    def _check_image(self, image: np.ndarray) -> None:
        is_array = isinstance(image, np.ndarray)
        has_shape = is_array and image.ndim == 3 and image.shape[2] == self._channels
        if not has_shape or image.dtype != np.uint8 or image.size == 0:
            description = f"{image.dtype} array of shape {image.shape}" if is_array else type(image).__name__
            raise ValueError(f"expected a uint8 array [height, width, {self._channels}], found {description}")

    def _check_weights(self) -> None:
        """Raise ValueError for weights that are absent, or that would decide the precision."""
        weights = list(self.model.backbone.parameters())
        if any(weight.is_meta for weight in weights):
            raise ValueError(f"the weights of {self.model.name} are on the meta device: load them first")
        kinds = {str(weight.dtype).removeprefix("torch.") for weight in weights if weight.is_floating_point()}
        if kinds - {"float32"}:
            raise ValueError(
                f"the weights of {self.model.name} are {' and '.join(sorted(kinds))}, expected float32: pass "
                "module.float(), and choose the precision of the computation by `precision`"
            )

    def _per_channel(self, name: str, values: Sequence[float]) -> Tensor:
        """[channels] on the device."""
        if (
            len(values) != self._channels
            or not 0 <= min(values) <= max(values) <= 1
            or not (name == "mean" or all(values))
        ):
            raise ValueError(
                f"{name} is {tuple(values)}, expected {self._channels} values from 0 to 1, for std above 0"
            )
        return torch.tensor(values, dtype=torch.float32, device=self.device)
