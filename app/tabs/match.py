"""The tab Match: patches of two images that are each other's nearest neighbors."""

from typing import Any

import gradio as gr

from app import fairness, matching
from app.errors import LabError
from app.images import EXAMPLES, stem
from app.page import HEAVY, LIGHT, PRIVATE, Page, dropdown, inspector, split, work

TITLE = "Match"
USES = ("image", "model", "size")
RATIO = "Largest distance of a match, in percent of the distance to the second best patch. 100 keeps all."
TURNED = "turned"
"""Choice of the second image: the first one, turned within its frame."""


def build(page: Page) -> None:
    """Build the tab inside its `gr.Tab`."""
    choices = [(f"The first image, turned by {matching.TURN_DEGREES}°", TURNED)]
    choices += [(title, name) for name, title in EXAMPLES.items()]
    with work():
        view = page.view("pair", elem_id="match")
    with inspector():
        second = dropdown(choices, value=TURNED, label="Second image", min_width=200, elem_id="second")
        page.link("second", second)
        own = gr.UploadButton("Open a second image", file_types=["image"], size="sm", min_width=110, scale=0)
        ratio = gr.Slider(50, 100, 100, step=1, label="Ratio to the next best (%)", info=RATIO, min_width=160)
    page.views.append(view)

    def find(*inputs: Any) -> Any:
        return gr.HTML(matched=match_images(page, *inputs))

    def take(path: object) -> Any:
        name = page.keep(path)
        _, title = split(name)
        return gr.Dropdown(choices=[choices[0], (title, name), *choices[1:]], value=name)

    taken = own.upload(take, own, second, show_progress="minimal", **PRIVATE)
    inputs = [page.image, page.model, page.size, second, ratio]
    view.shown(fairness.in_turn(find, page.loader), inputs, view, **HEAVY)
    for event in (second.input, ratio.release, taken.success):
        event(None, js="() => viewOf('match')?.showAgain()", **LIGHT)


def match_images(
    page: Page, image: object, model: object, size: object, second: object, percent: Any
) -> dict[str, Any]:
    """Match the image of the header with a second one; return the value of the view.

    Args:
        page: Of the page.
        image, model, size: Of the header.
        second: `TURNED`, or an image as `Page.image` names it.
        percent: The ratio of `matching.match` in percent.
    """
    a = page.encode(image, model, size)
    name, title = split(image)
    if second == TURNED:
        second = f"{matching.turn_directions(page.backend, name)}/{stem(title or name)} turned"
    b = page.encode(second, model, size)
    if isinstance(percent, bool) or not isinstance(percent, int | float):
        raise LabError("The ratio must be a number from 1 to 100 percent.")
    found, best = matching.match(page.backend, a.key.token, b.key.token, percent / 100)
    return found | {
        "a": a.key.token,
        "b": page.value(best, second),
        "ratio": percent / 100,
        "directions": f"lab/directions/{a.key.token}/{best.key.token}",
    }
