"""Encode large images in overlapping tiles; blend features, keys and attention on the grid of patches."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dino_model.inference.predictor import AttentionPredictor, EncodedImage
from dino_model.inference.resize import sample
from dino_model.models.weights import LoadedModel

Compute = Callable[[AttentionPredictor], NDArray[np.float32]]


class TiledPredictor(AttentionPredictor):
    """A predictor whose model sees one tile of the input at a time, so that memory is bounded by a tile.

    Every map runs all tiles again. Where tiles overlap, values are averaged with weights that fall to the
    borders of a tile. Tokens attend within their tile only.

    Args:
        model, options: As `AttentionPredictor`; `resize="davis"` is refused.
        tile: Side of a tile in pixels, rounded down to whole patches.
        overlap: Share of a tile that overlaps the next one at least, 0 to 0.5.
    """

    max_patches = 1_000_000  # 1.5 GB of features of width 384

    def __init__(
        self,
        model: LoadedModel | str | nn.Module = "embedded",
        *,
        tile: int = 518,
        overlap: float = 0.25,
        **options: Any,
    ) -> None:
        super().__init__(model, **options)
        if self.resize == "davis":
            raise ValueError("resize='davis' pads the input, which tiles do not: choose another resize")
        if not 0 <= overlap <= 0.5:
            raise ValueError(f"overlap is {overlap}, expected 0 to 0.5 of a tile")
        if tile < self.patch_size:
            raise ValueError(f"tile is {tile} pixels, expected at least one patch of {self.patch_size}")
        self.tile, self.overlap = tile, overlap
        self._part = AttentionPredictor(self.model, **{**options, "resize": "native"})
        self._pixels: NDArray[np.uint8] = np.empty((0, 0, 0), np.uint8)

    def describe(self) -> str:
        """Describe the input and the model as `AttentionPredictor.describe`, and the tiles."""
        rows, columns = (len(self._starts(count)) for count in self.grid)
        return f"{super().describe()}; {rows} × {columns} tiles of {self.tile}, overlap {self.overlap:.0%}"

    def cls_attention(self, block: int = -1) -> np.ndarray:
        """Compute the attention of each tile's [CLS]: float32 [heads, rows, columns].

        Each tile's attention is scaled by its share of all patches, so that a head sums to less than 1.
        """

        def compute(part: AttentionPredictor) -> NDArray[np.float32]:
            share = np.prod(part.grid) / np.prod(self.grid)
            return np.moveaxis(part.cls_attention(block) * np.float32(share), 0, -1)

        return np.moveaxis(self._blend(compute), -1, 0)

    def point_attention(self, y: int, x: int, block: int = -1) -> np.ndarray:
        """Compute the attention of a patch within the tile that it is most central in; 0 in other tiles."""
        row, column = self.patch_at(y, x)
        top, left = self._central_start(row, self.grid[0]), self._central_start(column, self.grid[1])
        part = self._encode_part(top, left)
        rows, columns = part.grid
        token = part.prefix_tokens + (row - top) * columns + column - left
        maps = np.zeros((self.heads, *self.grid), np.float32)
        maps[:, top : top + rows, left : left + columns] = part._attention_of(token, block)
        return maps

    def queries_keys(self, block: int = -1) -> tuple[np.ndarray, np.ndarray]:
        """Raise ValueError: the attention of tiles does not follow from blended queries and keys."""
        raise ValueError("tiles have no common queries and keys: use cls_attention, point_attention or keys")

    def keys(self, block: int = -1) -> np.ndarray:
        """Return blended keys of the patches after the mean of the tiles' prefix tokens."""
        return np.moveaxis(self._blend_tokens(lambda part: np.moveaxis(part.keys(block), 0, 1)), 1, 0)

    def tokens(self, block: int = -1) -> np.ndarray:
        """Return blended tokens of the patches after the mean of the tiles' prefix tokens."""
        return self._blend_tokens(lambda part: part.tokens(block))

    def token_norms(self, block: int = -1) -> np.ndarray:
        """Return blended norms of `AttentionPredictor.token_norms`."""
        return self._blend(lambda part: part.token_norms(block))

    def features(self, images: Sequence[np.ndarray]) -> Tensor:
        """Compute `token_features` of images of one size, one after the other."""
        rows = []
        for image in images:
            self.set_image(image)
            rows.append(torch.from_numpy(self.token_features()))
        return torch.stack(rows).to(self.device)

    @property
    def _side(self) -> int:
        return self.tile // self.patch_size

    def _encode(self, image: np.ndarray) -> EncodedImage:
        height, width = self._fed_size(image)
        grid = height // self.patch_size, width // self.patch_size
        self._pixels = sample(image, height, width, self.resize)
        return EncodedImage((image.shape[0], image.shape[1]), (height, width), grid, [], [])

    def _starts(self, count: int) -> list[int]:
        """First patches of the tiles along an axis of `count` patches, spread evenly."""
        rest = count - self._side
        if rest <= 0:
            return [0]
        steps = -(-rest // max(1, self._side - round(self.overlap * self._side)))
        return [round(step * rest / steps) for step in range(steps + 1)]

    def _central_start(self, patch: int, count: int) -> int:
        """First patch of the tile along an axis that has a patch nearest to its center."""
        return min(self._starts(count), key=lambda start: abs(2 * (patch - start) + 1 - self._side))

    def _encode_part(self, top: int, left: int) -> AttentionPredictor:
        patch, side = self.patch_size, self._side * self.patch_size
        pixels = self._pixels[top * patch :, left * patch :][:side, :side]
        self._part.set_image(np.ascontiguousarray(pixels))
        return self._part

    def _parts(self) -> Iterator[tuple[slice, slice, AttentionPredictor]]:
        rows, columns = self.grid
        for top in self._starts(rows):
            for left in self._starts(columns):
                places = slice(top, min(top + self._side, rows)), slice(left, min(left + self._side, columns))
                yield *places, self._encode_part(top, left)

    def _blend(self, compute: Compute) -> NDArray[np.float32]:
        """Average maps [rows, columns, ...] of all tiles."""
        total: Any = None
        weights = np.zeros(self.grid, np.float32)
        for rows, columns, part in self._parts():
            values = compute(part)
            if total is None:
                total = np.zeros((*self.grid, *values.shape[2:]), np.float32)
            weight = np.outer(*(self._ramp(count) for count in part.grid))
            total[rows, columns] += weight.reshape(*weight.shape, *[1] * (values.ndim - 2)) * values
            weights[rows, columns] += weight
        blended: NDArray[np.float32] = total / weights.reshape(*self.grid, *[1] * (total.ndim - 2))
        return blended

    def _blend_tokens(self, compute: Compute) -> NDArray[np.float32]:
        """Average tokens [tokens, ...]: the patches by weights, the prefix tokens equally."""
        prefixes = []

        def patches(part: AttentionPredictor) -> NDArray[np.float32]:
            prefix, rest = np.split(compute(part), [self.prefix_tokens])
            prefixes.append(prefix)
            return rest.reshape(*part.grid, *rest.shape[1:])

        blended = self._blend(patches)
        flat = blended.reshape(-1, *blended.shape[2:])
        return np.concatenate([np.mean(prefixes, axis=0), flat]).astype(np.float32)

    def _ramp(self, count: int) -> NDArray[np.float32]:
        """Weights along an axis of a tile: 1 inside, falling over the overlap to its two ends."""
        ends = np.minimum(np.arange(count), np.arange(count)[::-1]) + 1
        return (np.minimum(ends, round(self.overlap * self._side) + 1)).astype(np.float32)
