"""The tab Class map: classes as points near similar classes, and the position of the current image."""

from dataclasses import asdict
from typing import Any

import gradio as gr

from app import class_maps, fairness
from app.errors import LabError, NotHere
from app.shared import HEAVY, LIGHT, Shared, split
from dino_model.inference.predictor import AttentionPredictor

TITLE = "Class map"
NOTE = (
    "Classes that are close on the map are similar to the model. t-SNE keeps neighborhoods, not distances: "
    "the distance between separate groups has no meaning."
)


def build(shared: Shared) -> None:
    """Build the tab inside its `gr.Tab`."""
    lab = shared.lab
    choices = lab.maps.choices()
    first = choices[0][1]
    with gr.Row():
        name = gr.Dropdown(choices, value=first, label="Map", min_width=200)
        search = gr.Dropdown(
            _classes(shared, first), value=None, label="Find a class or group", min_width=200
        )
    view = shared.view("class_map", elem_id="class-map", map=first, placed=None)
    shared.views.append(view)
    opened = gr.Textbox(visible="hidden")
    gr.Markdown(NOTE)
    facts = gr.Markdown(class_maps.facts(lab.maps.get(first)), elem_classes="facts")

    def open_map(chosen: str) -> tuple[Any, ...]:
        dropdown = gr.Dropdown(choices=_classes(shared, chosen), value=None)
        return chosen, dropdown, class_maps.facts(lab.maps.get(chosen))

    def place(photo: Any, chosen: Any) -> Any:
        return gr.HTML(placed=placed(shared, photo, chosen))

    name.focus(lambda: gr.Dropdown(choices=lab.maps.choices()), None, name, **LIGHT)  # new maps appear
    name.input(open_map, name, [opened, search, facts], trigger_mode="always_last", **LIGHT).success(
        None, opened, None, js="(map) => lab('class-map').openMap(map)", **LIGHT
    )
    place_in_turn = fairness.in_turn(place, lambda photo, chosen: _predictor(shared, chosen))
    view.shown(place_in_turn, [shared.photo, name], view, **HEAVY)
    search.input(None, search, None, js="(index) => lab('class-map').goTo(index)", **LIGHT)


def placed(shared: Shared, photo: Any, chosen: Any) -> dict[str, Any]:
    """Return what the view shows of an image of the header: its position and nearest classes."""
    lab = shared.lab
    drawn = lab.maps.get(chosen)
    stored, title = split(photo)
    image = lab.images.read(stored)
    placement = class_maps.place_image(drawn, _predictor(shared, chosen), image)
    return asdict(placement) | {
        "name": title or stored,
        "highlight": stored != lab.start.photo,
        "photo": photo,
        "map": chosen,
    }


def _predictor(shared: Shared, chosen: Any) -> AttentionPredictor:
    model = shared.lab.maps.get(chosen).origin.model
    try:
        return shared.lab.models.ready(model)
    except NotHere as error:
        raise LabError(
            f"This map needs the model {model}, which is not offered here: choose another map."
        ) from error


def _classes(shared: Shared, name: str) -> list[tuple[str, int]]:
    """Return (name and group, index) of every class, by name: the search finds parts of both."""
    points = enumerate(shared.lab.maps.get(name).classes)
    return sorted((f"{point.name} · {point.group}", index) for index, point in points)
