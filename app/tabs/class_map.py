"""The tab Class map: classes as points near similar classes, and the position of the current image."""

from dataclasses import asdict
from functools import partial
from typing import Any

import gradio as gr

from app.limits.errors import LabError, NotHere
from app.page import HEAVY, LIGHT, Page, dropdown, export_button, inspector, split, work
from app.store import class_maps

TITLE = "Class map"
USES = ("image",)
NOTE = (
    "Classes that are close on the map have similar features. t-SNE keeps neighborhoods, not distances: "
    "the distance between separate groups has no meaning."
)


def build(page: Page) -> None:
    """Build the tab inside its `gr.Tab`."""
    backend = page.backend
    choices = backend.maps.choices()
    first = choices[0][1]
    with work():
        view = page.view("class_map", elem_id="class-map", map=first, placed=None, aside="class-map-aside")
        page.views.append(view)
    with inspector():
        name = dropdown(choices, value=first, label="Map", elem_id="map")
        search = gr.Dropdown(_classes(page, first), value=None, label="Find a class or group")
        opened = gr.Textbox(visible="hidden")
        page.aside("class-map-aside")
        with gr.Accordion("Quality of the map", open=False, elem_id="quality"):
            gr.Markdown(NOTE)
            facts = gr.Markdown(class_maps.facts(backend.maps.get(first)), elem_classes="facts")
        export_button("class-map")

    def open_map(chosen: str) -> tuple[Any, ...]:
        dropdown = gr.Dropdown(choices=_classes(page, chosen), value=None)
        return chosen, dropdown, class_maps.facts(backend.maps.get(chosen))

    name.focus(lambda: gr.Dropdown(choices=backend.maps.choices()), None, name, **LIGHT)  # new maps appear
    name.input(open_map, name, [opened, search, facts], trigger_mode="always_last", **LIGHT).success(
        None, opened, None, js="(map) => viewOf('class-map').openMap(map)", **LIGHT
    )
    place = page.in_turn(partial(_place, page), lambda _, map: backend.models.loader(_model(page, map)))
    view.shown(place, [page.image, name], view, **HEAVY)
    search.input(None, search, None, js="(index) => viewOf('class-map').goTo(index)", **LIGHT)


def _place(page: Page, image: Any, chosen: Any) -> gr.HTML:
    """Show the position of an image of the header, and its nearest classes."""
    backend = page.backend
    drawn = backend.maps.get(chosen)
    stored, title = split(image)
    pixels = backend.images.read(stored)
    placement = class_maps.place_image(drawn, backend.models.ready(_model(page, chosen)), pixels)
    shown = {"picture": page.address(stored, small=True), "source": image, "map": chosen}
    return gr.HTML(placed=asdict(placement) | shown | {"name": title or stored, "highlight": True})


def _model(page: Page, chosen: Any) -> str:
    model = page.backend.maps.get(chosen).origin.model
    try:
        page.backend.models.source(model)
    except NotHere as error:
        raise LabError(
            f"This map needs the model {model}, which is not offered here: choose another map."
        ) from error
    return model


def _classes(page: Page, name: str) -> list[tuple[str, int]]:
    """Return (name and group, index) of every class, by name: the search finds parts of both."""
    points = enumerate(page.backend.maps.get(name).classes)
    return sorted((f"{point.name} · {point.group}", index) for index, point in points)
