"""Search of an index of images by the image of the header, or by the part of it that the pins frame."""

from functools import partial
from typing import Annotated

import gradio as gr
import numpy as np
from pydantic import Field

from app.limits.errors import ClientValue, LabError
from app.page import HEAVY, Page
from app.store.backend import Backend
from app.store.engine import Encoding
from dino_model.data.framing import Box
from segmentation.masks import ImageArray
from segmentation.video import shrunk

COUNT = 12
"""Images that a search finds."""
TILE = 160
"""Longest side of a result in pixels."""
PINNED = "view?.pins.list.length ? view.pins.list.map(({ x, y }) => [x, y]) : null"
Share = Annotated[float, Field(ge=0, le=1)]


class SearchRequest(ClientValue):
    """The token of an encoding, and corners of a part, (x, y) as shares of width and height.

    Without corners the whole image is meant; `places` is None if no patch is pinned.
    """

    token: str
    places: list[Annotated[list[Share], Field(min_length=2, max_length=2)]] | None = Field(max_length=8)


def build(page: Page) -> None:
    """Build the buttons and the results, inside the tab Explore."""
    with gr.Accordion("Search my images", open=False, elem_id="search"):
        with gr.Row():
            whole = gr.Button("By the whole image", size="sm", elem_id="search-whole")
            part = gr.Button("By the part between the pins", size="sm", elem_id="search-part")
        results = gr.Gallery(label="Most similar", columns=3, height="auto", elem_id="search-results")

    for button, places in ((whole, "[]"), (part, PINNED)):
        inputs = f"{{ token: view?.encoding?.token, places: {places} }}"
        script = f"() => {{ const view = viewOf('explore'); return [{inputs}]; }}"
        search = page.in_turn(partial(search_images, page.backend))
        button.click(search, [page.request], results, js=script, **HEAVY)


def search_images(backend: Backend, arguments: object) -> list[tuple[ImageArray, str]]:
    """Find the most similar images of the index by a `SearchRequest`: thumbnails with cosine and name."""
    request = SearchRequest.of(arguments)
    if backend.index is None:
        raise LabError("This page has no images to search: start it with --search INDEX.")
    if request.places is None:
        raise LabError("Pin two corners of the part first: click them in the image.")
    encoding = backend.encoding(request.token)
    image = backend.images.read(encoding.key.image)
    box = frame_places(encoding, request.places, image) if request.places else None
    try:
        neighbors = backend.index.search(image, COUNT, box)
        return [
            (shrunk(backend.index.read(name), TILE), f"{cosine:.2f} · {name}") for name, cosine in neighbors
        ]
    except (OSError, ValueError) as error:
        raise LabError("An image of the index cannot be read: index the images again.") from error


def frame_places(encoding: Encoding, places: list[list[float]], image: ImageArray) -> Box:
    """Return the smallest box of whole patches that holds all places, in pixels of the image."""
    counts, sides = np.array(encoding.predictor.grid[::-1]), np.array(image.shape[1::-1])
    patches = np.minimum((np.array(places) * counts).astype(int), counts - 1)
    corners = np.array([patches.min(axis=0), patches.max(axis=0) + 1]) * sides / counts
    left, top, right, bottom = corners.ravel().tolist()
    return left, top, right, bottom
