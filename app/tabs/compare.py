"""The tab Compare: two models on one image, with one pointer and one mask."""

from collections.abc import Sequence
from typing import Annotated, Any

import cv2
import gradio as gr
import numpy as np
from pydantic import Field

from app import fairness
from app.errors import ClientValue, LabError
from app.following import from_runs
from app.lab import Lab
from app.limits import MEGABYTE
from app.objects import COLORS, Head, Mass, cls_map
from app.photos import Picture, png, stem
from app.shared import HEAVY, LIGHT, Shared
from app.views import compare_view
from segmentation import drawing
from segmentation.labels import Labels
from segmentation.masks import Mask, enlarge, keep_mass_of_maps
from segmentation.metrics import jaccard

TITLE = "Compare"
OTHER = "random:embedded"
QUANTITIES = [("Key similarity", "likeness"), ("Attention", "attention")]
HEIGHT = 480  # pixels of each image in the figure
LAYERS = [("Light", "light"), ("Heat map", "heat"), ("Mask", "mask")]


class DrawnMask(ClientValue):
    """A mask by hand: height and width, and run lengths [0 or 1, pixels, …]."""

    size: list[Annotated[int, Field(ge=1)]] = Field(min_length=2, max_length=2)
    runs: list[int]


class FigureRequest(ClientValue):
    """Contents of the figure: tokens of two encodings of one image, their heads, and the mass kept."""

    left: str
    right: str
    left_head: Head = "mean"
    right_head: Head = "mean"
    mass: Mass = 0.6
    name: str = "image"
    drawn: DrawnMask | None = None


def build(shared: Shared) -> None:
    """Build the tab inside its `gr.Tab`."""
    lab = shared.lab
    with gr.Row():
        other = gr.Dropdown(
            lab.models.choices(), value=OTHER, label="Compare with", min_width=200, elem_id="other"
        )
        quantity = gr.Radio(
            QUANTITIES, value="likeness", label="Quantity", min_width=160, elem_id="compare-quantity"
        )
        layer = gr.Radio(LAYERS, value="light", label="Layer", min_width=200)
        mass = gr.Slider(10, 100, 60, step=1, label="Mass kept (%)", min_width=140)
    view = compare_view(elem_id="compare", server_functions=shared.server_functions)
    shared.views.append(view)
    with gr.Row():
        paper = gr.Button("Best heads at 60 %, as in the paper", size="sm")
        save = gr.Button("Figure (PNG)", size="sm")

    def look(photo: str, model: str, size: int, progress: gr.Progress = gr.Progress()) -> Any:
        return gr.HTML(right=shared.value(shared.encode(photo, model, size, progress), photo))

    for event in (view.shown, other.input):
        event(
            fairness.in_turn(look, lambda photo, model, size: lab.models.ready(model)),
            [shared.photo, other, shared.size],
            view,
            **HEAVY,
        ).failure(None, other, other, js="(other) => lab('compare').other || other")
    other.focus(lambda: gr.Dropdown(choices=lab.models.choices()), None, other, **LIGHT)
    controls: dict[str, Any] = {"quantity": quantity, "layer": layer, "mass": mass}
    for name, control in controls.items():
        script = f"(value) => lab('compare')?.set({{ {name}: value }})"
        control.change(None, control, None, js=script, **LIGHT)
    script = "() => { lab('compare').bestHeads(); return ['attention', 'mask', 60]; }"
    paper.click(None, None, [quantity, layer, mass], js=script, **LIGHT)
    shared.save(save, lambda asked: drawn(lab, asked), "lab('compare').request")


def drawn(lab: Lab, asked: object) -> tuple[str, bytes]:
    """Draw the figure of the paper; `asked` is a `FigureRequest` from a client."""
    request = FigureRequest.of(asked)
    encoding, other = lab.engine.encoding(request.left), lab.engine.encoding(request.right)
    if encoding.key.photo != other.key.photo:
        raise LabError("The two models encoded different images: open one image for both.")
    masks: list[tuple[str, Mask]] = []
    for one, head in ((encoding, request.left_head), (other, request.right_head)):
        title = "mean of the heads" if head == "mean" else f"head {head}"
        masks.append((f"{one.key.model}, {title}", keep_mass_of_maps(cls_map(one, head), request.mass)))
    mask = None
    if request.drawn is not None:
        height, width = request.drawn.size
        if height * width > lab.limits.max_pixels:
            raise LabError(f"A mask has at most {lab.limits.max_pixels // MEGABYTE} million pixels.")
        mask = from_runs(request.drawn.runs, (height, width), most=1)
    content = figure_png(lab.pictures.read(encoding.key.photo), masks, request.mass, mask)
    return f"{stem(encoding.key.photo if encoding.example else request.name)}-compared.png", content


def figure_png(
    picture: Picture, masks: Sequence[tuple[str, Mask]], mass: float, drawn: Labels | None
) -> bytes:
    """Draw the image, both masks, and the Jaccard similarity of the masks as a PNG file.

    Args:
        picture: The image.
        masks: Title and mask of the left and the right model, on their patch grids.
        mass: Share of the attention that the masks keep, for the caption.
        drawn: A mask by hand of any size. It is shown on the image, and both masks are scored by it.

    Source: Figure 4 of Caron et al. 2021, "Segmentations from supervised versus DINO".
    """
    size = (picture.shape[0], picture.shape[1])
    width = max(1, round(size[1] * HEIGHT / size[0]))
    small = np.asarray(cv2.resize(picture, (width, HEIGHT), interpolation=cv2.INTER_AREA), np.uint8)

    def tinted(mask: Mask) -> Picture:
        return drawing.overlay_masks(small, enlarge(mask, (HEIGHT, width)), colors=COLORS[:1])

    cells = [(title, tinted(mask)) for title, mask in masks]
    left, right = (enlarge(mask, size) for _, mask in masks)
    text = f"{mass:.0%} of [CLS]'s attention kept; Jaccard similarity of both masks: "
    text += f"{float(jaccard(left, right)):.3f}"
    first = ("Image", small)
    if drawn is not None:
        first = ("Image, drawn mask", tinted(drawn > 0))
        truth = enlarge(drawn > 0, size)
        text += "; with the drawn mask: "
        text += " and ".join(f"{float(jaccard(mask, truth)):.3f}" for mask in (left, right))
    return png(drawing.caption(drawing.contact_sheet([[first, *cells]], height=HEIGHT), text))
