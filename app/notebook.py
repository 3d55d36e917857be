"""Show the views of the page inside a notebook, without Gradio and offline.

from app.notebook import show
show(image, "embedded")
"""

import base64
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import nn

from app import STATIC
from app.values import attention_value, class_map_value, data_address, encode_image, jpeg
from dino_model.inference.class_map import files
from dino_model.inference.predictor import AttentionPredictor
from dino_model.inference.quantities import unit_vectors
from dino_model.models.load import LoadedModel
from segmentation import drawing, matching
from segmentation.masks import ImageArray

Model = LoadedModel | str | nn.Module | AttentionPredictor
MAX_BYTES = {"last": 1_500_000, "all": 8_000_000}
"""Largest output for each image, by `blocks`."""
STILL_WIDTH = 720
"""Largest width of the PNG, and longer side of the image under the maps, in pixels."""
JPEG_QUALITY = 80
"""Quality of the image in `show`: notebooks hold many."""
MATCH_DIRECTIONS = 128
"""Principal directions of the features of two images whose cosines are shown."""
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><style>%(style)s
:root { color-scheme: light } :root.dark { color-scheme: dark }
body { margin: 0; font: 1rem/1.5 system-ui, sans-serif }
main { display: grid; gap: 14px; grid-template-columns: repeat(%(columns)d, minmax(0, 800px)) }</style>
<script type="importmap">%(imports)s</script><main></main><script type="module">
import { %(constructor)s } from "%(module)s";
const dress = () => {
  const ink = frameElement && getComputedStyle(frameElement.parentElement).color.match(/[\\d.]+/g);
  const isDark = ink ? ink.slice(0, 3).reduce((sum, value) => sum + Number(value), 0) > 384
    : matchMedia("(prefers-color-scheme: dark)").matches;  // light text: a dark notebook
  document.documentElement.classList.toggle("dark", isDark);
};
dress();
addEventListener("pointerover", dress);
const views = %(props)s;
for (const props of views) {
  props.value.image ??= views[0].value.image;  // models side by side share one
  const element = document.createElement("div");
  element.className = "lab-view";
  document.querySelector("main").append(element);
  element.view = new %(constructor)s({ element, props, watch: () => {}, emit: () => {} });
}
const fit = ([{ target }]) => frameElement && (frameElement.style.height = `${target.scrollHeight + 4}px`);
new ResizeObserver(fit).observe(document.querySelector("main"));
</script></html>"""


class NotebookView:
    """A view of the page as HTML, with a PNG for places that run no script.

    Args:
        name: Of app/static/views/NAME_view.js.
        props: Arguments of each view; several are side by side.
        still: uint8 RGB [height, width, 3], the PNG.
    """

    def __init__(self, name: str, props: Sequence[dict[str, Any]], still: ImageArray | None) -> None:
        self.name, self.props, self.still = name, props, still

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        bundle = {"text/html": self._repr_html_()}
        if self.still is not None:
            scale = min(1, STILL_WIDTH / self.still.shape[1])
            png = encode_image(Image.fromarray(drawing.rescale(self.still, scale)), "PNG")
            bundle["image/png"] = base64.b64encode(png).decode()
        return bundle

    def _repr_html_(self) -> str:
        page = html.escape(page_of(self.name, self.props), quote=True)
        return (
            f'<iframe title="{self.name} view that follows the pointer" srcdoc="{page}" '
            'style="width:100%;height:480px;border:0"></iframe>'
        )


def show(
    image: ImageArray,
    model: Model | Sequence[Model] = "embedded",
    *,
    blocks: str = "last",
    size: int = 224,
    **settings: Any,
) -> NotebookView:
    """Show an image with the attention of the patch under the pointer.

    Args:
        image: uint8 RGB [height, width, 3].
        model: Name of a model, a model, or a predictor; a list shows them side by side with one pointer.
        blocks: "last", or "all" for every block.
        size: Short side of the image in pixels, except for predictors.
        settings: Of `app.views.attention_view`, such as `quantity="key-cosine"` or `layer="mask", mass=60`.

    Raises:
        ValueError: `blocks` has another value, or the output is larger than `MAX_BYTES`.
    """
    if blocks not in MAX_BYTES:
        raise ValueError(f"Found blocks={blocks!r}, expected 'last' or 'all'.")
    models = [model] if isinstance(model, Model) else model
    small = drawing.rescale(image, min(1, STILL_WIDTH / max(image.shape[:2])))
    props: list[dict[str, Any]] = []
    stills = []
    for one in models:
        predictor = predictor_of(one, size)
        numbers = range(predictor.blocks) if blocks == "all" else (-1,)
        name = predictor.model.name
        value = attention_value(predictor, image, size=None, blocks=numbers)
        value |= {"model": name, "random": name.startswith("random:")}
        value["image"] = None if props else data_address("image/jpeg", jpeg(small, quality=JPEG_QUALITY))
        props.append({"value": value, "group": "notebook", "title": True, **settings})
        stills.append(drawing.overlay_heat(image, predictor.cls_attention().mean(axis=0)))
    view = NotebookView("attention", props, drawing.side_by_side(*stills))
    largest, length = MAX_BYTES[blocks] * len(models), len(view._repr_html_())
    if length > largest:
        raise ValueError(f"The view has {length:,} bytes, expected at most {largest:,}: pass a smaller size.")
    return view


def show_mask(image: ImageArray, model: Model = "embedded", *, size: int = 224) -> NotebookView:
    """Show an image whose object is selected by a click or a brush; arguments as `show`."""
    return NotebookView(
        "mask", [{"value": attention_value(predictor_of(model, size), image, size=None)}], image
    )


def show_match(
    image: ImageArray,
    other: ImageArray,
    model: Model = "embedded",
    *,
    size: int = 224,
    ratio: float = 1.0,
) -> NotebookView:
    """Show corresponding patches of two images, and what is similar to the patch under the pointer.

    Args:
        image, other: uint8 RGB [height, width, 3].
        model: As `show`.
        size: Short side of the first image in pixels. Of the second, `matching.SCALES` are tried.
        ratio: Largest distance of a match, relative to the distance of the next best; less keeps fewer.
    """
    predictor = predictor_of(model, size)
    first = attention_value(predictor, image, size=None, blocks=(), name="first image")
    features = matching.match_features(predictor, image)
    others, values = {}, {}
    for scale in matching.SCALES:
        scaled = predictor_of(predictor.model, round(scale * size))
        values[scale] = attention_value(scaled, other, size=None, blocks=(), name="second image")
        others[scale] = matching.match_features(scaled, other)
    scale, matches = matching.best_scale(features, others, ratio)
    grids = predictor.grid, others[scale].features.shape[:2]
    sizes = image.shape[:2], other.shape[:2]
    compared = matching.prepare_pair(features.features, others[scale].features)
    vectors = np.concatenate([unit_vectors(half).reshape(-1, half.shape[-1]) for half in compared])
    axes = np.linalg.svd(vectors, full_matrices=False)[2][:MATCH_DIRECTIONS]
    matched = {
        "a": first["token"],
        "b": values[scale],
        "ratio": ratio,
        "scale": scale,
        "scales": list(matching.SCALES),
        "matches": matching.matches_as_json(matches, grids, sizes),
        "directions": data_address("application/octet-stream", (vectors @ axes.T).astype("<f2").tobytes()),
    }
    still = drawing.match_lines(image, other, *matching.in_pixels(matches, grids, sizes))
    return NotebookView("pair", [{"value": first, "matched": matched}], still)


def show_classes(folder: Path) -> NotebookView:
    """Show a class map that `python -m dino_model class-map` or the package wrote to a folder."""
    pictures = folder / files.THUMBNAILS
    address = data_address("image/jpeg", pictures.read_bytes()) if pictures.is_file() else None
    data = class_map_value(files.read(folder), address)
    props = {"map": folder.name, "data": data, "value": {}}
    figure = folder / files.FIGURE
    still = np.asarray(Image.open(figure).convert("RGB")) if figure.is_file() else None
    return NotebookView("class_map", [props], still)


def predictor_of(model: Model, size: int) -> AttentionPredictor:
    """Return a predictor as it is, and a model's at a size in pixels."""
    return model if isinstance(model, AttentionPredictor) else AttentionPredictor(model, size=size)


def page_of(name: str, props: Sequence[dict[str, Any]]) -> str:
    """Return a page that holds the scripts and the style of a view, and its arguments."""
    imports: dict[str, str] = {}
    module = f"views/{name}_view.js"
    waiting = [module]
    while waiting:
        script = waiting.pop()
        if script in imports:
            continue
        code = (STATIC / script).read_text(encoding="utf-8").replace("import.meta.url", '"bundle:/"')
        code = re.sub(r"^\s*(//.*|/\*((?!\*/)[\s\S])*\*/)\n", "", code, flags=re.MULTILINE)  # comments
        code = re.sub(r'(from |import\()"\./', rf'\1"{script.split("/")[0]}/', code)
        code = re.sub(r'(from |import\()"\.\./', r'\1"', code)
        waiting += re.findall(r'(?:from |import\()"([^"]+)"', code)
        imports[script] = data_address("text/javascript;charset=utf-8", code.encode())
    return PAGE % {
        "style": (STATIC / "views" / "views.css").read_text(encoding="utf-8"),
        "imports": json.dumps({"imports": imports}),
        "module": module,
        "constructor": name.title().replace("_", "") + "View",
        "props": json.dumps(props).replace("</", "<\\/"),
        "columns": len(props),
    }
