"""A picture in, maps out: `AttentionPredictor` owns resizing, precision, device and caching."""

import copy
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from dino_model.attention import BiasedViT, readable
from dino_model.device import ComputePrecision, Precision, autocast, choose_device, choose_precision
from dino_model.resize import Resize, fed_size, sample
from dino_model.weights import LoadedModel, load_model

# What `describe` adds for models that have no [CLS] in their blocks.
_SUMMARIES: dict[str | None, str] = {
    "pooling": "; no [CLS]: a pooling query looks after the last block",
    "class-attention": "; its class token looks after the last block",
}


@dataclass(frozen=True)
class EncodedPicture:
    """What one pass of a picture through the model leaves: enough for every map of every block."""

    image_size: tuple[int, int]
    """Height and width of the picture handed in."""
    input_size: tuple[int, int]
    """Height and width of what the model was fed."""
    grid: tuple[int, int]
    """Rows and columns of patches."""
    inputs: list[Tensor]
    """Tokens that enter each block, [1, tokens, width]; those that leave the last follow when asked for."""


class AttentionPredictor:
    """Attention maps, queries, keys and features of one picture at a time, encoded once.

    `set_image` runs the model; everything asked afterwards comes from what it left. One thread at a time.

    Args:
        model: a name for `load_model`, or what it returned. Its backbone is moved to `device`.
        size: pixels the picture is resized to; `native` ignores it.
        resize: `short-side` brings the short side to `size` and rounds both sides to the nearest multiple of
            the patch; `squash` makes a square of `size`, rounded likewise; `native` rounds the picture's own
            sides; `davis` is the official video protocol: short side exactly `size`, long side cut to a
            multiple of 64, OpenCV's bilinear sampling without antialiasing, padded with the mean colour to
            whole patches. The others sample bilinearly with antialiasing.
        precision: `bf16` runs matrix products in bfloat16, `auto` does so where the hardware has it.
        device: `auto` takes the first of cuda, mps and cpu.
        mean, std: normalisation instead of the model's own, one figure per channel on a scale of 0 to 1.
        remember: how many pictures stay encoded; setting one of them again costs a hash of its pixels.
        max_patches: larger pictures are refused.

    Attributes:
        heads, blocks, patch_size, prefix_tokens: of the model; prefix tokens are [CLS] and registers.
        model, precision ("fp32" or "bf16"), device: what is used.
        image_size, input_size, grid: of the picture set last, see `EncodedPicture`.

    Raises:
        ValueError: a model without attention maps, such as ResNet-50, or a setting that cannot be.
    """

    def __init__(
        self,
        model: LoadedModel | str = "embedded",
        *,
        size: int = 480,
        resize: Resize = "short-side",
        precision: Precision = "auto",
        device: str = "auto",
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        remember: int = 1,
        max_patches: int = 16_384,
    ) -> None:
        if resize not in get_args(Resize):
            raise ValueError(f"unknown resize {resize!r}: choose one of {', '.join(get_args(Resize))}")
        for name, value in {"size": size, "remember": remember, "max_patches": max_patches}.items():
            if value < 1:
                raise ValueError(f"{name} is {value}, expected at least 1")
        self.device = choose_device(device)
        self.precision: ComputePrecision = choose_precision(precision, self.device)
        self.model = load_model(model) if isinstance(model, str) else model
        self._vit = readable(self.model.backbone)
        self._vit.vit.to(self.device)
        self.heads, self.blocks = self._vit.heads, self._vit.depth
        self.patch_size, patch_width = self._vit.patch_size
        if self.patch_size != patch_width:
            raise ValueError(
                f"{self.model.name} has patches of {self.patch_size} × {patch_width}, expected square ones"
            )
        self.prefix_tokens = self._vit.prefix_tokens
        self.size, self.resize, self.max_patches = size, resize, max_patches
        self._channels = self._vit.channels
        self._mean = self._per_channel("mean", self.model.mean if mean is None else mean)
        self._std = self._per_channel("std", self.model.std if std is None else std)
        self._remember = remember
        self._pictures: OrderedDict[bytes, EncodedPicture] = OrderedDict()  # the last one is the current one

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the picture handed in."""
        return self._picture.image_size

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width of what the model was fed."""
        return self._picture.input_size

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self._picture.grid

    @property
    def computed(self) -> str:
        """How figures come about, in words: what tells apart cached ones."""
        return f"{self.precision} on {self.device.type}"

    def at(self, size: int) -> "AttentionPredictor":
        """Another at another resolution, which has seen nothing yet: model and settings are shared.

        Raises:
            ValueError: no such size.
        """
        if size < 1:
            raise ValueError(f"size is {size}, expected at least 1")
        other = copy.copy(self)
        other.size, other._pictures = size, OrderedDict()
        return other

    def set_image(self, image: np.ndarray) -> None:
        """Encode a picture, uint8 [height, width, channels]; what is asked afterwards is about this one.

        Raises:
            ValueError: no such array, too many patches, or a model that answers with NaN.
        """
        self._check_picture(image)
        content = hashlib.blake2b(repr(image.shape).encode(), digest_size=16)
        content.update(np.ascontiguousarray(image).data)
        key = content.digest()
        if key not in self._pictures:
            self._pictures[key] = self._encode(image)
        self._pictures.move_to_end(key)
        while len(self._pictures) > self._remember:
            self._pictures.popitem(last=False)

    def describe(self) -> str:
        """One sentence on what happened to the picture set last and what looked at it."""
        (height, width), (rows, columns) = self.input_size, self.grid
        padding = (rows * self.patch_size - height, columns * self.patch_size - width)
        padded = f", padded by {padding[0]} × {padding[1]}" if any(padding) else ""
        return (
            f"{self.image_size[0]} × {self.image_size[1]} picture, resized ({self.resize}) "
            f"to {height} × {width}{padded} = {rows} × {columns} patches of {self.patch_size}; "
            f"{self.model.name}, {self.precision} on {self.device}"
            f"{_SUMMARIES.get(self._vit.summary, '')}"
        )

    def cls_attention(self, block: int = -1) -> np.ndarray:
        """Where [CLS] looks: float32 [heads, rows, columns].

        Softmax over all tokens, of which the patches are returned: each head sums to less than 1. A model
        that sums the picture up only after its last block, by a pooling query (SigLIP) or a class token
        (CaiT, XCiT), tells where that looks, as `describe` says; for it, `block` must be the last.

        Raises:
            ValueError: no picture set, no such block, or a model without anything of the kind.
        """
        if self._vit.summary == "cls":
            return self._attention_of(0, block)
        if self._vit.summary is None:
            raise ValueError(
                f"{self.model.name} has no [CLS] token: ask for the attention of a point instead"
            )
        if self._vit.block_index(block) != self.blocks - 1:
            raise ValueError(
                f"{self.model.name} has no [CLS] token in block {block}: it sums the picture up after the "
                "last, so ask for block -1, or for the attention of a point"
            )
        with torch.no_grad(), autocast(self.precision, self.device):
            rows = self._vit.summary_rows(self._tokens_before(self.blocks))
        return self._on_grid(rows[0])

    def point_attention(self, y: int, x: int, block: int = -1) -> np.ndarray:
        """Where the patch under a pixel of the picture handed in looks: float32 [heads, rows, columns].

        Raises:
            ValueError: no picture set, no such block, or a point outside of the picture.
        """
        row, column = self.patch_at(y, x)
        return self._attention_of(self.prefix_tokens + row * self.grid[1] + column, block)

    def patch_at(self, y: int, x: int) -> tuple[int, int]:
        """Row and column of the patch that a pixel of the picture handed in falls into.

        Raises:
            ValueError: no picture set, or a point outside of it.
        """
        height, width = self.image_size
        if not (isinstance(y, int | np.integer) and isinstance(x, int | np.integer)):
            raise ValueError(f"the point y={y!r}, x={x!r} is not a pixel: give whole numbers")
        if not (0 <= y < height and 0 <= x < width):
            raise ValueError(
                f"the point y={y}, x={x} is outside of the picture: y ends at {height - 1}, x at {width - 1}"
            )
        fed_height, fed_width = self.input_size
        # Centre of the pixel, in whole numbers: floor((y + 1/2) * fed / height / patch).
        row = (2 * int(y) + 1) * fed_height // (2 * height * self.patch_size)
        column = (2 * int(x) + 1) * fed_width // (2 * width * self.patch_size)
        return row, column

    def queries_keys(self, block: int = -1) -> tuple[np.ndarray, np.ndarray]:
        """Queries and keys of every token: two float16 arrays [heads, tokens, d].

        Attention of token i is softmax(q[i] · k / sqrt(d)) over all tokens, prefix tokens first.

        Raises:
            ValueError: no picture set, no such block, figures beyond float16, or a model to which that does
                not apply: a BEiT adds a bias, and a CaiT or XCiT has no such queries and keys.
        """
        if isinstance(self._vit, BiasedViT):
            raise ValueError(
                f"{self.model.name} adds a bias by relative position to q · k, so its queries and keys alone "
                "do not tell its attention: ask for cls_attention, point_attention or keys"
            )
        query, key = (part.half() for part in self._queries_keys(block))
        if not (query.isfinite().all() and key.isfinite().all()):
            raise ValueError(
                f"queries or keys of block {block} of {self.model.name} are too large for float16"
            )
        return query.cpu().numpy(), key.cpu().numpy()

    def keys(self, block: int = -1) -> np.ndarray:
        """Keys of every token, prefix tokens first: float32 [heads, tokens, d].

        Raises:
            ValueError: no picture set, no such block, or a CaiT or XCiT, which has none.
        """
        return self._finite(self._queries_keys(block)[1].float()).cpu().numpy()

    def tokens(self, block: int = -1) -> np.ndarray:
        """Every token after a block and the final norm, prefix tokens first: float32 [tokens, width].

        Raises:
            ValueError: no picture set, or no such block.
        """
        index = self._vit.block_index(block)
        with torch.no_grad():
            return self._finite(self._vit.norm(self._tokens_before(index + 1)))[0].float().cpu().numpy()

    def token_features(self, block: int = -1) -> np.ndarray:
        """`tokens` of the patches, where they lie: float32 [rows, columns, width].

        Raises:
            ValueError: as `tokens`.
        """
        return self.tokens(block)[self.prefix_tokens :].reshape(*self.grid, -1)

    def token_norms(self, block: int = -1) -> np.ndarray:
        """Compute the L2 norm of each patch token after a block, before the final norm.

        `quantities.outlier_patches` marks the tokens of unusually high norm.

        Returns:
            float32 [rows, columns].

        Raises:
            ValueError: No image set, or no such block.
        """
        index = self._vit.block_index(block)
        tokens = self._tokens_before(index + 1)[0, self.prefix_tokens :]
        return self._on_grid(tokens.float().norm(dim=-1))

    def features(self, images: Sequence[np.ndarray]) -> Tensor:
        """Patch tokens after the last block and the final norm, of several pictures in one batch.

        Nothing is kept, and the picture set before stays.

        Args:
            images: uint8 arrays [height, width, channels], all of one size.

        Returns:
            float32 [pictures, rows, columns, width], on the predictor's device.

        Raises:
            ValueError: no pictures, or pictures of several sizes or of the wrong kind.
        """
        for image in images:
            self._check_picture(image)
        sizes = {image.shape[:2] for image in images}
        if len(sizes) != 1:
            raise ValueError(f"expected pictures of one size, found {sorted(sizes) or 'none'}")
        batch = torch.cat([self._prepare(image) for image in images])
        grid = self._vit.grid(batch)
        with torch.no_grad():
            with autocast(self.precision, self.device):
                tokens = self._vit.run(self._vit.embed(batch), grid, 0, self.blocks)
            tokens = self._finite(self._vit.norm(tokens))
        return tokens[:, self.prefix_tokens :].float().unflatten(1, grid)

    @property
    def _picture(self) -> EncodedPicture:
        if not self._pictures:
            raise ValueError("no picture is set: call set_image first")
        return next(reversed(self._pictures.values()))

    @torch.no_grad()
    def _tokens_before(self, index: int) -> Tensor:
        """Tokens that enter block `index`; `self.blocks` stands for those that leave the last."""
        inputs = self._picture.inputs
        if index == len(inputs):
            with autocast(self.precision, self.device):
                inputs.append(self._vit.run(inputs[-1], self.grid, index - 1, index))
        return inputs[index]

    @torch.no_grad()
    def _encode(self, image: np.ndarray) -> EncodedPicture:
        pixels = self._prepare(image)
        grid = self._vit.grid(pixels)
        with autocast(self.precision, self.device):
            inputs = [self._vit.embed(pixels)]
            for block in range(self.blocks - 1):  # maps need no more
                inputs.append(self._vit.run(inputs[-1], grid, block, block + 1))
        self._finite(inputs[-1])
        height, width = pixels.shape[2:]
        size = (image.shape[0], image.shape[1])
        return EncodedPicture(size, (height, width), grid, inputs)

    @torch.no_grad()
    def _queries_keys(self, block: int) -> tuple[Tensor, Tensor]:
        """Two tensors [heads, tokens, d], in the precision of the computation."""
        index = self._vit.block_index(block)
        with autocast(self.precision, self.device):
            query, key = self._vit.queries_and_keys(index, self._tokens_before(index), self.grid)
        return query[0], key[0]

    @torch.no_grad()
    def _attention_of(self, token: int, block: int) -> np.ndarray:
        index = self._vit.block_index(block)
        with autocast(self.precision, self.device):
            rows = self._vit.rows(index, self._tokens_before(index), self.grid, [token])
        return self._on_grid(rows[0, :, 0, self.prefix_tokens :])

    def _on_grid(self, maps: Tensor) -> np.ndarray:
        """[heads, patches] -> float32 [heads, rows, columns]."""
        return self._finite(maps).unflatten(-1, self.grid).cpu().numpy()

    def _prepare(self, image: np.ndarray) -> Tensor:
        """Resized and normalised: uint8 [height, width, channels] -> float32 [1, channels, height, width]."""
        height, width = self._fed(image.shape[0], image.shape[1])
        rows, columns = -(-height // self.patch_size), -(-width // self.patch_size)
        if rows * columns > self.max_patches:
            raise ValueError(
                f"a picture of {image.shape[0]} × {image.shape[1]} makes {rows} × {columns} patches, "
                f"more than {self.max_patches:,}: choose a smaller size, resize='squash', or crop it"
            )
        pixels = torch.from_numpy(sample(image, height, width, self.resize)).to(self.device)
        normalised = (pixels.float() / 255 - self._mean) / self._std
        return normalised.permute(2, 0, 1).unsqueeze(0).contiguous()

    def _fed(self, height: int, width: int) -> tuple[int, int]:
        """Height and width at which a picture of this size is fed."""
        return fed_size(height, width, self.size, self.resize, self.patch_size)

    def _finite(self, figures: Tensor) -> Tensor:
        """`figures`, if they are."""
        if not figures.isfinite().all():
            raise ValueError(
                f"{self.model.name} answers with NaN or infinity in {self.precision}: its weights are broken"
            )
        return figures

    def _check_picture(self, image: np.ndarray) -> None:
        found = (
            f"{image.dtype} array of shape {image.shape}"
            if isinstance(image, np.ndarray)
            else type(image).__name__
        )
        shaped = isinstance(image, np.ndarray) and image.ndim == 3 and image.shape[2] == self._channels
        if not shaped or image.dtype != np.uint8 or image.size == 0:
            raise ValueError(
                f"a picture must be a uint8 array [height, width, {self._channels}], found {found}"
            )

    def _per_channel(self, name: str, values: Sequence[float]) -> Tensor:
        """[channels] on the device."""
        if len(values) != self._channels or (name == "std" and min(values) <= 0):
            raise ValueError(f"{name} is {tuple(values)}, expected {self._channels} figures, for std above 0")
        return torch.tensor(values, dtype=torch.float32, device=self.device)
