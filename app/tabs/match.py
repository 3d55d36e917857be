"""The tab Match: patches of two images that are each other's nearest neighbors."""

from typing import Any

import gradio as gr

from app.handlers import matching
from app.handlers.own import rail
from app.page import HEAVY, LIGHT, Page, export_button, inspector, split, work
from app.store.images import EXAMPLES, stem

TITLE = "Match"
USES = ("image", "model", "size")
RATIO = "Largest distance of a match, in percent of the distance to the second best patch. 100 keeps all."
TURNED = "turned"
"""Choice of the second image: the first one, turned within its frame."""
TURNED_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 58 58'%3E%3Cpath fill='none' "
    "stroke='%23888' stroke-width='3' d='M17 24l24-8 8 24-24 8zM14 18a20 20 0 0 1 14-9M23 5l6 4-5 6'/%3E"
    "%3C/svg%3E"
)


def build(page: Page) -> None:
    """Build the tab inside its `gr.Tab`."""
    turned = (TURNED, f"The first image, turned by {matching.TURN_DEGREES}°", TURNED_ICON)
    examples = [turned] + [(name, title, page.address(name, small=True)) for name, title in EXAMPLES.items()]
    with work():
        view = page.view("pair", elem_id="match")
    with inspector():
        gr.Markdown("Second image", elem_classes="label")
        seconds = rail(
            page, "image", examples, elem_id="seconds", start=TURNED, address="second", label="Open images"
        )
        second = gr.Textbox(TURNED, visible="hidden", elem_id="second")
        page.link("second", second, [name for name, _, _ in examples])
        ratio = gr.Slider(50, 100, 100, step=1, label="Ratio to next best (%)", info=RATIO)
        export_button("match")
    page.views.append(view)

    inputs = [page.image, page.model, page.size, second, ratio]
    find = page.in_turn(lambda *inputs: gr.HTML(matched=match_images(page, *inputs)), page.loader)
    view.shown(find, inputs, view, **HEAVY)
    seconds.select(None, None, second, js="() => viewOf('seconds').chosen")
    second.change(None, second, None, js="(name) => viewOf('seconds')?.mark(name)", **LIGHT)
    for event in (second.change, ratio.release):
        event(None, js="() => viewOf('match')?.showAgain()", **LIGHT)


def match_images(
    page: Page, image: object, model: object, size: object, second: object, percent: Any
) -> dict[str, Any]:
    """Match the image of the header with a second one, or with `TURNED`; return the value of the view."""
    a = page.encode(image, model, size)
    name, title = split(image)
    if second == TURNED:
        second = f"{matching.turn_directions(page.backend, name)}/{stem(title or name)} turned"
    b = page.encode(second, model, size)
    ratio = percent / 100 if type(percent) in (int, float) else percent
    found, best = matching.match(page.backend, a.key.token, b.key.token, ratio)
    return found | {
        "a": a.key.token,
        "b": page.show_image(second, model, best.key.size),
        "ratio": ratio,
        "directions": f"lab/directions/{a.key.token}/{best.key.token}",
    }
