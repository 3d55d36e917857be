"""The state of an attention view, with the maps, masks, images and files that follow from it.

The browser computes the same from the same queries, keys and features, so that downloads equal the screen.
"""

import io
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.limits.errors import ClientValue, LabError
from app.store.engine import Encoding
from app.store.images import png
from dino_model.inference import quantities
from segmentation import figures
from segmentation.discovery import key_features
from segmentation.masks import ImageArray, Mask, enlarge, keep_mass_of_maps

Maps = NDArray[np.float32]
Quantity = Literal[
    "key-similarity",
    "attention",
    "rollout",
    "logits",
    "key-cosine",
    "token-cosine",
    "token-norm",
    "key-pca",
    "token-pca",
]
SHARES: tuple[Quantity, ...] = ("attention", "rollout")
"""Quantities whose values are shares of one."""
MAX_ROLLOUT_TOKENS = 3000  # 18 MB for the browser
PCA: tuple[Quantity, ...] = ("key-pca", "token-pca")
"""Quantities that are colors of all patches: they have no query, heads or masks."""


MASS = "a share of the attention from 0.01 to 1"


class MapSettings(ClientValue):
    """The settings of an attention view.

    Attributes:
        block: Counted from 0.
        query: "cls", or row and column of a patch as "12,20".
        show: "heads": all in their colors; "mean", "max", or the number of a head, counted from 0.
    """

    block: int
    query: str = Field(
        default="cls",
        pattern="^(cls|[0-9]{1,5},[0-9]{1,5})$",
        description='"cls", or row and column of a patch from 0, such as "12,20"',
    )
    quantity: Quantity = "attention"
    show: str = Field(
        default="heads",
        pattern="^(heads|mean|max|[0-9]{1,3})$",
        description='"heads", "mean", "max", or the number of a head from 0',
    )
    mass: float = Field(default=0.6, ge=0.01, le=1, description=MASS)

    @property
    def patch(self) -> tuple[int, int] | None:
        """Row and column of the query; None for [CLS]."""
        if self.query == "cls":
            return None
        row, column = self.query.split(",")
        return int(row), int(column)


def maps_of(encoding: Encoding, settings: MapSettings) -> Maps:
    """Compute the quantity of a view for every head: float32 [heads, rows, columns].

    Quantities of whole tokens have one map; a PCA has red, green and blue.
    """
    block, has_query = settings.block, settings.quantity not in (*PCA, "token-norm")
    token = token_of(encoding, settings.patch if has_query else None)
    match settings.quantity:
        case "key-pca" | "token-pca":
            colors = quantities.principal_colors(_features_of_pca(encoding, block, settings.quantity))
            return np.moveaxis(colors, -1, 0)
        case "token-norm":
            return encoding.norms(block)[None]
        case "token-cosine":
            rows = quantities.cosines(encoding.features(block)[None], token)
        case "key-similarity":
            _, keys = encoding.queries_keys(block)
            rows = quantities.key_similarity(keys, encoding.predictor.prefix_tokens, token)[None]
        case "key-cosine":
            rows = quantities.cosines(encoding.queries_keys(block)[1], token)
        case "logits":
            rows = quantities.logits(*encoding.queries_keys(block), token)
        case "rollout":
            rows = rollout(encoding, block)[token][None]
        case "attention":
            return attention(encoding, block, settings.patch)
    return _on_grid(encoding, rows)


def attention(encoding: Encoding, block: int = -1, patch: tuple[int, int] | None = None) -> Maps:
    """Compute the attention of a patch, or of [CLS] for None: float32 [heads, rows, columns].

    The block is counted from 0, or from the end if it is negative.
    """
    number = block + encoding.predictor.blocks if block < 0 else block
    token = token_of(encoding, patch)
    return _on_grid(encoding, quantities.attention(*encoding.queries_keys(number), token))


def rollout(encoding: Encoding, block: int) -> NDArray[np.float32]:
    """Compute the attention rollout from the first block to this one: [tokens, tokens]."""
    encoding.queries_keys(block)  # checks the number
    rows, columns = encoding.predictor.grid
    if rows * columns > MAX_ROLLOUT_TOKENS:
        raise LabError(
            f"Rollout compares all pairs of patches, of which there are {rows * columns:,}, more than "
            f"{MAX_ROLLOUT_TOKENS:,}: choose a lower resolution."
        )
    return quantities.attention_rollout(encoding.queries_keys(number) for number in range(block + 1))


def colors_and_variance(encoding: Encoding, block: int, quantity: Quantity) -> NDArray[np.float32]:
    """Compute principal components as colors in [0, 1], flat, and after them the three shares of variance."""
    features = _features_of_pca(encoding, block, quantity)
    return np.append(quantities.principal_colors(features), quantities.explained_variance(features))


def _features_of_pca(encoding: Encoding, block: int, quantity: Quantity) -> NDArray[np.floating[Any]]:
    grid, prefix = encoding.predictor.grid, encoding.predictor.prefix_tokens
    if quantity == "token-pca":
        return encoding.features(block)[prefix:].reshape(*grid, -1)
    return key_features(encoding.queries_keys(block)[1], prefix, grid)


