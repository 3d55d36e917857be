"""What a model makes of a photograph: asked for, told, and its arrays, files and objects by its token."""

import base64
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, TypeVar

import numpy as np
from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app import downloads, objects
from app.downloads import Scene
from app.engine import Encoding, Key
from app.errors import LabError, NotHere
from app.lab import Lab
from app.lanes import Tell
from app.limits import SIZES
from app.objects import Recipe
from app.photos import for_screen
from app.routes.asking import Answer, file_named, owner_of, slow, unless_left
from app.view import PCA, Quantity, View, maps_of, principal_colors

Result = TypeVar("Result")
Made = TypeVar("Made")


class Asked(BaseModel):
    """A JSON body: nothing is converted, nothing else is taken."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Encode(Asked):
    """Which photograph, seen by which model at which resolution."""

    photo: str
    model: str = "embedded"
    size: int = Field(224, ge=SIZES[0], le=SIZES[1], description="pixels of the short side")


class Looks:
    """How routes ask for encodings and compute from them, until who asked leaves."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    async def of(self, request: Request, token: str) -> Encoding:
        """The encoding behind a token."""
        owner = owner_of(request, Key.of(token).photo)
        return await unless_left(request, self.lab.engine.encoding(token, owner=owner))

    async def compute(
        self, request: Request, token: str, work: Callable[[Encoding], Result]
    ) -> tuple[Encoding, Result]:
        """What `work` makes of the encoding behind a token, while nobody else reads from any."""
        encoding = await self.of(request, token)
        owner = owner_of(request, encoding.key.photo)
        done = self.lab.engine.reading.run(partial(work, encoding), owner=owner)
        return encoding, await unless_left(request, done)

    async def draw(self, request: Request, token: str, work: Callable[[], Result]) -> Result:
        """What `work` draws about the encoding behind a token, beside the model."""
        owner = owner_of(request, Key.of(token).photo)
        return await unless_left(request, self.lab.drawing.run(work, owner=owner))


def routes(lab: Lab) -> APIRouter:
    """Addresses api/encode and api/encodings/TOKEN: the arrays of a block are little-endian."""
    router, looks = APIRouter(prefix="/api"), Looks(lab)

    @router.post("/encode", tags=["programs"])
    async def encode(request: Request, asked: Encode) -> Response:
        """Let a model look at a photograph; the answer's token stands for what came of it.

        With `Accept: application/x-ndjson`, lines tell the place in the queue and of a download.
        """
        owner = owner_of(request, asked.photo)

        async def job(tell: Tell) -> Answer:
            found = lab.engine.encode(asked.photo, asked.model, asked.size, tell=tell, owner=owner)
            return told(await found)

        return await slow(request, job)

    encodings = APIRouter(prefix="/encodings/{token}", include_in_schema=False)

    @encodings.get("")
    async def again(request: Request, token: str) -> Answer:
        return told(await looks.of(request, token))

    @encodings.get("/blocks/{block}")
    async def block(request: Request, token: str, block: int) -> Response:
        """Float16: queries, then keys, each [heads, tokens, d]."""
        _, found = await looks.compute(request, token, lambda one: np.stack(one.queries_keys(block)))
        return _array(found, "<f2")

    @encodings.get("/tokens/{block}")
    async def tokens(request: Request, token: str, block: int) -> Response:
        """Float16: every token after the block and the final norm, [tokens, width]."""
        _, found = await looks.compute(request, token, lambda one: one.features(block))
        return _array(found, "<f2")

    @encodings.get("/rollout/{block}")
    async def rollout(request: Request, token: str, block: int) -> Response:
        """Float16: how much of every token comes from which, [tokens, tokens]."""
        _, found = await looks.compute(request, token, lambda one: one.rollout(block))
        return _array(found, "<f2")

    @encodings.get("/colors/{block}")
    async def colors(request: Request, token: str, block: int, quantity: Quantity) -> Response:
        """Float32: principal components of the patches as colours from 0 to 1, [rows, columns, 3]."""
        if quantity not in PCA:
            raise LabError(f"Only {' and '.join(PCA)} are colours.")
        _, found = await looks.compute(request, token, lambda one: principal_colors(one, block, quantity))
        return _array(found, "<f4")

    @encodings.get("/files/{file}")
    async def download(
        request: Request,
        token: str,
        file: str,
        view: Annotated[View, Depends()],
        name: str = "photograph",
        full: bool = False,
    ) -> Response:
        """A file of a view; pictures at a screen's size, or at the photograph's own when `full`."""
        media_type, make = known_file(downloads.FILES, file)
        encoding, maps = await looks.compute(request, token, lambda one: maps_of(one, view))

        def draw() -> bytes:
            picture = lab.pictures.read(encoding.key.photo)
            return make(Scene(encoding, view, maps, picture if full else for_screen(picture), name))

        content = await looks.draw(request, token, draw)
        named = file_named(encoding.key.photo if encoding.example else name, file)
        return Response(content, media_type=media_type, headers=named)

    router.include_router(encodings)
    router.include_router(_objects(lab, looks))
    return router


