"""Serve bytes from memory to the browser, by address.

lab/static/VERSION/PATH          files of app/static, which `app.limits.guard` lets browsers keep
lab/images/NAME.jpg           an image at the size of a screen
lab/thumbnails/NAME.jpg         its center, 96 × 96 pixels
lab/arrays/TOKEN/KIND/BLOCK      an array of an encoding, immutable; see `KINDS`
lab/shapes/TOKEN                 what `app.values.shape_of` returns of an encoding, as JSON
lab/directions/A/B               vectors for the cosines of a pair, see `matching.direction_bytes`
lab/clips/CLIP/NUMBER.jpg        a frame of a clip
lab/tracked/NAME/NUMBER.png      the labels of a tracked frame, a palette PNG
lab/maps/NAME/map.json           a class map without its features
lab/maps/NAME/thumbnails.jpg     an image of each of its classes, in one
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.staticfiles import StaticFiles

from app import STATIC
from app.handlers.attention_maps import colors_and_variance, norms_and_outliers, rollout
from app.handlers.matching import direction_bytes
from app.limits import fairness
from app.limits.errors import LabError, NotHere
from app.store.backend import Backend
from app.store.engine import Encoding, Key
from app.store.images import EXAMPLES, thumbnail
from app.values import jpeg, screen_jpeg

IMMUTABLE = "private, max-age=31536000, immutable"
KINDS: Mapping[str, tuple[str, Callable[[Encoding, int], np.ndarray]]] = {
    "blocks": ("<f2", lambda encoding, block: np.stack(encoding.queries_keys(block))),
    "tokens": ("<f2", Encoding.features),
    "rollout": ("<f2", rollout),
    "norms": ("<f4", norms_and_outliers),
    "key-pca": ("<f4", colors_and_variance),
}
"""Little-endian arrays by kind, which `static/views/encoding.js` decodes.

Queries and keys are [2, heads, tokens, d], tokens [tokens, width], and the rollout [tokens, tokens]. Norms
and marks of outliers are [2, rows, columns]. Principal components are colors in [0, 1], [rows, columns, 3],
followed by the shares of the variance that they explain, [3].
"""
TOKENS = {"arrays": 1, "shapes": 1, "directions": 2}
"""Number of tokens in the addresses of arrays, which need a turn."""


class Content(NamedTuple):
    """Bytes, their media type, and the header Cache-Control."""

    data: bytes
    media_type: str = "application/octet-stream"
    cached: str = "no-store"


@cache
def version() -> str:
    """Return a hash of every file in `STATIC`."""
    content = hashlib.blake2b(digest_size=6)
    for path in sorted(path for path in STATIC.rglob("*") if path.is_file()):
        content.update(f"{path.relative_to(STATIC)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return content.hexdigest()


def static_address(path: str) -> str:
    """Return the address of a file of app/static, relative to the page."""
    return f"lab/static/{version()}/{path}"


def read(backend: Backend, address: str) -> Content:
    """Return what is at an address of the module docstring without "lab/", except static files."""
    match address.split("/"):
        case ["arrays", token, kind, block] if kind in KINDS and _is_number(block):
            dtype, make = KINDS[kind]
            array = make(backend.encoding(token), int(block)).astype(dtype)
            return Content(array.tobytes(), cached=IMMUTABLE)
        case ["shapes", token]:
            key = Key.of(token)
            *_, shape = backend.prepare(key.image, key.model, key.size)
            return Content(json.dumps(shape).encode(), "application/json")
        case ["directions", a, b]:
            return Content(direction_bytes(backend, a, b), cached=IMMUTABLE)
        case ["images" | "thumbnails" as size, file]:
            name = file.removesuffix(".jpg")
            image = backend.images.read(name)
            content = screen_jpeg(image) if size == "images" else jpeg(thumbnail(image))
            return Content(content, "image/jpeg", "max-age=3600" if name in EXAMPLES else "no-store")
        case ["clips", name, file]:
            return Content(_frame(backend.clips.get(name).frames, file), "image/jpeg")
        case ["tracked", name, file]:
            return Content(_frame(backend.clips.tracked_clip(name).masks, file), "image/png")
        case ["maps", name, "map.json"]:
            return Content(backend.maps.content(name), "application/json", "no-cache")
        case ["maps", name, "thumbnails.jpg"]:
            return Content(backend.maps.pictures(name), "image/jpeg", "no-cache")
        case _:
            raise NotHere("There is nothing at this address: open the page again.")


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 6


def _frame(files: Sequence[bytes], file: str) -> bytes:
    number = file.partition(".")[0]
    if not _is_number(number) or int(number) >= len(files):
        raise NotHere(f"There is no such frame: the last is {len(files) - 1}.")
    return files[int(number)]


async def _unless_closed(request: Request, work: Coroutine[Any, Any, Content]) -> Content:
    """Await work; cancel it and raise `Canceled` if the client closes the connection before its end."""

    async def wait_for_disconnect() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    tasks = asyncio.ensure_future(work), asyncio.ensure_future(wait_for_disconnect())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise fairness.Canceled("The client has left.")
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def routes(backend: Backend) -> list[BaseRoute]:
    """Return the routes of the module docstring, for `launch(app_kwargs={"routes": …})` or a FastAPI app."""

    async def respond(request: Request) -> Response:
        """Read in a thread; arrays take a turn, at the models if their encoding was forgotten."""
        path = request.path_params["path"]
        kind, *names = path.split("/")
        tokens = names[: TOKENS.get(kind, 0)]
        try:
            if tokens:
                client = (request.client.host if request.client else "", tokens[0].partition(".")[0])
                turns = fairness.READING if all(map(backend.holds, tokens)) else fairness.MODEL
                with backend.images.pinned(*tokens):
                    content = await _unless_closed(request, turns.run(client, read, backend, path))
            else:
                content = await run_in_threadpool(read, backend, path)
        except LabError as error:
            headers = {"Cache-Control": "no-store"}
            return Response(error.sentence, error.status, media_type="text/plain", headers=headers)
        data, media_type, cached = content
        return Response(data, media_type=media_type, headers={"Cache-Control": cached})

    files = StaticFiles(directory=STATIC)

    async def respond_static(request: Request) -> Response:
        """Read a file; a `Mount` would find none behind a proxy that strips --root-path."""
        return await files.get_response(request.path_params["path"], request.scope)

    static = Route(f"/lab/static/{version()}/{{path:path}}", respond_static)
    return [static, Route("/lab/{path:path}", respond)]
