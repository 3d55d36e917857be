"""Video: objects marked on the first frame of a clip, and followed through it."""

import base64
import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import gradio as gr
from fastapi import APIRouter, Depends, HTTPException, Response
from PIL import Image

from app import clips
from app.clip_files import FILES
from app.clips import EXAMPLES, FRAME_SIDE, Clip
from app.engine import Engine, LabError
from app.following import COLORS, MAX_OBJECTS, Following, Held, from_runs, propagate, shelf_of
from app.limits import Limits
from app.routes import PRIVATE
from app.tabs import Start, Tab, chooser, stage
from segmentation.export import palette

FILE_TYPES = ("video", ".zip", ".gif", ".webp", ".png")
FIRST_EXAMPLE = "coffee"
THUMBNAIL_HEIGHT = 48

Answer = tuple[dict[str, Any], str | None]
"""What the stage is told, and the token of the clip that the visitor holds from now on."""


def build(page: gr.Blocks, engine: Engine, start: Start) -> None:
    """Draw the tab and wire its events."""
    with chooser.row("video"):
        file = chooser.photograph("video", "Choose a clip", FILE_TYPES)
        model = chooser.model("video-model", engine, start.model)
        size = chooser.size("video-size", start.size)
    shown = stage.draw("video", ["example", "follow", "cancel"], stage_facts(engine.limits))
    held = gr.State(None, time_to_live=3600)  # token of the clip that this visitor holds

    def open_file(path: Path, model: str, size: int, held: str | None) -> Answer:
        return open_clip(engine, lambda: clips.read(path, engine.limits), model, size, held)

    def open_example(model: str, size: int, held: str | None, event: gr.EventData) -> Answer:
        name = event._data.get("name")
        name = name if name in EXAMPLES else FIRST_EXAMPLE
        return open_clip(engine, lambda: clips.example(name), model, size, held)

    def look_again(model: str, size: int, held: str | None) -> dict[str, Any]:
        try:
            clip = shelf_of(engine).get(held).clip
            return {"encoding": encoding_of(engine, clip, model, size)}
        except LabError as error:
            return stage.refusal(error)

    def follow_marked(model: str, size: int, event: gr.EventData) -> Iterator[dict[str, Any]]:
        yield from follow(engine, event._data.get("clip"), event._data.get("runs"), model, size)

    def cancel(event: gr.EventData) -> dict[str, Any]:
        return stop(engine, event._data.get("clip"))

    shared: dict[str, Any] = {"trigger_mode": "multiple", "api_visibility": "private"}
    opened: dict[str, Any] = {"outputs": [shown, held], "concurrency_id": "clip", "concurrency_limit": 1}
    file.upload(open_file, [file, model, size, held], **opened, **shared)
    shown.example(open_example, [model, size, held], **opened, **shared)
    # One clip at a time is followed, beside the events of the other tabs: its frames and their photographs
    # take turns at the model, see `app.following.SharedFeatures`.
    following = shown.follow(
        follow_marked,
        [model, size],
        shown,
        concurrency_id="follow",
        concurrency_limit=1,
        show_progress="minimal",
        **shared,
    )
    shown.cancel(cancel, None, shown, cancels=[following], queue=False, show_progress="hidden", **shared)
    gr.on(
        [model.change, size.change],
        look_again,
        [model, size, held],
        shown,
        concurrency_id="model",
        concurrency_limit=1,
        **shared,
    )


def open_clip(engine: Engine, read: Any, model: str, size: int, held: str | None) -> Answer:
    """Read a clip for a visitor and look at its first frame; one sentence when that cannot be."""
    shelf = shelf_of(engine)
    try:
        clip = read()
        encoding = encoding_of(engine, clip, model, size)
        token = shelf.put(clip)
        stop(engine, held)
        return {"clip": clip_value(token, clip), "encoding": encoding}, token
    except LabError as error:
        return stage.refusal(error), held


def follow(engine: Engine, token: Any, runs: Any, model: str, size: int) -> Iterator[dict[str, Any]]:
    """Follow what a visitor marked; tells after every frame how far it came, or one sentence why not."""
    try:
        held = shelf_of(engine).get(token)
        began = time.perf_counter()
        for following in propagate(engine, held, from_runs(runs, held.clip.size), model, size):
            yield {"progress": progress_value(token, following, time.perf_counter() - began)}
    except LabError as error:
        yield stage.refusal(error)


def stop(engine: Engine, token: Any) -> dict[str, Any]:
    """End what is being followed through a clip; what is done stays."""
    try:
        held = shelf_of(engine).get(token)
    except LabError as error:
        return stage.refusal(error)
    held.stop()
    if held.following:
        return {"progress": progress_value(token, held.following, 0.0)}
    return {"progress": {"clip": token, "done": 0, "state": "cancelled", "left": 0, "at": time.time()}}