def _objects(lab: Lab, looks: Looks) -> APIRouter:
    """Addresses api/encodings/TOKEN/objects: what was found, as data and as files."""
    router = APIRouter(prefix="/encodings/{token}/objects", include_in_schema=False)

    @router.get("")
    async def found(request: Request, token: str, recipe: Annotated[Recipe, Depends()]) -> Answer:
        """Labels as the stage shows them, base64 of a byte per cell; seeds as row and column of a patch."""
        encoding, discovered = await find(lab, looks, request, token, recipe)
        labels = objects.labels_of(discovered, encoding.grid)
        if recipe.refined:

            def refine() -> objects.Labels:
                picture = lab.pictures.read(encoding.key.photo)
                return objects.refine(labels, picture, objects.refined_size(picture))

            labels = await looks.draw(request, token, refine)
        return vars(recipe) | {
            "token": token,
            "rows": labels.shape[0],
            "columns": labels.shape[1],
            "labels": base64.b64encode(labels.tobytes()).decode(),
            "seeds": [one.seed for one in discovered],
        }

    @router.get("/{file}")
    async def download(
        request: Request,
        token: str,
        file: str,
        recipe: Annotated[Recipe, Depends()],
        name: str = "photograph",
    ) -> Response:
        media_type, make = known_file(objects.FILES, file)
        encoding, discovered = await find(lab, looks, request, token, recipe)

        def draw() -> bytes:
            picture = lab.pictures.read(encoding.key.photo)
            labels = objects.labels_of(discovered, encoding.grid)
            return make(picture, objects.in_pixels(labels, picture, recipe.refined))

        content = await looks.draw(request, token, draw)
        called = encoding.key.photo if encoding.example else name
        return Response(content, media_type=media_type, headers=file_named(called, f"{recipe.method}-{file}"))

    return router


async def find(
    lab: Lab, looks: Looks, request: Request, token: str, recipe: Recipe
) -> tuple[Encoding, list[objects.Discovery]]:
    """Objects behind a token; looked for one photograph at a time, whoever asks."""
    encoding, last = await looks.compute(request, token, lambda one: one.queries_keys(one.blocks - 1))
    work = partial(objects.find, encoding, last, recipe)
    owner = owner_of(request, encoding.key.photo)
    return encoding, await unless_left(request, lab.finding.run(work, owner=owner))


def known_file(files: Mapping[str, tuple[str, Made]], file: str) -> tuple[str, Made]:
    """Media type and maker of a download.

    Raises:
        NotHere: no such file.
    """
    if file not in files:
        raise NotHere(f"There is no file of that name: choose one of {', '.join(files)}.", "file")
    return files[file]


def told(encoding: Encoding) -> Answer:
    """What a browser or a program is told of an encoding: numbers and words; the rest it fetches."""
    key, predictor = encoding.key, encoding.predictor
    (height, width), (rows, columns) = encoding.picture_size, encoding.grid
    seen = predictor.input_size
    return {
        "token": key.token,
        "photo": key.photo,
        "model": key.model,
        "size": key.size,
        "width": width,
        "height": height,
        "rows": rows,
        "columns": columns,
        "patch_size": predictor.patch_size,
        "heads": predictor.heads,
        "blocks": encoding.blocks,
        "prefix": encoding.prefix_tokens,
        "random": key.model.startswith("random:"),
        "example": encoding.example,
        "source": predictor.model.source,
        "precision": predictor.precision,
        "device": str(predictor.device),
        "input": seen,
        "seconds": encoding.seconds,
        "facts": [
            ["Model", key.model],
            ["Weights", predictor.model.source],
            ["Network", f"{encoding.blocks} blocks of {predictor.heads} heads"],
            ["Picture", f"{width} × {height} pixels, seen at {seen[1]} × {seen[0]}"],
            ["Grid", f"{columns} × {rows} patches of {predictor.patch_size} pixels"],
            ["Precision", f"{predictor.precision} on {predictor.device}"],
            ["Encoded in", f"{encoding.seconds:.2f} s"],
        ],
    }


def _array(values: np.ndarray, kind: str) -> Response:
    """The bytes of an array, converted to `kind`."""
    return Response(values.astype(kind).tobytes(), media_type="application/octet-stream")
