"""Encode large images in overlapping tiles; join features, keys and attention on the grid of patches."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dino_model.inference.predictor import AttentionPredictor, EncodedImage
from dino_model.inference.resize import resample_nearest, sample
from dino_model.models.load import LoadedModel

Maps = NDArray[np.float32]
Compute = Callable[[AttentionPredictor], Maps]

TOKENS_AT_ONCE = 4096
"""Patches of the tiles that are encoded together; a tile may have more."""
KEPT_BYTES = 2_000_000_000
"""Memory for the encoded tiles of an image; tiles beyond it are encoded again for every map."""


def tile_starts(count: int, side: int, overlap: float) -> list[int]:
    """Return the first patches of tiles of `side` patches along an axis of `count`, spread evenly."""
    rest = count - side
    if rest <= 0:
        return [0]
    steps = -(-rest // max(1, side - round(overlap * side)))
    return [round(step * rest / steps) for step in range(steps + 1)]


def tile_weights(count: int, side: int, overlap: float) -> NDArray[np.float64]:
    """Return the weight of each tile at each patch of an axis: [tiles, count], which sum to 1 at a patch.

    The weights of a tile fall over the overlap to its two ends.
    """
    starts, length = tile_starts(count, side, overlap), min(count, side)
    ends = np.minimum(np.arange(length), np.arange(length)[::-1]) + 1
    weights = np.zeros((len(starts), count))
    for row, start in zip(weights, starts, strict=True):
        row[start : start + length] = np.minimum(ends, round(overlap * side) + 1)
    return weights / weights.sum(axis=0)


def regrid(overview: Maps, grid: tuple[int, int]) -> NDArray[np.float64]:
    """Bring maps [heads, r, c] to another grid [heads, rows, columns]; the sum of each head stays."""
    coarse = resample_nearest(overview, grid).astype(np.float64)
    sums = coarse.sum(axis=(1, 2), keepdims=True)
    share = overview.sum(axis=(1, 2), keepdims=True, dtype=np.float64)
    return np.divide(coarse * share, sums, out=np.zeros_like(coarse), where=sums > 0)


def tile_share(coarse: NDArray[np.float64], own: Maps, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a tile's part of the attention of an image: its own map with the mass that the image gives it.

    Args:
        coarse: Attention of the whole image at the place of the tile, [heads, h, w].
        own: Attention within the tile, [heads, h, w].
        weights: Weights of the tile, [h, w].

    Returns:
        [heads, h, w]; each head sums to the weighted sum of `coarse`.
    """
    mass = (weights * coarse).sum(axis=(1, 2), keepdims=True)
    inside = weights * own.astype(np.float64)
    sums = inside.sum(axis=(1, 2), keepdims=True)
    even = np.broadcast_to(weights / weights.sum(), inside.shape).copy()  # no attention to any patch
    return mass * np.divide(inside, sums, out=even, where=sums > 0)


