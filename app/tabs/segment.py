"""The tab Segment: objects by a click, attention, LOST, TokenCut or MaskCut, and their scores."""

from typing import Any

import gradio as gr

from app import fairness, objects
from app.clips import runs_of
from app.engine import Encoding
from app.errors import LabError, NotHere
from app.lab import Lab
from app.objects import Recipe
from app.photos import stem
from app.shared import LIGHT, PRIVATE, Shared
from app.views import mask_view

TITLE = "Segment"
USES_IMAGE = True
BY_HAND = {"Mask (PNG)": "mask.png", "Cut-out (PNG)": "cutout.png", "Mask (COCO)": "mask.json"}
COMPUTED = {"Labels (PNG)": "labels.png", "Masks (COCO)": "masks.json", "Overlay (PNG)": "overlay.png"}


def build(shared: Shared) -> None:
    """Build the tab inside its `gr.Tab`."""
    with gr.Row():
        with gr.Column(scale=3, min_width=300):
            view = mask_view(elem_id="segment", server_functions=shared.server_functions)
            shared.views.append(view)
        with gr.Column(scale=1, min_width=220):
            _settings()
            for label, file in BY_HAND.items():
                button = gr.Button(label, size="sm", elem_classes=["by-hand"])
                button.click(None, None, None, js=f"() => lab('segment').save('{file}')", **LIGHT)
            for label, file in COMPUTED.items():
                button = gr.Button(label, size="sm", elem_classes=["computed"])
                shared.save(button, _drawing(shared.lab, file), "lab('segment').request")

    def find(wanted: object) -> Any:
        return gr.skip() if wanted is None else gr.HTML(found=found(shared.lab, wanted))

    view.edited(
        fairness.in_turn(find, turns=fairness.FINDING),
        shared.asked,
        view,
        js="() => [lab('segment').wanted]",
        trigger_mode="always_last",
        concurrency_limit=None,
        show_progress="minimal",
        **PRIVATE,
    ).failure(None, js="() => lab('segment').failed()")


def _settings() -> None:
    """Controls that act in the browser; the style sheet hides those that the method does not use."""
    reach = gr.Slider(50, 99, 90, step=1, label="Key similarity kept (%)", elem_classes=["by-hand"])
    mass = gr.Slider(10, 100, 60, step=1, label="Attention kept (%)", elem_classes=["by-attention"])
    count = gr.Slider(1, objects.MOST_OBJECTS, 3, step=1, label="Most objects", elem_classes=["by-cuts"])
    refined = gr.Checkbox(False, label="Edges follow the image", elem_classes=["computed"])
    controls: dict[str, Any] = {"reach": reach, "mass": mass, "count": count, "refined": refined}
    for name, control in controls.items():
        control.change(
            None, control, None, js=f"(value) => lab('segment')?.set({{ {name}: value }})", **LIGHT
        )


def found(lab: Lab, wanted: object) -> dict[str, Any]:
    """Compute the objects that the view asks for.

    Args:
        lab: Whose images and models.
        wanted: From a browser: the fields of a `Recipe`, the token of an encoding, and a key to repeat.

    Raises:
        LabError: A field is invalid, or the encoding is unknown.
    """
    encoding, recipe = checked(lab, wanted)
    discovered = discover(lab, encoding, recipe)
    labels = objects.labels_of(discovered, encoding.grid)
    if recipe.refined:
        picture = lab.pictures.read(encoding.key.photo)
        labels = objects.refine(labels, picture, objects.refined_size(picture))
    key = wanted.get("key") if isinstance(wanted, dict) else ""
    return {
        "token": encoding.key.token,
        "key": str(key)[:200],
        "rows": labels.shape[0],
        "columns": labels.shape[1],
        "runs": runs_of(labels),
        "seeds": [one.seed for one in discovered],
    }


def checked(lab: Lab, wanted: object) -> tuple[Encoding, Recipe]:
    """Read what a browser sent.

    Raises:
        LabError: A field is invalid, or the encoding is unknown.
    """
    if not isinstance(wanted, dict) or not isinstance(wanted.get("token"), str):
        raise LabError("Choose an image and a method first.")
    recipe = Recipe.of({name: wanted[name] for name in Recipe.__dataclass_fields__ if name in wanted})
    return lab.engine.encoding(wanted["token"]), recipe


def discover(lab: Lab, encoding: Encoding, recipe: Recipe) -> list[objects.Discovery]:
    """Find objects in an encoding.

    Raises:
        LabError: No such head, or an image of a single patch.
    """
    with lab.engine.reading:
        last = encoding.queries_keys(encoding.blocks - 1)
    return objects.find(encoding, last, recipe)


def _drawing(lab: Lab, file: str) -> Any:
    _, make = objects.FILES[file]

    def draw(request: object) -> tuple[str, bytes]:
        encoding, recipe = checked(lab, request)
        name = encoding.key.photo
        if not encoding.example:
            given = request.get("name") if isinstance(request, dict) else None
            name = given if isinstance(given, str) else "image"
        if file not in objects.FILES:
            raise NotHere(f"Unknown file. Available: {', '.join(objects.FILES)}.")
        picture = lab.pictures.read(encoding.key.photo)
        labels = objects.labels_of(discover(lab, encoding, recipe), encoding.grid)
        content = make(picture, objects.in_pixels(labels, picture, recipe.refined))
        return f"{stem(name)}-{recipe.method}-{file}", content

    return draw
