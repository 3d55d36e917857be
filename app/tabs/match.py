"""The tab Match: patches of two images that are each other's nearest neighbors."""

from typing import Any

import gradio as gr

from app import fairness, matching
from app.errors import LabError
from app.lab import Lab
from app.matching import Pair
from app.photos import EXAMPLES, stem
from app.shared import LIGHT, PRIVATE, Shared, split
from app.views import pair_view

TITLE = "Match"
USES_IMAGE = True
TURNED = "turned"
"""Choice of the second image: the first one, turned within its frame."""


def build(shared: Shared) -> None:
    """Build the tab inside its `gr.Tab`."""
    lab = shared.lab
    choices = [(f"The first image, turned by {matching.TURN}°", TURNED)]
    choices += [(title, name) for name, title in EXAMPLES.items()]
    with gr.Row():
        second = gr.Dropdown(choices, value=TURNED, label="Second image", min_width=200, elem_id="second")
        own = gr.UploadButton("Open a second image", file_types=["image"], size="sm", min_width=110, scale=0)
        ratio = gr.Slider(50, 100, 100, step=1, label="Ratio to the next best (%)", min_width=160)
        lines = gr.Checkbox(True, label="Lines between matches", min_width=140)
    view = pair_view(elem_id="match", address=True, server_functions=_server_functions(shared))
    shared.views.append(view)
    with gr.Row():
        picture = gr.Button("Lines (PNG)", size="sm")
        data = gr.Button("Matches (JSON)", size="sm")

    def match(
        photo: str,
        model: str,
        size: int,
        other: str,
        percent: float,
        progress: Any = gr.Progress(),
    ) -> Any:
        return gr.HTML(matched=matched(shared, (photo, model, size), other, percent, progress))

    def prepare(photo: str, model: str, size: int, other: str, percent: float) -> None:
        lab.models.ready(model)

    def take(path: object) -> Any:
        name = shared.keep(path)
        _, title = split(name)
        return gr.Dropdown(choices=[choices[0], (title, name), *choices[1:]], value=name)

    taken = own.upload(take, own, second, show_progress="minimal", **PRIVATE)
    for event in (view.shown, second.input, ratio.release, taken.success):
        event(
            fairness.in_turn(match, prepare),
            [shared.photo, shared.model, shared.size, second, ratio],
            view,
            trigger_mode="always_last",
            concurrency_limit=None,
            show_progress="minimal",
            **PRIVATE,
        )
    lines.change(None, lines, None, js="(lines) => lab('match')?.set({ lines })", **LIGHT)
    for button, file in ((picture, "lines.png"), (data, "matches.json")):
        shared.save(button, _drawing(lab, file), "lab('match').request")


def _server_functions(shared: Shared) -> list[Any]:
    """How the view fetches bytes where there are no routes."""
    if shared.routes:
        return []

    def fetch_directions(tokens: list) -> str:
        return matching.fetch_directions(shared.lab, tokens)

    return [*shared.server_functions, fetch_directions]


def matched(
    shared: Shared, question: tuple[object, object, object], second: object, percent: object, progress: Any
) -> dict[str, Any]:
    """Match the image of the header with a second one.

    Args:
        shared: Whose lab.
        question: Image, model and resolution of the header.
        second: `TURNED`, or an image as `Shared.photo` names it.
        percent: Largest distance of a match, in percent of the distance of the next best.
        progress: Hears of a download.

    Raises:
        LabError: An argument is invalid, or one of the images has no texture.
    """
    lab, (photo, model, size) = shared.lab, question
    if isinstance(percent, bool) or not isinstance(percent, int | float) or not 1 <= percent <= 100:
        raise LabError("The ratio must be a number from 1 to 100 percent.")
    a = shared.encode(photo, model, size, progress)
    name, title = split(photo)
    if second == TURNED:
        other = f"{matching.turned(lab, name)}/{stem(title or name)} turned"
    else:
        other = str(second) if isinstance(second, str) else ""
    b = shared.encode(other, model, size, progress)
    pair = Pair(lab, a.key, b.key, percent / 100)
    scale, scaled, matches = pair.best()
    best = scaled[scale].encoding
    return {
        "a": a.key.token,
        "b": shared.value(best, other),
        "ratio": pair.ratio,
        "scale": scale,
        "scales": sorted(scaled),
        "matches": matching.listed_matches(a, best, matches),
        "directions": f"lab/directions/{a.key.token}/{best.key.token}" if shared.routes else None,
    }


def _drawing(lab: Lab, file: str) -> Any:
    _, make = matching.FILES[file]

    def draw(request: object) -> tuple[str, bytes]:
        scene = matching.scene_of(lab, request)
        return "-".join([*map(stem, scene.names), file]), make(scene)

    return draw
