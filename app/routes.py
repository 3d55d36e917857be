"""Bytes for the browser: photographs, a block's arrays, files to download. Gradio carries only the events."""

import io
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Response
from PIL import Image

from app.downloads import FILES
from app.engine import Encoding, Engine, LabError
from app.view import PCA, Quantity, View, maps_of, principal_colors

PICTURE_SIDE = 1600  # pixels of the long side that a screen is given
PRIVATE = {"Cache-Control": "private, no-store"}  # somebody's photograph: no proxy keeps it


def encoding_routes(engine: Engine) -> APIRouter:
    """Addresses under /lab/encodings/TOKEN.

    `picture.jpg`; the arrays of a block counted from 0: `blocks/BLOCK`, `tokens/BLOCK` and
    `colors/BLOCK?quantity=key-pca`, little-endian, their shapes told at each route; and every name of
    `downloads.FILES` with a `View` as its query.
    """
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
        """Float16: queries, then keys, each [heads, tokens, d]."""
        queries, keys = engine.queries_keys(encoding, block)
        return _array(np.stack([queries, keys]), "<f2")

    @router.get("/tokens/{block}")
    def tokens(encoding: Annotated[Encoding, Depends(behind)], block: int) -> Response:
        """Float16: every token after the block and the final norm, [tokens, width]."""
        return _array(engine.features(encoding, block), "<f2")

    @router.get("/colors/{block}")
    def colors(encoding: Annotated[Encoding, Depends(behind)], block: int, quantity: Quantity) -> Response:
        """Float32: principal components of the patches as colours from 0 to 1, [rows, columns, 3]."""
        if quantity not in PCA:
            raise LabError(f"Only {' and '.join(PCA)} are colours.")
        return _array(principal_colors(engine, encoding, block, quantity), "<f4")

    @router.get("/{file}")
    def download(
        encoding: Annotated[Encoding, Depends(behind)], view: Annotated[View, Depends()], file: str
    ) -> Response:
        if file not in FILES:
            raise HTTPException(404, f"There is no file of that name: choose one of {', '.join(FILES)}.")
        media_type, make = FILES[file]
        content = make(encoding, maps_of(engine, encoding, view), view)
        named = {"Content-Disposition": f'attachment; filename="{encoding.photo.stem}-{file}"'}
        return Response(content, media_type=media_type, headers=PRIVATE | named)

    return router


def _array(values: np.ndarray, kind: str) -> Response:
    """The bytes of an array, converted to `kind`."""
    return Response(values.astype(kind).tobytes(), media_type="application/octet-stream", headers=PRIVATE)


def screen_jpeg(picture: np.ndarray) -> bytes:
    """A picture for the screen: at most `PICTURE_SIDE` pixels long."""
    image = Image.fromarray(picture)
    image.thumbnail((PICTURE_SIDE, PICTURE_SIDE), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=90)
    return buffer.getvalue()
