"""The page itself: one document, its scripts and styles under an address of their version, and its facts."""

import base64
import hashlib
import html
import json
import os
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from app import example_clips, following, objects, photos
from app.class_maps import GROUP_COLORS
from app.lab import Lab
from app.lanes import in_thread
from app.routes.asking import Answer
from app.routes.clips import limits_in_words
from app.view import COLORMAPS, DIVERGING, PIN_COLORS, SUMMARY_COLORS
from dino_model import images, photographs
from segmentation.drawing import color_table, head_colors
from segmentation.labels import palette

STATIC = Path(__file__).parents[1] / "static"
SIZES = (224, 336, 480, 640)
MODEL_CARD = (
    "The embedded model is a ViT of 6 blocks and 6 heads with patches of 8 pixels: 2.7 million parameters. "
    "This project trained it with DINO on 7,449 pictures of Caltech-101 and without their labels; its card, "
    "dino_model/embedded/card.md, tells how and how well. Apache 2.0."
)
CLIP_FILES = "video/*,.zip,.gif,.webp,.png"


class VersionedFiles(StaticFiles):
    """Files that never change at their address, for that names their version."""

    def file_response(
        self,
        full_path: os.PathLike[str] | str,
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """As `StaticFiles`, to be kept by the browser."""
        answer = super().file_response(full_path, stat_result, scope, status_code)
        answer.headers["cache-control"] = "public, max-age=31536000, immutable"
        return answer


@cache
def version() -> str:
    """Follows from the content of every file in `STATIC`."""
    content = hashlib.blake2b(digest_size=6)
    for path in sorted(STATIC.rglob("*")):
        if path.is_file():
            content.update(
                f"{path.relative_to(STATIC)}\0{path.stat().st_size}\0".encode() + path.read_bytes()
            )
    return content.hexdigest()


def routes(lab: Lab) -> APIRouter:
    """The document at the root, and api/facts."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def document(request: Request) -> HTMLResponse:
        facts = await in_thread(lambda: facts_of(lab))
        # Told as JSON in the document: no second question before the page can begin. `<` could end it.
        told = json.dumps(facts, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
        text = (STATIC / "index.html").read_text(encoding="utf-8")
        text = text.replace("{{static}}", html.escape(f"static/{version()}")).replace("{{facts}}", told)
        text = text.replace("{{address}}", html.escape(str(request.base_url)))
        return HTMLResponse(text, headers={"Cache-Control": "no-cache"})

    @router.get("/api/facts")
    async def facts() -> Answer:
        return await in_thread(lambda: facts_of(lab))

    return router


def facts_of(lab: Lab) -> Answer:
    """What the page must know to begin, and lists that grow while it is open."""
    maps = lab.maps.told()
    start = vars(lab.start) | {"example": lab.start.photo, "map": maps[0]["name"] if maps else None}
    return {
        "version": version(),
        "start": start,
        "models": [
            {"name": name, "label": choice.label, "remote": choice.remote, "bytes": None}
            for name, choice in lab.models.offered().items()
        ],
        "sizes": sorted({*SIZES, lab.start.size}),
        "examples": [{"photo": name, "pin": photos.pin(name)} | _credit(name) for name in photos.EXAMPLES],
        "credits": [
            _credit(name) for name in example_clips.photographs_used() if name not in photos.EXAMPLES
        ],
        "card": MODEL_CARD,
        "clips": [{"clip": name, "title": example.title} for name, example in example_clips.EXAMPLES.items()],
        "maps": maps,
        "groups": [{"name": name, "color": color} for name, color in GROUP_COLORS.items()],
        "limits": {
            "uploadBytes": lab.limits.max_upload_bytes,
            "clip": limits_in_words(lab.limits),
            "objects": following.MAX_OBJECTS,
            "found": objects.MOST_OBJECTS,
            "patches": lab.limits.max_patches,
        },
        "kinds": {"photo": ",".join(sorted(images.SUFFIXES)), "clip": CLIP_FILES},
        "colors": colors(),
    }


def _credit(name: str) -> Answer:
    """Whose a photograph is."""
    one = photographs.table()[name]
    return {"title": one.title, "author": one.author, "licence": one.licence, "source": one.source}


@cache
def colors() -> Answer:
    """What is drawn with: colour maps of 256 × 3 bytes in base64, and the colours of everything else."""
    return {
        "colormaps": {name: base64.b64encode(color_table(name).tobytes()).decode() for name in COLORMAPS},
        "heads": head_colors(24).tolist(),
        "summary": SUMMARY_COLORS,
        "diverging": DIVERGING,
        "pins": PIN_COLORS,
        "objects": objects.COLORS.tolist(),
        "clipObjects": following.COLORS.tolist(),
        "palette": palette()[: following.MAX_OBJECTS + 1].tolist(),
    }