def norms_and_outliers(encoding: Encoding, block: int) -> NDArray[np.float32]:
    """Compute the norms of the patch tokens, and 1 for outliers: [2, rows, columns]."""
    norms = encoding.norms(block)
    return np.stack([norms, quantities.outlier_patches(norms)]).astype(np.float32)


def token_of(encoding: Encoding, patch: tuple[int, int] | None) -> int:
    """Return the index of a patch's token; of [CLS] for None."""
    if patch is None:
        return 0
    rows, columns = encoding.predictor.grid
    if not (patch[0] < rows and patch[1] < columns):
        raise LabError(
            f"There is no patch {patch[0]},{patch[1]}: the grid has {rows} rows and {columns} columns."
        )
    return encoding.predictor.prefix_tokens + patch[0] * columns + patch[1]


def weights(maps: Maps, settings: MapSettings) -> Maps:
    """Return the non-negative values of which masks keep a share."""
    return maps if settings.quantity in SHARES else quantities.above_least(maps)


def map_of_head(maps: Maps, head: str) -> Maps:
    """Return the map of a head, or "mean" or "max" of all: [rows, columns]."""
    if head in ("mean", "max"):
        return maps.mean(axis=0) if head == "mean" else maps.max(axis=0)
    if int(head) >= len(maps):
        raise LabError(f"There is no head {head}: this model has heads 0 to {len(maps) - 1}.")
    return maps[int(head)]


def shown_mask(maps: Maps, settings: MapSettings) -> Mask:
    """Return the kept patches: [rows, columns]; for "heads" all that any head keeps."""
    if settings.quantity in PCA:
        raise LabError("A PCA has no mask: choose another quantity.")
    shown = maps if settings.show == "heads" else map_of_head(maps, settings.show)[None]
    return np.asarray(keep_mass_of_maps(weights(shown, settings), settings.mass).any(axis=0))


def _on_grid(encoding: Encoding, rows: NDArray[np.float32]) -> Maps:
    return rows[:, encoding.predictor.prefix_tokens :].reshape(-1, *encoding.predictor.grid)


def maps_npz(encoding: Encoding, settings: MapSettings) -> bytes:
    """Write maps and, except for a PCA, masks as a NumPy archive: [heads, rows, columns]; outliers of norms.

    Settings: quantity, query ("cls", or row and column), block (from 0), model, grid and mass.
    """
    maps = maps_of(encoding, settings)
    fields = {name: getattr(settings, name) for name in ("quantity", "query", "block", "mass")}
    arrays = fields | {"maps": maps, "model": encoding.key.model, "grid": encoding.predictor.grid}
    if settings.quantity not in PCA:
        arrays["mask"] = keep_mass_of_maps(weights(maps, settings), settings.mass)
    if settings.quantity == "token-norm":
        arrays["outliers"] = quantities.outlier_patches(maps[0])
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def figure_file(
    encoding: Encoding, settings: MapSettings, image: ImageArray, kind: figures.FigureKind, common: bool
) -> bytes:
    """Draw the image, the map of every head and their mean for print, with one scale or each with its own."""
    if settings.quantity in PCA:
        raise LabError("A PCA has no map of a head: choose another quantity.")
    maps, point, query = maps_of(encoding, settings), None, "[CLS]"
    if settings.patch and settings.quantity != "token-norm":
        (row, column), (rows, columns) = settings.patch, encoding.predictor.grid
        point = (row + 0.5) / rows * image.shape[0], (column + 0.5) / columns * image.shape[1]
        query = f"the marked patch (row {row}, column {column})"
    percent = settings.quantity == "attention"
    quantity = settings.quantity.replace("-", " ")
    of = "all patches" if settings.quantity == "token-norm" else query
    caption = (
        f"{quantity.capitalize()} of {of} in block {settings.block + 1} of {encoding.key.model}, "
        f"short side {encoding.key.size} pixels. "
        f"{'All maps have the same scale.' if common else 'Each map is scaled to its own maximum.'}"
    )
    label = f"{quantity} (%)" if percent else quantity
    drawn = figures.map_figure(
        image, 100 * maps if percent else maps, label=label, caption=caption, point=point, common=common
    )
    return figures.figure_bytes(drawn, kind)


def file_of(
    name: str, encoding: Encoding, settings: MapSettings, image: ImageArray, common: bool = True
) -> bytes:
    """Write a file of a view: mask.png in black and white at the size of the image, maps.npz, or figure.KIND.

    `common` says whether all maps of a figure have one scale.
    """
    match name.split("."):
        case ["mask", "png"]:
            mask = enlarge(shown_mask(maps_of(encoding, settings), settings), encoding.predictor.image_size)
            return png(255 * mask.astype(np.uint8))
        case ["maps", "npz"]:
            return maps_npz(encoding, settings)
        case ["figure", ("png" | "pdf" | "svg") as kind]:
            return figure_file(encoding, settings, image, kind, common)
        case _:
            raise ValueError(f"{name} is no file of a view")
