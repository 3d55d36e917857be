"""Search of an index of images by the image of the header, or by the part of it that the pins frame."""

from typing import Annotated

import cv2
import gradio as gr
import numpy as np
from pydantic import Field

from app import fairness
from app.engine import Encoding
from app.errors import ClientValue, LabError
from app.lab import Lab
from app.photos import Picture
from app.shared import HEAVY, Shared
from dino_model.views import Box

COUNT = 12
"""Images that a search finds."""
TILE = 160
"""Longest side of a result in pixels."""
PINNED = "view?.pins.list.length ? view.pins.list.map(({ x, y }) => [x, y]) : null"
Share = Annotated[float, Field(ge=0, le=1)]


class SearchRequest(ClientValue):
    """The token of an encoding, and places (x, y) as shares of width and height.

    Attributes:
        places: Corners of the part to search by; empty for the whole image, None if no patch is pinned.
    """

    token: str
    places: list[Annotated[list[Share], Field(min_length=2, max_length=2)]] | None = Field(max_length=8)


def build(shared: Shared) -> None:
    """Build the buttons and the results, inside the tab Explore."""
    with gr.Accordion("Search my images", open=False, elem_id="search"):
        with gr.Row():
            whole = gr.Button("By the whole image", size="sm", min_width=120, elem_id="search-whole")
            part = gr.Button("By the part between the pins", size="sm", min_width=120, elem_id="search-part")
        results = gr.Gallery(label="Most similar", columns=3, height="auto", elem_id="search-results")

    def find(asked: object) -> list[tuple[Picture, str]]:
        return found(shared.lab, asked)

    for button, places in ((whole, "[]"), (part, PINNED)):
        asked = f"{{ token: view?.request?.token, places: {places} }}"
        script = f"() => {{ const view = lab('explore'); return [{asked}]; }}"
        button.click(fairness.in_turn(find), [shared.asked], results, js=script, **HEAVY)


def found(lab: Lab, asked: object) -> list[tuple[Picture, str]]:
    """Find the most similar images of the index, as thumbnails with cosine and name.

    Args:
        lab: With an index.
        asked: A `SearchRequest` from a client.

    Raises:
        LabError: An invalid request, an unknown token, no index, or an image that was removed.
    """
    request = SearchRequest.of(asked)
    if lab.index is None:
        raise LabError("This page has no images to search: start it with --search INDEX.")
    if request.places is None:
        raise LabError("Pin two corners of the part first: click them in the image.")
    encoding = lab.engine.encoding(request.token)
    picture = lab.pictures.read(encoding.key.photo)
    box = framed(encoding, request.places, picture) if request.places else None
    try:
        neighbors = lab.index.search(picture, COUNT, box)
        return [(thumbnail(lab.index.read(name)), f"{cosine:.2f} · {name}") for name, cosine in neighbors]
    except (OSError, ValueError) as error:
        raise LabError("An image of the index cannot be read: index the images again.") from error


def framed(encoding: Encoding, places: list[list[float]], picture: Picture) -> Box:
    """Return the smallest box of whole patches that holds all places, in pixels of the image."""
    rows, columns = encoding.grid
    height, width = picture.shape[:2]
    across = [min(int(x * columns), columns - 1) for x, _ in places]
    down = [min(int(y * rows), rows - 1) for _, y in places]
    return (
        min(across) * width / columns,
        min(down) * height / rows,
        (max(across) + 1) * width / columns,
        (max(down) + 1) * height / rows,
    )


def thumbnail(picture: Picture) -> Picture:
    """Make an image smaller: longest side at most `TILE`."""
    height, width = picture.shape[:2]
    scale = min(1.0, TILE / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)