class TiledPredictor(AttentionPredictor):
    """A predictor whose model sees one tile of the input at a time, so that its memory is bounded.

    Tokens attend within their tile only. Tiles are encoded once, in batches, and kept for further blocks,
    heads and points (`KEPT_BYTES`). Features of overlapping tiles are averaged with weights that fall to the
    borders of a tile.

    The attention within a tile does not compare tiles. The image is therefore also encoded once as a whole,
    reduced to as many patches as a tile has. This overview gives the mass of each tile; the tile's own map
    distributes it. A map sums to what the overview gives to all patches.

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
        tile: int,
        overlap: float,
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
        self._overview: EncodedImage | None = None
        self._kept: list[EncodedImage] = []

    def describe(self) -> str:
        """Describe the input and the model as `AttentionPredictor.describe`, the tiles and the overview."""
        rows, columns = (len(self._starts(count)) for count in self.grid)
        overlap = f"overlap {self.overlap:.0%}"
        tiles = f"{rows} × {columns} tiles of {self.tile}, {overlap}"
        height, width = (count * self.patch_size for count in self._small_grid)
        return f"{super().describe()}; {tiles}, their mass from the whole image at {height} × {width}"

    def cls_attention(self, block: int = -1) -> np.ndarray:
        """Compute the attention of [CLS]: float32 [heads, rows, columns].

        Each tile has the map of its own [CLS], and the mass that the [CLS] of the overview gives it. Each
        head sums to what the overview gives to all patches, which is less than 1.
        """
        total = np.zeros((self.heads, *self.grid))
        coarse = regrid(self._whole().cls_attention(block), self.grid)
        for rows, columns, weights, own in self._tiles(lambda part: part._cls_attention(block)):
            total[:, rows, columns] += tile_share(coarse[:, rows, columns], own, weights)
        return total.astype(np.float32)

    def point_attention(self, y: int, x: int, block: int = -1) -> np.ndarray:
        """Compute the attention of a patch: float32 [heads, rows, columns].

        Only the tile that the patch is most central in has it as a query. The map of this tile has the mass
        that the overview gives the tile; all other patches have the attention of the overview.
        """
        patch, whole = self.patch_at(y, x), self._whole()
        row, column = (  # of the patch in the overview
            (2 * place + 1) * extent // (2 * count)
            for place, count, extent in zip(patch, self.grid, whole.grid, strict=True)
        )
        token = self.prefix_tokens + row * whole.grid[1] + column
        total = regrid(whole._attention_of(token, block)[0], self.grid)
        tile = [self._nearest(place, count) for place, count in zip(patch, self.grid, strict=True)]
        number = tile[0] * len(self._starts(self.grid[1])) + tile[1]
        part, (rows, columns) = self._part_at(number), self._slices(*tile)
        token = self.prefix_tokens + (patch[0] - rows.start) * part.grid[1] + patch[1] - columns.start
        own = part._attention_of(token, block)[number % self._batch]
        total[:, rows, columns] = tile_share(total[:, rows, columns], own, np.ones(part.grid))
        return total.astype(np.float32)

    def queries_keys(self, block: int = -1) -> tuple[np.ndarray, np.ndarray]:
        """Raise ValueError: the attention of tiles does not follow from blended queries and keys."""
        raise ValueError("tiles have no common queries and keys: use cls_attention, point_attention or keys")

    def keys(self, block: int = -1) -> np.ndarray:
        """Return blended keys of the patches after the mean of the tiles' prefix tokens."""
        blended = self._blend_tokens(lambda part: part._keys(block).swapaxes(1, 2))
        return np.moveaxis(blended, 1, 0)

    def tokens(self, block: int = -1) -> np.ndarray:
        """Return blended tokens of the patches after the mean of the tiles' prefix tokens."""
        return self._blend_tokens(lambda part: part._tokens(block))

    def token_norms(self, block: int = -1) -> np.ndarray:
        """Return blended norms of `AttentionPredictor.token_norms`."""
        return self._blend(self._tiles(lambda part: part._token_norms(block)))

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

    @property
    def _batch(self) -> int:
        """Number of tiles that are encoded together."""
        return max(1, TOKENS_AT_ONCE // int(np.prod(self._tile_grid)))

    @property
    def _tile_grid(self) -> tuple[int, int]:
        """Rows and columns of patches of a tile."""
        return min(self._side, self.grid[0]), min(self._side, self.grid[1])

    @property
    def _small_grid(self) -> tuple[int, int]:
        """Rows and columns of patches of the overview."""
        scale = float(np.sqrt(np.prod(self._tile_grid) / np.prod(self.grid)))
        return max(1, round(self.grid[0] * scale)), max(1, round(self.grid[1] * scale))

    def _encode(self, image: np.ndarray) -> EncodedImage:
        height, width = self._fed_size(image)
        grid = height // self.patch_size, width // self.patch_size
        self._pixels, self._overview, self._kept = sample(image, height, width, self.resize), None, []
        return EncodedImage((image.shape[0], image.shape[1]), (height, width), grid, [], [])

    def _whole(self) -> AttentionPredictor:
        """Return the predictor that holds the overview."""
        if self._overview is None:
            rows, columns = self._small_grid
            small = sample(self._pixels, rows * self.patch_size, columns * self.patch_size, self.resize)
            self._overview = self._part._encode_batch([small])
        self._part._encoded = self._overview
        return self._part

    def _starts(self, count: int) -> list[int]:
        return tile_starts(count, self._side, self.overlap)

    def _nearest(self, patch: int, count: int) -> int:
        """Number of the tile along an axis that has a patch nearest to its center."""
        distances = [abs(2 * (patch - start) + 1 - self._side) for start in self._starts(count)]
        return int(np.argmin(distances))

    def _slices(self, row: int, column: int) -> tuple[slice, slice]:
        """Return the patches of the tile in a row and column of tiles."""
        top, left = self._starts(self.grid[0])[row], self._starts(self.grid[1])[column]
        return slice(top, top + self._tile_grid[0]), slice(left, left + self._tile_grid[1])

    def _places(self) -> list[tuple[int, int]]:
        """Return row and column of each tile."""
        rows, columns = (range(len(self._starts(count))) for count in self.grid)
        return list(product(rows, columns))

    def _part_at(self, tile: int) -> AttentionPredictor:
        """Return the predictor that holds the batch of a tile."""
        number, size = tile // self._batch, self._batch
        if number < len(self._kept):
            self._part._encoded = self._kept[number]
            return self._part
        patch, pixels = self.patch_size, []
        for place in self._places()[number * size : (number + 1) * size]:
            rows, columns = self._slices(*place)
            strip = self._pixels[rows.start * patch : rows.stop * patch]
            pixels.append(np.ascontiguousarray(strip[:, columns.start * patch : columns.stop * patch]))
        encoded = self._part._encode_batch(pixels)
        one = sum(tokens.nbytes for tokens in encoded.tokens)
        if number == len(self._kept) and (number + 1) * one <= KEPT_BYTES:
            self._kept.append(encoded)
        self._part._encoded = encoded
        return self._part

    def _tiles(self, compute: Compute) -> Iterator[tuple[slice, slice, NDArray[np.float64], Any]]:
        """Yield place, weights [h, w] and values of each tile; `compute` returns those of a batch."""
        down, across = (tile_weights(count, self._side, self.overlap) for count in self.grid)
        values: Any = None
        for number, (row, column) in enumerate(self._places()):
            if (place := number % self._batch) == 0:
                values = compute(self._part_at(number))
            rows, columns = self._slices(row, column)
            yield rows, columns, np.outer(down[row, rows], across[column, columns]), values[place]

    def _blend(self, tiles: Iterator[tuple[slice, slice, NDArray[np.float64], Any]]) -> Maps:
        """Average values [h, w, ...] of all tiles."""
        total: Any = None
        for rows, columns, weights, values in tiles:
            if total is None:
                total = np.zeros((*self.grid, *values.shape[2:]), np.float32)
            total[rows, columns] += weights.reshape(*weights.shape, *[1] * (values.ndim - 2)) * values
        blended: Maps = total
        return blended

    def _blend_tokens(self, compute: Compute) -> Maps:
        """Average tokens [tokens, ...]: the patches by weights, the prefix tokens equally."""
        prefixes = []

        def patches() -> Iterator[tuple[slice, slice, NDArray[np.float64], Any]]:
            for rows, columns, weights, tokens in self._tiles(compute):
                prefix, rest = np.split(tokens, [self.prefix_tokens])
                prefixes.append(prefix)
                yield rows, columns, weights, rest.reshape(*weights.shape, *rest.shape[1:])

        blended = self._blend(patches())
        flat = blended.reshape(-1, *blended.shape[2:])
        return np.concatenate([np.mean(prefixes, axis=0), flat]).astype(np.float32)
