"""A view as a few lines of Python that compute the same through the library."""

from app.engine import Encoding
from app.photos import stem
from app.view import PCA, SHARES, View, contour_width, mask_color

IMPORTS = {
    "Path(": "from pathlib import Path\n",
    "np.": "import numpy as np",
    "photographs.": "from dino_model import photographs",
    "images.": "from dino_model import images",
    "quantities.": "from dino_model import quantities",
    "AttentionPredictor(": "from dino_model.predictor import AttentionPredictor",
    "masks.": "from segmentation import masks",
    "drawing.": "from segmentation import drawing",
}
"""What a script begins with that uses the first."""


def snippet(encoding: Encoding, view: View, name: str) -> str:
    """A script: computes `maps`, `shown` and `mask`, or the `colors` of a PCA, and writes the overlay."""
    numbers = _colors(view) if view.quantity in PCA else [*_maps(encoding, view), "", *_shown(view)]
    predictor = encoding.predictor
    run = f"size={encoding.key.size}, precision={predictor.precision!r}, device={str(predictor.device)!r}"
    body = [
        f"picture = {_picture(encoding, name)}  # uint8 [height, width, 3]",
        f"predictor = AttentionPredictor({encoding.key.model!r}, {run})",
        "predictor.set_image(picture)",
        "",
        *numbers,
        "",
        *_overlay(encoding, view),
        f'drawing.save_png(Path("{stem(name)}-overlay.png"), overlay)',
    ]
    script = "\n".join(body)
    return "\n".join([line for word, line in IMPORTS.items() if word in script]) + f"\n\n{script}\n"


def _picture(encoding: Encoding, name: str) -> str:
    return f"photographs.picture({encoding.key.photo!r})" if encoding.example else f"images.read({name!r})"


def _maps(encoding: Encoding, view: View) -> list[str]:
    token = "0  # [CLS]"
    if view.patch is not None:
        row, column = view.patch
        token = f"predictor.prefix_tokens + {row} * predictor.grid[1] + {column}  # row, column"
    values = {
        "likeness": f"likeness(predictor.queries_keys({view.block})[1], predictor.prefix_tokens, token)",
        "attention": f"attention(*predictor.queries_keys({view.block}), token)",
        "rollout": f"rollout([predictor.queries_keys(n) for n in range({view.block + 1})])[token, None]",
        "logits": f"logits(*predictor.queries_keys({view.block}), token)",
        "key-cosine": f"cosines(predictor.queries_keys({view.block})[1], token)",
        "token-cosine": f"cosines(predictor.tokens({view.block})[None], token)",
    }[view.quantity]
    return [
        f"token = {token}",
        "# of [CLS], registers and patches; blocks are counted from 0: [..., tokens]",
        f"values = quantities.{values}",
        "patches = values[..., predictor.prefix_tokens :]",
        "maps = patches.reshape(-1, *predictor.grid)  # [heads, rows, columns]",
    ]


def _shown(view: View) -> list[str]:
    """What is on the stage, and its mask, on the grid of patches."""
    shown = {"heads": "maps", "mean": "maps.mean(axis=0)", "max": "maps.max(axis=0)"}
    weights = "shown" if view.quantity in SHARES else "quantities.above_least(shown)"
    union = ".any(axis=0)" if view.show == "heads" else ""
    return [
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
    """The overlay at the picture's own size."""
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
        return _masked(
            "picture", encoding, view, mask_color(view.show, encoding.predictor.heads), view.opacity
        )
    spread = "maps" if view.shared else "shown"
    diverging = ", diverging=True" if view.diverging else ""
    colors = f", colormap={view.colormap!r}{diverging}" if view.layer == "heat" else ""
    draw, table = ("glow", view.colormap) if view.layer == "heat" else ("light", "gray")
    words = ", capped=False" * (view.scale == "full") + ", percent=True" * (view.quantity in SHARES)
    return [
        f"value_range = drawing.display_range({spread}, {view.scale!r}{diverging})",
        f"shares = drawing.levels(shown, picture.shape[:2], value_range, {view.interpolation!r})",
        f"overlay = drawing.overlay_{draw}(picture, shares, opacity={view.opacity}{colors})",
        *(_masked("overlay", encoding, view, (255, 255, 255), 0) if view.outline else []),
        f"bar = drawing.color_bar({table!r}, value_range, overlay.shape[1]{words})",
        "overlay = drawing.stack([overlay, bar])",
    ]


def _masked(
    ground: str, encoding: Encoding, view: View, color: tuple[int, int, int], opacity: float
) -> list[str]:
    """The mask's tint and outline over a picture."""
    contour = contour_width(encoding.picture_size) if view.outline else 0
    return [
        "pixels = masks.enlarge(mask, picture.shape[:2])",
        f"color = np.array([{list(color)}], np.uint8)",
        f"overlay = drawing.overlay_masks("
        f"{ground}, pixels, colors=color, opacity={opacity}, contour={contour})",
    ]
