"""Bytes for the browser, from memory: images, arrays of encodings, and the static files of the page.

With routes (`python -m app`) the browser fetches them by address and caches them:

    lab/static/VERSION/PATH          files of app/static, immutable
    lab/pictures/PHOTO.jpg           an image at the size of a screen
    lab/thumbnails/PHOTO.jpg         its center, 96 × 96 pixels
    lab/arrays/TOKEN/KIND/BLOCK      an array of an encoding, immutable; see `KINDS`
    lab/clips/CLIP/NUMBER.jpg        a frame of a clip
    lab/followings/NAME/NUMBER.png   the labels of a tracked frame, a palette PNG
    lab/maps/NAME/map.json           a class map without its features; thumbnails.webp likewise
    lab/directions/A/B               vectors for the cosines of a pair, see `app.matching.direction_bytes`

Without routes (a bare `gr.Blocks`) views use `ArrayServer.fetch_array` as a server function of `gr.HTML`,
images travel as data addresses, and Gradio serves app/static.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from app import fairness
from app.engine import Encoding
from app.errors import LabError, NotHere
from app.files import jpeg
from app.lab import Lab
from app.matching import direction_bytes
from app.photos import EXAMPLES, Draw, for_screen, thumbnail
from app.view import principal_colors

STATIC = Path(__file__).parent / "static"
IMMUTABLE = "private, max-age=31536000, immutable"

KINDS: Mapping[str, tuple[str, Callable[[Encoding, int], np.ndarray]]] = {
    "blocks": ("<f2", lambda encoding, block: np.stack(encoding.queries_keys(block))),
    "tokens": ("<f2", lambda encoding, block: encoding.features(block)),
    "rollout": ("<f2", lambda encoding, block: encoding.rollout(block)),
    "key-pca": ("<f4", lambda encoding, block: principal_colors(encoding, block, "key-pca")),
    "token-pca": ("<f4", lambda encoding, block: principal_colors(encoding, block, "token-pca")),
}
"""Arrays by kind, little-endian: queries and keys [2, heads, tokens, d], tokens [tokens, width], rollout
[tokens, tokens], principal components as colors [rows, columns, 3] in 0..1. `static/views/encoding.js`
decodes them."""


@cache
def version() -> str:
    """Return a hash of every file in `STATIC`."""
    content = hashlib.blake2b(digest_size=6)
    for path in sorted(path for path in STATIC.rglob("*") if path.is_file()):
        content.update(f"{path.relative_to(STATIC)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return content.hexdigest()


class ArrayServer:
    """Arrays and frames of a lab as bytes."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def array(self, token: str, kind: str, block: int) -> bytes:
        """Return an array of `KINDS` for the encoding of a token."""
        if not isinstance(kind, str) or kind not in KINDS or type(block) is not int:
            raise NotHere(f"Unknown array {str(kind)[:40]!r}. Available: {', '.join(KINDS)}.")
        dtype, make = KINDS[kind]
        return make(self.lab.engine.encoding(token), block).astype(dtype).tobytes()

    def frame(self, kind: str, name: str, number: int) -> bytes:
        """Return a frame of a clip as JPEG (kind "frames"), or its tracked labels as PNG (kind "masks")."""
        if kind not in ("frames", "masks") or type(number) is not int:
            raise NotHere(f"Unknown kind of frame {str(kind)[:40]!r}. Available: frames, masks.")
        clips = self.lab.clips
        files = clips.get(name).frames if kind == "frames" else clips.following(name).masks
        if not 0 <= number < len(files):
            raise NotHere(f"Unknown frame {number}. Available: 0 to {len(files) - 1}.")
        return files[number]

    def fetch_array(self, question: list) -> str:
        """Return `array(*question)` in base64: the server function of views without routes."""
        return self._fetch(self.array, question)

    def fetch_frame(self, question: list) -> str:
        """Return `frame(*question)` in base64: the server function of film views without routes."""
        return self._fetch(self.frame, question)

    def _fetch(self, find: Callable[..., bytes], question: object) -> str:
        if not (isinstance(question, list) and len(question) == 3 and isinstance(question[1], str)):
            raise LabError("Expected a list of two texts and a number.")
        return base64.b64encode(find(*question)).decode()


def routes(lab: Lab) -> list[BaseRoute]:
    """Return the routes of the module docstring, for `launch(app_kwargs={"routes": …})` or a FastAPI app."""
    server = ArrayServer(lab)

    def refusal(error: LabError) -> Response:
        headers = {"Cache-Control": "no-store"}
        return Response(error.sentence, error.status, media_type="text/plain", headers=headers)

    def answer(make: Callable[[], bytes], media_type: str, cached: str = "no-store") -> Response:
        try:
            return Response(make(), media_type=media_type, headers={"Cache-Control": cached})
        except LabError as error:
            return refusal(error)

    async def in_turn(request: Request, tokens: list[str], make: Callable[[], bytes]) -> Response:
        """Answer with bytes; an encoding that was forgotten waits for the model."""
        client = (request.client.host if request.client else "", tokens[0].partition(".")[0])
        try:
            turns = fairness.READING if all(map(lab.engine.holds, tokens)) else fairness.MODEL
            async with turns.turn(client):
                work = partial(answer, make, "application/octet-stream", IMMUTABLE)
                return await fairness.in_thread(work)
        except LabError as error:
            return refusal(error)

    async def array(request: Request) -> Response:
        token, kind, block = (request.path_params[name] for name in ("token", "kind", "block"))
        return await in_turn(request, [token], lambda: server.array(token, kind, block))

    async def directions(request: Request) -> Response:
        tokens = [request.path_params[name] for name in ("a", "b")]
        return await in_turn(request, tokens, lambda: direction_bytes(lab, *tokens))

    def pictures(draw: Draw) -> Callable[[Request], Response]:
        def picture(request: Request) -> Response:
            photo = request.path_params["photo"]
            cached = "max-age=3600" if photo in EXAMPLES else "no-store"
            return answer(lambda: jpeg(draw(lab.pictures.read(photo))), "image/jpeg", cached)

        return picture

    def frames(kind: str, media_type: str) -> Callable[[Request], Response]:
        def frame(request: Request) -> Response:
            name, number = request.path_params["name"], request.path_params["number"]
            return answer(lambda: server.frame(kind, name, number), media_type)

        return frame

    def class_map(request: Request) -> Response:
        return answer(lambda: lab.maps.content(request.path_params["name"]), "application/json", "no-cache")

    def thumbnails(request: Request) -> Response:
        return answer(lambda: lab.maps.thumbnails(request.path_params["name"]), "image/webp", "no-cache")

    return [
        Mount(f"/lab/static/{version()}", ImmutableFiles(directory=STATIC)),
        Route("/lab/arrays/{token}/{kind}/{block:int}", array),
        Route("/lab/directions/{a}/{b}", directions),
        Route("/lab/pictures/{photo}.jpg", pictures(for_screen)),
        Route("/lab/thumbnails/{photo}.jpg", pictures(thumbnail)),
        Route("/lab/clips/{name}/{number:int}.jpg", frames("frames", "image/jpeg")),
        Route("/lab/followings/{name}/{number:int}.png", frames("masks", "image/png")),
        Route("/lab/maps/{name}/map.json", class_map),
        Route("/lab/maps/{name}/thumbnails.webp", thumbnails),
    ]


class ImmutableFiles(StaticFiles):
    """Files that never change at their address, which contains their version."""

    def file_response(self, *arguments: object, **options: object) -> Response:
        """Return the response of `StaticFiles` with a header that lets browsers keep the file."""
        response: Response = super().file_response(*arguments, **options)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response
