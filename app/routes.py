"""Bytes for the browser: photographs, queries and keys, files to download. Gradio carries only the events."""

import io
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Response
from PIL import Image

from app.engine import Encoding, Engine, LabError
from app.view import FILES, View

PICTURE_SIDE = 1600  # pixels of the long side that a screen is given
PRIVATE = {"Cache-Control": "private, no-store"}  # somebody's photograph: no proxy keeps it


def encoding_routes(engine: Engine) -> APIRouter:
    """Addresses under /lab/encodings/TOKEN."""
    router = APIRouter(prefix="/lab/encodings/{token}")

    def behind(token: str) -> Encoding:
        try:
            return engine.encoding(token)
        except LabError as error:
            raise HTTPException(404, str(error)) from error

    @router.get("/picture.jpg")
    def picture(encoding: Annotated[Encoding, Depends(behind)]) -> Response:
        return Response(screen_jpeg(encoding.picture), media_type="image/jpeg", headers=PRIVATE)

    @router.get("/blocks/{block}")
    def block(encoding: Annotated[Encoding, Depends(behind)], block: int) -> Response:
        """Float16, little-endian: queries, then keys, each [heads, tokens, d]."""
        queries, keys = engine.queries_keys(encoding, block)
        content = np.stack([queries, keys]).astype("<f2").tobytes()
        return Response(content, media_type="application/octet-stream", headers=PRIVATE)

    @router.get("/{file}")
    def download(
        encoding: Annotated[Encoding, Depends(behind)], view: Annotated[View, Depends()], file: str
    ) -> Response:
        if file not in FILES:
            raise HTTPException(404, f"There is no file of that name: choose one of {', '.join(FILES)}.")
        media_type, make = FILES[file]
        content = make(encoding, engine.queries_keys(encoding, view.block), view)
        named = {"Content-Disposition": f'attachment; filename="{encoding.photo.stem}-{file}"'}
        return Response(content, media_type=media_type, headers=PRIVATE | named)

    return router


def screen_jpeg(picture: np.ndarray) -> bytes:
    """A picture for the screen: at most `PICTURE_SIDE` pixels long."""
    image = Image.fromarray(picture)
    image.thumbnail((PICTURE_SIDE, PICTURE_SIDE), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=90)
    return buffer.getvalue()
