"""Class map: the classes of a collection as a model sees them, and a visitor's picture among them."""

import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
from fastapi import APIRouter, HTTPException, Response
from fastapi.responses import FileResponse, JSONResponse
from numpy.typing import NDArray

from app import photos
from app.engine import Engine, LabError
from app.photos import EXAMPLES, Photo
from app.tabs import Start, Tab, chooser, stage
from app.tabs.stage import MODEL_TURN, STATIC, sent_photo
from dino_model import class_map_files
from dino_model.class_map import ClassMap, feature_of, place, weights_fingerprint
from dino_model.class_names import GROUPS

SHIPPED = STATIC / "maps"
FILES = {class_map_files.CSV: "text/csv", class_map_files.THUMBNAILS: "image/webp"}


def build(page: gr.Blocks, engine: Engine, start: Start) -> None:
    """Draw the tab and wire its events."""
    maps = available(engine.models_dir)
    first = next(iter(maps))
    with chooser.row("map"):
        photo = chooser.photograph("map", "Place a photograph")
        chosen = gr.Dropdown(
            titles(maps), value=first, label="Map", elem_id="map-name", elem_classes="lab-list", scale=2
        )
    facts = board_facts() | {"maxBytes": engine.limits.max_upload_bytes}
    board = stage.draw("class_map", ["open"], facts, {"map": first})

    def open_file(path: Path, name: str) -> dict[str, Any]:
        return placed(engine, maps, name, sent_photo(engine, path), start.size)

    def open_asked(name: str, event: gr.EventData) -> dict[str, Any]:
        asked = event._data
        if asked.get("example") in EXAMPLES:
            return placed(engine, maps, name, photos.example(asked["example"]), start.size)
        return placed_from_explore(engine, maps, name, str(asked.get("token")), start.size)

    photo.upload(open_file, [photo, chosen], board, **MODEL_TURN)
    board.open(open_asked, chosen, board, **MODEL_TURN)
    chosen.change(lambda name: {"map": name}, chosen, board, queue=False, api_visibility="private")


@cache
def available(models_dir: Path | None) -> Mapping[str, Path]:
    """Folders of the maps that visitors may choose from, by name: those that ship, and those in a folder.

    A damaged map is left out; the terminal says why, once.
    """
    found = [
        file.parent for root in (SHIPPED, models_dir) if root for file in sorted(root.glob("*/map.json"))
    ]
    maps: dict[str, Path] = {}
    for folder in found:
        try:
            opened(folder)
            maps[folder.name] = folder
        except (OSError, ValueError) as error:
            print(f"left out of the page: {error}", file=sys.stderr)
    return maps


@lru_cache
def opened(folder: Path) -> ClassMap:
    """The map in a folder, read once.

    Raises:
        OSError, ValueError: as `class_map_files.read`.
    """
    return class_map_files.read(folder)


def titles(maps: Mapping[str, Path]) -> list[tuple[str, str]]:
    """What a visitor reads of each map, and its name."""
    drawn = {name: opened(folder) for name, folder in maps.items()}
    return [
        (f"{name} · {len(one.classes):,} classes · {one.origin.model}", name) for name, one in drawn.items()
    ]


def board_facts() -> dict[str, Any]:
    """What the browser is told once: groups with their colours, and the examples."""
    colored = zip(GROUPS, class_map_files.COLORS, strict=True)
    return {
        "groups": [{"name": name, "color": color} for name, color in colored],
        "examples": stage.examples(),
    }


def placed(engine: Engine, maps: Mapping[str, Path], name: str, photo: Photo, size: int) -> dict[str, Any]:
    """Where a photograph falls on a map, or one sentence why it cannot be told.

    Args:
        engine: lends the map's model.
        maps: see `available`.
        name: of the map.
        photo: the photograph.
        size: of a predictor that is likely to be loaded; the map's own view is what counts.
    """
    try:
        drawn = opened(chosen_map(maps, name))
        found = place(_feature(engine, drawn, photo, size), drawn)
    except LabError as error:
        return refusal(error)
    return {"map": name, "placed": {"name": photo.name, **asdict(found)}, "at": time.time()}


def placed_from_explore(
    engine: Engine, maps: Mapping[str, Path], name: str, token: str, size: int
) -> dict[str, Any]:
    """`placed` for the photograph that lies open in Explore; refused where another model shows it there."""
    try:
        encoding = engine.encoding(token)
        model = opened(chosen_map(maps, name)).origin.model
    except LabError as error:
        return refusal(error)
    if encoding.model != model:
        told = (
            f"This map shows what {model} sees, Explore what {encoding.model} sees: "
            f"choose {model} there, or another map here."
        )
        return refusal(LabError(told))
    return placed(engine, maps, name, encoding.photo, size)


def _feature(engine: Engine, drawn: ClassMap, photo: Photo, size: int) -> NDArray[np.float32]:
    """A photograph as the map's model sees it: [width]."""
    origin = drawn.origin
    if origin.model not in engine.models:
        raise LabError(
            f"This map shows what {origin.model} sees, a model that is not offered here: choose another map."
        )
    with engine.borrow(origin.model, size) as predictor:
        if weights_fingerprint(predictor.model.backbone) != origin.weights:
            raise LabError(
                f"This map was drawn with other weights of {origin.model} than are used here: "
                "draw it again with python -m dino_model class-map."
            )
        return feature_of(predictor.model, photo.read(), origin.view, predictor.precision)


def chosen_map(maps: Mapping[str, Path], name: str) -> Path:
    """The folder of a map.

    Raises:
        LabError: no such map.
    """
    if name not in maps:
        raise LabError("There is no map of that name here: choose one from the list.")
    return maps[name]


def refusal(error: LabError) -> dict[str, Any]:
    """What the board is told instead; the time makes it news even when it is the same again."""
    return {"error": str(error), "at": time.time()}


def map_routes(engine: Engine) -> APIRouter:
    """Addresses under /lab/class-maps/NAME: the map as data, as a table, and its thumbnails."""
    router = APIRouter(prefix="/lab/class-maps/{name}")
    maps = available(engine.models_dir)

    @router.get("/map.json")
    def content(name: str) -> JSONResponse:
        """All that is drawn; features stay here."""
        drawn = opened(chosen_map(maps, name))
        told = class_map_files.as_json(drawn) | {"features": None, "said": said(drawn)}
        return JSONResponse(told)

    @router.get("/{file}")
    def download(name: str, file: str) -> Response:
        path = chosen_map(maps, name) / file
        if file not in FILES or not path.is_file():
            raise HTTPException(404, f"There is no such file: choose one of {', '.join(FILES)}.")
        return FileResponse(path, media_type=FILES[file], filename=f"{name}-{file}")

    return router


def said(drawn: ClassMap) -> list[tuple[str, str]]:
    """Terms and descriptions below the map."""
    view = drawn.origin.view
    pictures = sum(point.pictures for point in drawn.classes)
    return [
        ("Data", f"{drawn.origin.data}: {len(drawn.classes):,} classes, {pictures:,} pictures"),
        ("Model", f"{drawn.origin.model}, short side {view.short_side}, centre crop {view.size} pixels"),
        ("Drawn by", str(drawn.protocol)),
        ("Quality", str(drawn.overlap)),
    ]


TAB = Tab("Class map", build, style="class_map.css", routes=map_routes)
