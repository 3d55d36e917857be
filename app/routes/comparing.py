"""Two models on one photograph, as the paper's figure."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Field

from app import figure
from app.errors import LabError
from app.figure import Side
from app.following import from_runs
from app.lab import Lab
from app.limits import MEGABYTE
from app.routes.asking import file_named
from app.routes.encodings import Asked, Looks


class Drawn(Asked):
    """A mask by hand: height and width, and its runs in reading order, [0 or 1, pixels, …]."""

    size: Annotated[list[int], Field(min_length=2, max_length=2)]
    runs: list[int]


class Figure(Asked):
    """Tokens of two encodings of one photograph, of each a head ("mean" or its number); the share kept."""

    left: str
    right: str
    left_head: str = "mean"
    right_head: str = "mean"
    mass: float = Field(0.6, ge=0.01, le=1)
    name: str = "photograph"
    drawn: Drawn | None = None


def routes(lab: Lab) -> APIRouter:
    """The address api/compare/figure.png."""
    router, looks = APIRouter(prefix="/api/compare", include_in_schema=False), Looks(lab)

    @router.post("/figure.png")
    async def draw(request: Request, asked: Figure) -> Response:
        sides = []
        for token, head in ((asked.left, asked.left_head), (asked.right, asked.right_head)):
            encoding, last = await looks.compute(request, token, lambda one: one.queries_keys(one.blocks - 1))
            sides.append(Side(encoding, last, head))
        photo = sides[0].encoding.key.photo
        if photo != sides[1].encoding.key.photo:
            raise LabError("The two models look at different photographs: open one of them on both sides.")

        def make() -> bytes:
            drawn = _labels(asked.drawn, lab.limits.max_pixels) if asked.drawn else None
            return figure.png(lab.pictures.read(photo), sides, asked.mass, drawn)

        content = await looks.draw(request, asked.left, make)
        name = photo if sides[0].encoding.example else asked.name
        return Response(content, media_type="image/png", headers=file_named(name, "compared.png"))

    return router


def _labels(drawn: Drawn, most: int) -> figure.Labels:
    height, width = drawn.size
    if min(drawn.size) < 1 or height * width > most:
        raise LabError(f"A drawn mask has at most {most // MEGABYTE} million pixels.")
    return from_runs(drawn.runs, (height, width), most=1)
