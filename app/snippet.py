"""A view as a few lines of Python that compute the same through the library."""

from app.engine import Encoding
from app.photos import stem
from app.view import PCA, SHARES, View, contour_width, mask_color

IMPORTS = """from pathlib import Path

import numpy as np

from dino_model import images, photographs, quantities
from dino_model.predictor import AttentionPredictor
from segmentation import drawing, masks
"""


def snippet(encoding: Encoding, view: View, name: str) -> str:
    """Return a script that computes `maps`, `shown` and `mask`, or the `colors` of a PCA, and the overlay.

    Args:
        encoding: The image; an example is read from the package, another one from the file `name`.
        view: The settings.
        name: The user's name of the image.
    """
    predictor = encoding.predictor
    run = f"size={encoding.key.size}, precision={predictor.precision!r}, device={str(predictor.device)!r}"
    source = f"photographs.picture({encoding.key.photo!r})" if encoding.example else f"images.read({name!r})"
    lines = [
        f"picture = {source}  # uint8 [height, width, 3]",
        f"predictor = AttentionPredictor({encoding.key.model!r}, {run})",
        "predictor.set_image(picture)",
        "",
        *(_colors(view) if view.quantity in PCA else _maps_and_mask(view)),
        "",
        *_overlay(encoding, view),
        f'drawing.save_image(Path("{stem(name)}-overlay.png"), overlay)',
    ]
    return "\n".join([IMPORTS, *lines]) + "\n"


def _maps_and_mask(view: View) -> list[str]:
    """Return lines that compute the maps, what is shown of them and its mask, on the grid of patches."""
    token = "0  # [CLS]"
    if view.patch is not None:
        row, column = view.patch
        token = f"predictor.prefix_tokens + {row} * predictor.grid[1] + {column}  # row, column"
    queries_keys = f"predictor.queries_keys({view.block})"
    values = {
        "likeness": f"likeness({queries_keys}[1], predictor.prefix_tokens, token)",
        "attention": f"attention(*{queries_keys}, token)",
        "rollout": f"rollout([predictor.queries_keys(n) for n in range({view.block + 1})])[token, None]",
        "logits": f"logits(*{queries_keys}, token)",
        "key-cosine": f"cosines({queries_keys}[1], token)",
        "token-cosine": f"cosines(predictor.tokens({view.block})[None], token)",
    }[view.quantity]
    shown = {"heads": "maps", "mean": "maps.mean(axis=0)", "max": "maps.max(axis=0)"}
    weights = "shown" if view.quantity in SHARES else "quantities.above_least(shown)"
    union = ".any(axis=0)" if view.show == "heads" else ""
    return [
        f"token = {token}",
        "# of [CLS], registers and patches; blocks are counted from 0: [..., tokens]",
        f"values = quantities.{values}",
        "patches = values[..., predictor.prefix_tokens :]",
        "maps = patches.reshape(-1, *predictor.grid)  # [heads, rows, columns]",
        "",
        f"shown = {shown.get(view.show, f'maps[{view.show}]')}",
        f"weights = {weights}",
        f"mask = masks.keep_mass_of_maps(weights, mass={view.mass}){union}  # bool [rows, columns]",
    ]


def _colors(view: View) -> list[str]:
    features = [f"features = predictor.token_features({view.block})"]
    if view.quantity == "key-pca":
        features = [
            f"keys = predictor.queries_keys({view.block})[1][:, predictor.prefix_tokens :]",
            "features = np.concatenate(keys, axis=-1).reshape(*predictor.grid, -1)  # heads side by side",
        ]
    return [*features, "colors = quantities.principal_colors(features)  # [rows, columns, 3]"]


def _overlay(encoding: Encoding, view: View) -> list[str]:
    """Return lines that draw the overlay at the size of the image."""
    blend = f"opacity={view.opacity}, interpolation={view.interpolation!r}"
    if view.quantity in PCA:
        return [
            f"layer = masks.enlarge(colors.transpose(2, 0, 1), picture.shape[:2], {view.interpolation!r})",
            "layer = np.rint(255 * layer.transpose(1, 2, 0)).astype(np.uint8)",
            f"overlay = drawing.blend(picture, layer, {view.opacity})",
        ]
    if view.show == "heads":
        return [f"overlay = drawing.overlay_heads(picture, weights, mass={view.mass}, {blend})"]
    if view.layer == "mask":
        color = mask_color(view.show, encoding.predictor.heads)
        return _masked("picture", encoding, view, color, view.opacity)
    spread = "maps" if view.shared else "shown"
    diverging = ", diverging=True" if view.diverging else ""
    colors = f", colormap={view.colormap!r}{diverging}" if view.layer == "heat" else ""
    draw, table = ("glow", view.colormap) if view.layer == "heat" else ("light", "gray")
    options = ", capped=False" * (view.scale == "full") + ", percent=True" * (view.quantity in SHARES)
    return [
        f"value_range = drawing.display_range({spread}, {view.scale!r}{diverging})",
        f"shares = drawing.levels(shown, picture.shape[:2], value_range, {view.interpolation!r})",
        f"overlay = drawing.overlay_{draw}(picture, shares, opacity={view.opacity}{colors})",
        *(_masked("overlay", encoding, view, (255, 255, 255), 0) if view.outline else []),
        f"bar = drawing.color_bar({table!r}, value_range, overlay.shape[1]{options})",
        "overlay = drawing.stack([overlay, bar])",
    ]


def _masked(
    background: str, encoding: Encoding, view: View, color: tuple[int, int, int], opacity: float
) -> list[str]:
    """Return lines that draw the mask's tint and outline over an image."""
    contour = contour_width(encoding.picture_size) if view.outline else 0
    return [
        "pixels = masks.enlarge(mask, picture.shape[:2])",
        f"color = np.array([{list(color)}], np.uint8)",
        f"overlay = drawing.overlay_masks("
        f"{background}, pixels, colors=color, opacity={opacity}, contour={contour})",
    ]
