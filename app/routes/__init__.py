"""Addresses of the lab, one module for each room; `asking` is how all of them are asked.

To add a room, write a module with `routes(lab)` and name it in `ROOMS`.
"""

from collections.abc import Callable

from fastapi import APIRouter

from app.lab import Lab
from app.routes import (
    clips,
    comparing,
    encodings,
    maps,
    matching,
    page,
    photographs,
    programs,
    runs,
    sheets,
)

ROOMS: tuple[Callable[[Lab], APIRouter], ...] = (
    page.routes,
    photographs.routes,
    encodings.routes,
    comparing.routes,
    sheets.routes,
    matching.routes,
    clips.routes,
    clips.following_routes,
    maps.routes,
    runs.routes,
    programs.routes,
)
