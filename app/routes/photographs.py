"""Photographs: how they come in, and what of them a screen is shown."""

from functools import partial

from fastapi import APIRouter, Request, Response

from app import photos
from app.files import jpeg
from app.lab import Lab
from app.photos import EXAMPLES, clean_name, for_screen
from app.routes.asking import Answer, owner_of, unless_left, upload

KEPT = {"Cache-Control": "max-age=3600"}


def routes(lab: Lab) -> APIRouter:
    """Addresses under api/photos."""
    router = APIRouter(prefix="/api/photos")

    @router.post("", tags=["programs"])
    async def send(request: Request, name: str = "photograph") -> Answer:
        """Send a photograph: the body is the file as it is. From now on, `photo` stands for it."""
        async with upload(request, lab) as content:
            keep = partial(lab.pictures.keep, content)
            photo, (height, width) = await unless_left(request, lab.engine.decoding.run(keep))
        return {"photo": photo, "name": clean_name(name), "width": width, "height": height}

    async def drawn(request: Request, photo: str, draw: photos.Draw) -> Response:
        def work() -> bytes:
            return jpeg(draw(lab.pictures.read(photo)))

        lab.pictures.check(photo)
        content = await unless_left(request, lab.engine.decoding.run(work, owner=owner_of(request, photo)))
        return Response(content, media_type="image/jpeg", headers=KEPT if photo in EXAMPLES else None)

    @router.get("/{photo}/picture.jpg", include_in_schema=False)
    async def picture(request: Request, photo: str) -> Response:
        return await drawn(request, photo, for_screen)

    @router.get("/{photo}/thumbnail.jpg", include_in_schema=False)
    async def thumbnail(request: Request, photo: str) -> Response:
        return await drawn(request, photo, photos.thumbnail)

    return router
