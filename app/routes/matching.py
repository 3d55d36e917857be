"""Two photographs matched: what of one a model finds in the other, as data and as files."""

from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Field

from app import matching
from app.engine import Key, patches_of
from app.errors import LabError
from app.lab import Lab
from app.lanes import Tell, silent
from app.matching import MOST_PINS, Half, Pin, Scene
from app.photos import clean_name, stem
from app.routes.asking import Answer, file_named, owner_of, slow, unless_left
from app.routes.encodings import Asked, known_file, told
from segmentation.matching import SCALES, best_scale, matches_as_json, matches_between


class Pair(Asked):
    """Tokens of two photographs that one model has looked at, and the largest ratio of a match: the distance
    of its patches by that of the next best ones.
    """

    a: str
    b: str
    ratio: float = Field(1.0, ge=0.01, le=1)


class Pinned(Asked):
    """A patch of A, and its colour."""

    row: int = Field(ge=0)
    column: int = Field(ge=0)
    color: str = Field(pattern="^#[0-9a-f]{6}$")


class Export(Pair):
    """What is shown of a pair."""

    pins: Annotated[list[Pinned], Field(max_length=MOST_PINS)]
    lines: bool
    names: Annotated[list[str], Field(min_length=2, max_length=2)]


class Looks:
    """How the halves of a pair are had, for whom."""

    def __init__(self, lab: Lab, request: Request, a: str, b: str) -> None:
        self.lab, self.keys = lab, (Key.of(a), Key.of(b))
        self.owner = owner_of(request, self.keys[0].photo)
        if len({(key.model, key.version) for key in self.keys}) > 1:
            raise LabError("Two models looked at these photographs: let one of them look at both.")

    async def half(self, key: Key, tell: Tell = silent) -> Half:
        """One photograph, as its model sees it."""
        encoding = await self.lab.engine.encoding(key.token, tell=tell, owner=self.owner)
        look = partial(matching.look, encoding, self.lab.pictures)
        return await self.lab.engine.reading.run(look, owner=self.owner, tell=tell)

    async def both(self) -> tuple[Half, Half]:
        """Both, as they were looked at."""
        return await self.half(self.keys[0]), await self.half(self.keys[1])

    async def scaled(self, tell: Tell) -> dict[float, Half]:
        """B as it was looked at, and at the other scales that do not make too many patches."""
        found = {1.0: await self.half(self.keys[1], tell)}
        encoding = found[1.0].encoding
        for scale in SCALES:
            size = max(1, round(self.keys[1].size * scale))
            patches = patches_of(encoding.picture_size, size, encoding.predictor.patch_size)
            if scale not in found and patches <= self.lab.limits.max_patches:
                found[scale] = await self.half(replace(self.keys[1], size=size), tell)
        return found


def routes(lab: Lab) -> APIRouter:
    """Addresses api/match, for programs too, and below it."""
    router = APIRouter(prefix="/api/match")

    @router.post("", tags=["programs"])
    async def match(request: Request, asked: Pair) -> Response:
        """Patches of two photographs that are most alike, each the other's; B is tried at several sizes.

        With `Accept: application/x-ndjson`, lines tell the place in the queue.
        """

        async def job(tell: Tell) -> Answer:
            looks = Looks(lab, request, asked.a, asked.b)
            a, scaled = await looks.half(looks.keys[0], tell), await looks.scaled(tell)
            seen = {scale: half.seen for scale, half in scaled.items()}
            work = partial(best_scale, a.seen, seen, asked.ratio)
            scale, matches = await lab.matching.run(work, owner=looks.owner, tell=tell)
            best = scaled[scale].encoding
            sizes = a.encoding.picture_size, best.picture_size
            return asked.model_dump() | {
                "scale": scale,
                "scales": sorted(scaled),
                "seen": told(best),
                "matches": matches_as_json(matches, (a.encoding.grid, best.grid), sizes),
            }

        return await slow(request, job)

    @router.get("/directions", include_in_schema=False)
    async def directions(request: Request, a: str, b: str) -> Response:
        """Float16: of every patch of A, then of B, a vector of length 1; cosines are their products."""

        async def job() -> bytes:
            looks = Looks(lab, request, a, b)
            work = partial(matching.directions, *await looks.both())
            return (await lab.matching.run(work, owner=looks.owner)).astype("<f2").tobytes()

        return Response(await unless_left(request, job()), media_type="application/octet-stream")

    @router.post("/{file}", include_in_schema=False)
    async def download(request: Request, file: str, asked: Export) -> Response:
        media_type, make = known_file(matching.FILES, file)
        pins = [Pin((pin.row, pin.column), pin.color) for pin in asked.pins]
        names = [clean_name(name) for name in asked.names]

        async def job() -> bytes:
            looks = Looks(lab, request, asked.a, asked.b)
            a, b = await looks.both()

            def work() -> bytes:
                matches = matches_between(a.seen, b.seen, asked.ratio)
                return make(Scene(a, b, names, asked.ratio, matches, pins, asked.lines))

            return await lab.matching.run(work, owner=looks.owner)

        called = "-".join(map(stem, names))
        return Response(
            await unless_left(request, job()), media_type=media_type, headers=file_named(called, file)
        )

    return router
