"""One view of several photographs, as a contact sheet or as one zip."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from pydantic import Field

from app import sheets
from app.downloads import Scene
from app.engine import Encoding
from app.lab import Lab
from app.photos import clean_name, for_screen
from app.routes.asking import file_named
from app.routes.encodings import Asked, Looks, known_file
from app.view import Maps, View, maps_of


class Shown(Asked):
    """One photograph: its encoding, who is asked on it, and what its visitor calls it."""

    token: str
    query: str = "cls"
    name: str = "photograph"


class Several(Asked):
    """The photographs, in the order in which they are shown."""

    pictures: Annotated[list[Shown], Field(min_length=1, max_length=sheets.MOST_PICTURES)]


def routes(lab: Lab) -> APIRouter:
    """Addresses under api/sheets."""
    router, looks = APIRouter(prefix="/api/sheets", include_in_schema=False), Looks(lab)

    @router.post("/{file}")
    async def draw(request: Request, file: str, view: Annotated[View, Depends()], asked: Several) -> Response:
        media_type, make = known_file(sheets.FILES, file)
        seen: list[tuple[Encoding, Maps, View, str]] = []
        for one in asked.pictures:
            mine = replace(view, query=one.query)
            encoding, maps = await looks.compute(request, one.token, partial(maps_of, view=mine))
            name = encoding.key.photo if encoding.example else clean_name(one.name)
            seen.append((encoding, maps, mine, name))

        def scenes() -> Iterator[Scene]:  # of the pictures, one at a time is in memory
            for encoding, maps, mine, name in seen:
                yield Scene(encoding, mine, maps, for_screen(lab.pictures.read(encoding.key.photo)), name)

        content = await looks.draw(request, asked.pictures[0].token, lambda: make(scenes()))
        return Response(content, media_type=media_type, headers=file_named(view.quantity, file))

    return router
