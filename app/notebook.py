"""Show the attention view of the page inside a notebook, without Gradio and offline.

from app.notebook import show
show(image, "embedded")
"""

import base64
import html
import io
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from app import STATIC
from app.values import attention_value
from dino_model.inference.predictor import AttentionPredictor
from segmentation.masks import ImageArray

MAX_BYTES = {False: 1_500_000, True: 8_000_000}
"""Largest output for the last block, and for all blocks."""
HEIGHT = 640
"""Height of the view in pixels."""
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><style>%(style)s
body { margin: 0; font: 1rem/1.5 system-ui, sans-serif; color-scheme: light dark }
main { display: grid; gap: 14px; grid-template-columns: repeat(%(columns)d, minmax(0, 1fr)) }</style>
<script type="importmap">%(imports)s</script><main></main><script type="module">
import { AttentionView } from "views/attention_view.js";
for (const value of %(values)s) {
  const element = document.createElement("div");
  element.className = "lab-view";
  document.querySelector("main").append(element);
  const props = { value, group: "notebook", title: true };
  element.view = new AttentionView({ element, props, watch: () => {}, emit: () => {} });
}
</script></html>"""


class NotebookView:
    """Attention of one image by one or more models, as HTML with a PNG for places that run no script."""

    def __init__(self, image: ImageArray, values: Sequence[dict[str, Any]], still: ImageArray) -> None:
        self.image, self.values, self.still = image, values, still

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {"text/html": self._repr_html_(), "image/png": base64.b64encode(self._repr_png_()).decode()}

    def _repr_html_(self) -> str:
        page = html.escape(page_of(self.values), quote=True)
        return (
            f'<iframe title="Attention of the patch under the pointer" srcdoc="{page}" '
            f'style="width:100%;height:{HEIGHT}px;border:0"></iframe>'
        )

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(self.still).save(buffer, "PNG")
        return buffer.getvalue()


def show(
    image: ImageArray,
    model: str | AttentionPredictor | Sequence[str | AttentionPredictor] = "embedded",
    *,
    blocks: str = "last",
    size: int = 224,
) -> NotebookView:
    """Show an image with the attention of the patch under the pointer.

    Args:
        image: uint8 RGB [height, width, 3].
        model: Name of a model, or a predictor, or several of them side by side with one pointer.
        blocks: "last", or "all" for every block.
        size: Short side of the image in pixels for models that are given by name.

    Raises:
        ValueError: `blocks` has another value, or the output is larger than `MAX_BYTES`.
    """
    if blocks not in ("last", "all"):
        raise ValueError(f"Found blocks={blocks!r}, expected 'last' or 'all'.")
    models = [model] if isinstance(model, str | AttentionPredictor) else list(model)
    predictors = [AttentionPredictor(one, size=size) if isinstance(one, str) else one for one in models]
    values, stills = [], []
    for one, predictor in zip(models, predictors, strict=True):
        numbers = range(predictor.blocks) if blocks == "all" else (-1,)
        name = one if isinstance(one, str) else "model"
        values.append(attention_value(predictor, image, blocks=numbers, name="image") | {"model": name})
        stills.append(still_of(image, predictor.cls_attention().mean(axis=0)))
    view = NotebookView(image, values, np.concatenate(stills, axis=1))
    largest, length = MAX_BYTES[blocks == "all"] * len(models), len(view._repr_html_())
    if length > largest:
        raise ValueError(f"The view has {length:,} bytes, expected at most {largest:,}: pass a smaller size.")
    return view


def still_of(image: ImageArray, attention: np.ndarray) -> ImageArray:
    """Return the image next to its map [rows, columns], scaled to its own maximum."""
    rows = np.arange(image.shape[0]) * attention.shape[0] // image.shape[0]
    columns = np.arange(image.shape[1]) * attention.shape[1] // image.shape[1]
    bright = (255 * attention / attention.max()).astype(np.uint8)[np.ix_(rows, columns)]
    return np.concatenate([image, bright[..., None].repeat(3, axis=2)], axis=1)


def page_of(values: Sequence[dict[str, Any]]) -> str:
    """Return a page that holds the page's own scripts and style, and the values."""
    imports: dict[str, str] = {}
    waiting = ["views/attention_view.js"]
    while waiting:
        name = waiting.pop()
        if name in imports:
            continue
        code = (STATIC / name).read_text(encoding="utf-8").replace("import.meta.url", '"bundle:/"')
        code = re.sub(r'(from |import\()"\./', rf'\1"{name.split("/")[0]}/', code)
        code = re.sub(r'(from |import\()"\.\./', r'\1"', code)
        waiting += re.findall(r'(?:from |import\()"([^"]+)"', code)
        imports[name] = (
            f"data:text/javascript;charset=utf-8;base64,{base64.b64encode(code.encode()).decode()}"
        )
    return PAGE % {
        "style": (STATIC / "views" / "views.css").read_text(encoding="utf-8"),
        "imports": json.dumps({"imports": imports}),
        "values": json.dumps(values).replace("</", "<\\/"),
        "columns": len(values),
    }
