"""Class maps as data, as a table and with their thumbnails, and a photograph's place on them."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse

from app import class_maps
from app.errors import LabError, NotHere
from app.lab import Lab
from app.lanes import Tell
from app.routes.asking import Answer, owner_of, slow
from app.routes.encodings import Asked


class Place(Asked):
    """Which photograph."""

    photo: str


def routes(lab: Lab) -> APIRouter:
    """Addresses under api/maps/NAME."""
    router = APIRouter(prefix="/api/maps/{name}", include_in_schema=False)

    @router.get("/map.json")
    def content(name: str) -> Answer:
        return class_maps.content(lab.maps.get(name))

    @router.get("/{file}")
    def download(name: str, file: str) -> Response:
        path = lab.maps.folder(name) / file
        if file not in class_maps.FILES or not path.is_file():
            raise NotHere(f"There is no such file: choose one of {', '.join(class_maps.FILES)}.", "file")
        return FileResponse(path, media_type=class_maps.FILES[file], filename=f"{name}-{file}")

    @router.post("/place")
    async def place(request: Request, name: str, asked: Place) -> Response:
        """Where a photograph falls, as the map's own model sees it."""

        async def job(tell: Tell) -> Answer:
            drawn = lab.maps.get(name)
            model = drawn.origin.model
            lab.pictures.check(asked.photo)
            try:
                weights = await lab.models.ready(model, tell)
            except NotHere as error:
                raise LabError(
                    f"This map shows what {model} sees, a model that is not offered here: choose another map."
                ) from error
            precision = lab.engine.predictor(weights, drawn.origin.view.size).precision

            def work() -> Answer:
                return class_maps.placed(name, drawn, weights, lab.pictures.read(asked.photo), precision)

            found = await lab.engine.lane.run(work, owner=owner_of(request, asked.photo), tell=tell)
            return found | {"photo": asked.photo}

        return await slow(request, job)

    return router
