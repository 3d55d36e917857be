"""A user's own images and clips: the browser keeps them, and the server has them only while they are in use.

`rail` shows them with the examples. Its functions are called by its script, outside of Gradio's queue: they
take a turn and return errors as sentences, `{"error": sentence}`.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Literal

import gradio as gr
from pydantic import Field

from app.limits import fairness
from app.limits.bounds import take_upload
from app.limits.errors import ClientValue, LabError
from app.page import Page, split
from app.store.backend import Backend
from app.store.images import MAX_FRAME_TEXT, clean_name, read_frame
from app.values import attention_value

Kind = Literal["image", "clip"]
ACCEPTED: Mapping[Kind, str] = {
    "image": "image/*",
    "clip": "video/*,.mkv,.mpg,.mpeg,.ogv,.flv,.gif,.webp,.apng,.avif",
}


FRAME_PATCHES = 14
"""Patches of the short side of a frame of the live camera."""


class Sent(ClientValue):
    """A file that the browser has sent: its path in the folder of uploads, and the user's name for it."""

    kind: Kind
    path: str
    title: str = Field(max_length=1000)


class Named(ClientValue):
    """A file by the name that `keep` returned."""

    kind: Kind
    name: str = Field(max_length=1000)


class Frame(ClientValue):
    """A frame of the live camera: a JPEG as data address, a model, and the block that is shown, from 1."""

    image: str = Field(max_length=MAX_FRAME_TEXT)
    model: str
    block: int


def rail(
    page: Page, kind: Kind, examples: Sequence[tuple[str, str, str]], *, elem_id: str, **props: Any
) -> gr.HTML:
    """Show a tile that opens files, the user's own ones, and examples; "select" announces a choice.

    Args:
        examples: Name, title and address of the thumbnail of each.
        elem_id: Also its name in the browser's memory of what was shown last.
        props: Those of app/static/views/rail_view.js.
    """
    functions = [answer_refusals(function) for function in own_functions(page.backend)]
    return page.view(
        "rail",
        {"kind": kind},
        elem_id=elem_id,
        kind=kind,
        remembers=elem_id,
        examples=[list(example) for example in examples],
        accept=ACCEPTED[kind],
        server_functions=functions,
        **props,
    )


Function = Callable[[Any, gr.Request], Awaitable[Any]]


def own_functions(backend: Backend) -> list[Function]:
    """Return what the script of a rail may call: each takes JSON of a client."""

    async def keep(sent: Any, request: gr.Request) -> Any:
        """Read a sent file into memory and delete it; return its name."""
        file = Sent.of(sent)
        title = clean_name(file.title) or file.kind

        def read() -> dict[str, str]:
            content = take_upload(file.path, backend.limits.max_upload_bytes)
            name = backend.stores[file.kind].keep(content, title)
            halved = file.kind == "image" and backend.images.is_halved(content)
            note = f"{title} is very large: it is shown at half its width and height." if halved else ""
            return {"name": f"{name}/{title}", "note": note}

        return await fairness.DECODING.run(fairness.client_of(request), read)

    async def holds(named: Any, request: gr.Request) -> bool:
        """Return whether the server still has a file."""
        file = Named.of(named)
        return backend.stores[file.kind].holds(split(file.name)[0])

    async def forget(named: Any, request: gr.Request) -> Any:
        """Delete a file and what was computed from it."""
        backend.forget(split(Named.of(named).name)[0])
        return {}

    async def frame(sent: Any, request: gr.Request) -> Any:
        """Encode a frame at a low resolution; return the value of an attention view. Nothing is kept."""
        live, client = Frame.of(sent), fairness.client_of(request)
        await backend.load(live.model, client)

        def encode() -> dict[str, Any]:
            predictor = backend.models.ready(live.model)
            size = FRAME_PATCHES * predictor.patch_size
            if not 1 <= live.block <= predictor.blocks:
                raise LabError(f"There is no block {live.block}: this model has {predictor.blocks}.")
            pixels = read_frame(live.image)
            try:
                value = attention_value(predictor, pixels, size=size, blocks=[live.block - 1], name="camera")
            except ValueError as error:
                raise LabError("This frame of the camera cannot be shown: choose another model.") from error
            named = {"token": f"camera {secrets.token_hex(4)}", "source": "camera", "model": live.model}
            return value | named | {"random": live.model.startswith("random:")}

        return await fairness.MODEL.run(client, encode)

    return [keep, holds, forget, frame]


def answer_refusals(function: Function) -> Function:
    """Return a function that answers a refusal with its sentence: Gradio would hide it from the script."""

    @wraps(function)
    async def answer(sent: Any, request: gr.Request) -> Any:
        try:
            return await function(sent, request)
        except LabError as error:
            return {"error": error.sentence}

    return answer