def encoding_of(engine: Engine, clip: Clip, model: str, size: int) -> dict[str, Any]:
    """What the browser needs to know of the first frame's encoding, to propose masks from its keys."""
    token = engine.encode(clip.first_frame, model, size)
    encoding = engine.encoding(token)
    rows, columns = encoding.grid
    return {
        "token": token,
        "key": "/".join(map(str, encoding.key)),
        "rows": rows,
        "columns": columns,
        "heads": encoding.heads,
        "blocks": encoding.blocks,
        "prefix": encoding.prefix_tokens,
        "facts": [
            ["Model", encoding.model],
            ["Grid", f"{columns} × {rows} patches of {encoding.patch_size} pixels"],
            ["Precision", f"{encoding.precision} on {encoding.device}"],
        ],
    }


def clip_value(token: str, clip: Clip) -> dict[str, Any]:
    """What the browser is told of a clip: numbers and words; frames it fetches by the token."""
    height, width = clip.size
    sent = "" if clip.sent_size == clip.size else f", sent as {clip.sent_size[1]} × {clip.sent_size[0]}"
    seconds = len(clip.frames) / clip.fps
    return {
        "token": token,
        "name": clip.name,
        "width": width,
        "height": height,
        "frames": len(clip.frames),
        "fps": clip.fps,
        "note": clip.note,
        "facts": [
            ["Clip", clip.name],
            ["Frames", f"{len(clip.frames)} of {width} × {height} pixels{sent}"],
            ["Length", f"{seconds:.1f} s at {clip.fps:.3g} frames a second"],
        ],
    }


def progress_value(token: str, following: Following, seconds: float) -> dict[str, Any]:
    """How far a clip has been followed, and what is left at the pace so far, in seconds."""
    done, frames = len(following.masks), len(following.clip.frames)
    pace = seconds / max(1, done - 1)  # the first frame's mask costs nothing
    left = 0.0 if following.state != "running" or done < 2 else pace * (frames - done)
    return {"clip": token, "done": done, "state": following.state, "left": left, "at": time.time()}


def stage_facts(limits: Limits) -> dict[str, Any]:
    """What the browser is told once: limits, colours, and the examples with their thumbnails."""
    return {
        "limits": limits_in_words(limits),
        "maxBytes": limits.max_upload_bytes,
        "objects": MAX_OBJECTS,
        "colors": COLORS.tolist(),
        "palette": palette()[: MAX_OBJECTS + 1].tolist(),
        "examples": [
            {"name": name, "title": example.title, "thumbnail": _thumbnail(clips.example(name))}
            for name, example in EXAMPLES.items()
        ],
        "first": FIRST_EXAMPLE,
    }


def limits_in_words(limits: Limits) -> str:
    """What a clip may be, told before it is sent."""
    return (
        f"A video, a zip of frames or an animated picture, up to {limits.max_upload_mb} MB and "
        f"{limits.max_frame_megapixels} million pixels a frame. The first {limits.max_frames} frames within "
        f"{limits.max_clip_seconds} seconds are used, at most {FRAME_SIDE} pixels wide or high."
    )


def clip_routes(engine: Engine) -> APIRouter:
    """Addresses under /lab/clips/TOKEN."""
    router = APIRouter(prefix="/lab/clips/{token}")

    def behind(token: str) -> Held:
        try:
            return shelf_of(engine).get(token)
        except LabError as error:
            raise HTTPException(404, str(error)) from error

    def done(held: Annotated[Held, Depends(behind)]) -> Following:
        return held.done

    @router.get("/frames/{number}.jpg")
    def frame(held: Annotated[Held, Depends(behind)], number: int) -> Response:
        return Response(_nth(held.clip.frames, number), media_type="image/jpeg", headers=PRIVATE)

    @router.get("/masks/{number}.png")
    def mask(following: Annotated[Following, Depends(done)], number: int) -> Response:
        """Palette PNG: the index of a colour is the number of an object, 0 is none."""
        return Response(_nth(following.masks, number), media_type="image/png", headers=PRIVATE)

    @router.get("/{file}")
    def download(following: Annotated[Following, Depends(done)], file: str) -> Response:
        if file not in FILES:
            raise HTTPException(404, f"There is no file of that name: choose one of {', '.join(FILES)}.")
        media_type, make = FILES[file]
        named = {"Content-Disposition": f'attachment; filename="{following.clip.stem}-{file}"'}
        return Response(make(following), media_type=media_type, headers=PRIVATE | named)

    return router


def _nth(files: list[bytes] | tuple[bytes, ...], number: int) -> bytes:
    if not 0 <= number < len(files):
        raise HTTPException(404, f"There is no frame {number}: there are 0 to {len(files) - 1}.")
    return files[number]


def _thumbnail(clip: Clip) -> str:
    """A small JPEG of the first frame as a data address."""
    image = Image.fromarray(clip.picture(0))
    image.thumbnail((2 * THUMBNAIL_HEIGHT * image.width // image.height, 2 * THUMBNAIL_HEIGHT))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


TAB = Tab("Video", build, style="video.css", routes=clip_routes)
