"""The tab Video: mark objects on frames of a clip, track them through it, and download the masks."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import gradio as gr
from pydantic import Field

from app.handlers.own import rail
from app.limits import fairness
from app.limits.errors import ClientValue, LabError
from app.page import HEAVY, LIGHT, PRIVATE, Page, export_button, inspector, split, work
from app.store.clips import COLORS, FILES, MAX_OBJECTS, from_runs, limits_in_words
from app.store.images import FIRST, clean_name
from segmentation.example_clips import EXAMPLES
from segmentation.labels import palette

TITLE = "Video"
USES = ("model", "size")
HINT = (
    "Click an object in any frame: patches with similar keys are marked. Track it, correct any frame, then "
    "track again: tracking runs forward and backward from every marked frame."
)
MAX_TRACKED = 4
"""Clips that are tracked at the same time; they take turns at the model after every frame."""


class FrameMask(ClientValue):
    """Objects of a frame as run lengths, and which of them it decides: one without a pixel ends there."""

    frame: int = Field(ge=0)
    runs: list[int]
    objects: list[int] = Field(max_length=MAX_OBJECTS)


class Marking(ClientValue):
    """Marked objects: the clip, the number of the run in the browser, and the masks of frames."""

    clip: str
    run: int
    marks: list[FrameMask] = Field(max_length=1000)


class FileRequest(ClientValue):
    """Tracked frames: name of the result, number of frames on the page, title of the clip, and the file."""

    id: str
    done: int = Field(ge=1)
    name: str
    file: Literal["overlay.webm", "davis.zip", "masks.json"]


def build(page: Page) -> None:
    """Build the tab inside its `gr.Tab`."""
    clip = gr.Textbox(FIRST, visible="hidden", elem_id="clip")
    with gr.Column(elem_classes="rail", min_width=0):
        examples = [(name, one.title, f"lab/clips/{name}/0.jpg") for name, one in EXAMPLES.items()]
        clips = rail(page, "clip", examples, elem_id="clips", start=clip.value, label="Open or drop clips")
    clips.select(None, None, clip, js="() => viewOf('clips').chosen")
    with work():
        value = _clip_value(page, FIRST)
        view = page.view("clip", value, elem_id="tracking", aside="video-aside", encoding=None, tracked=None)
    with inspector():
        page.aside("video-aside")
        reach = gr.Slider(50, 99, value=90, step=1, label="Similarity kept (%)")
        gr.Markdown(HINT, elem_classes="note")
        with gr.Row():
            track = gr.Button("Track", variant="primary", min_width=110, elem_id="track")
            stop = gr.Button("Stop", min_width=80, elem_id="stop-tracking")
        export_button("tracking")
        gr.Markdown(limits_in_words(page.backend.limits), elem_classes="note")

    page.save(view.exported, partial(_file, page), "viewOf('tracking').exportRequest")
    inputs = [clip, page.model, page.size]
    clip.change(partial(_open, page), clip, view, trigger_mode="always_last", **LIGHT)
    encode = page.in_turn(partial(_encode, page), lambda _, *choice: page.loader(*choice))
    shown_frame = "(_, ...rest) => [viewOf('tracking').number, ...rest]"
    quiet = HEAVY | {"show_progress": "hidden"}  # otherwise the view fades at every frame
    view.shown(encode, [view, *inputs], view, js=shown_frame, **quiet)
    gr.on([page.model.change, page.size.change], None, js="() => viewOf('tracking')?.showAgain()", **LIGHT)
    reach.change(None, reach, js="(reach) => viewOf('tracking')?.set({ reach })", **LIGHT)

    async def track_marked(
        marking: Any, name: str, model: str, size: int, request: gr.Request
    ) -> AsyncIterator[Any]:
        async for answer in track_objects(page, marking, name, model, size, request):
            yield gr.HTML(tracked=answer)

    job = track.click(
        track_marked,
        [view, *inputs],
        view,
        js="(_, ...rest) => [viewOf('tracking').begin(), ...rest]",
        concurrency_id="tracking",
        concurrency_limit=MAX_TRACKED,
        show_progress="hidden",  # the view has a status line and stays bright
        **PRIVATE,
    )
    job.failure(None, js="() => viewOf('tracking').stop()", **LIGHT)
    stop.click(None, js="() => viewOf('tracking').stop()", cancels=[job], **LIGHT)


async def track_objects(
    page: Page, marking: Any, name: Any, model: Any, size: Any, request: gr.Request
) -> AsyncIterator[dict[str, Any]]:
    """Track a client's `Marking` of a clip and yield progress; other requests use the model between steps."""
    token, _ = split(name)
    marked = Marking.of(marking)
    if marked.clip != token:
        raise LabError("The marked objects belong to another clip: mark them again.")
    clip = page.backend.clips.get(token)
    masks = {mark.frame: from_runs(mark.runs, clip.size) for mark in marked.marks}
    objects = {mark.frame: mark.objects for mark in marked.marks}
    steps = len(clip.frames) + max(masks, default=0) + 1 - len(masks)  # frames without a mask, backward, too
    identity, step = "", 0
    results = page.backend.track(clip, masks, model, size, fairness.client_of(request), objects)
    async with contextlib.aclosing(results):  # type: ignore[type-var]
        async for found in results:
            identity = identity or page.backend.clips.put(found)
            step, done = step + 1, len(found.masks)
            state = "done" if done == len(clip.frames) else "running"
            yield {"run": marked.run, "id": identity, "done": done, "state": state, "progress": step / steps}


def _open(page: Page, name: Any) -> Any:
    return gr.HTML(value=_clip_value(page, name), encoding=None, tracked=None)


def _encode(page: Page, number: Any, name: Any, model: Any, size: Any) -> Any:
    """Encode a frame with the model of the header: a click marks patches with similar keys."""
    token, _ = split(name)
    clip = page.backend.clips.get(token)
    if type(number) is not int or not 0 <= number < len(clip.frames):
        raise LabError("The clip has no such frame: open it again.")
    image = page.backend.clips.image_of(clip, number)
    page.backend.encode(image, model, size)
    return gr.HTML(encoding=page.show_image(image, model, size) | {"clip": token, "frame": number})


def _clip_value(page: Page, name: Any) -> dict[str, Any]:
    token, title = split(name)
    clip = page.backend.clips.get(token)
    height, width = clip.size
    return {
        "clip": token,
        "name": EXAMPLES[token].title if token in EXAMPLES else title or "clip",
        "frames": f"lab/clips/{token}",
        "width": width,
        "height": height,
        "count": len(clip.frames),
        "fps": clip.fps,
        "note": clip.note,
        "colors": COLORS.tolist(),
        "palette": palette()[: MAX_OBJECTS + 1].tolist(),
    }


def _file(page: Page, seen: Any) -> tuple[str, bytes]:
    """Write a download with the frames that the page has shown: the server may have finished more."""
    if not isinstance(seen, dict) or not seen.get("id") or not seen.get("done"):
        raise LabError("Nothing is tracked yet: mark an object and track it first.")
    request = FileRequest.of(seen)
    found = page.backend.clips.tracked_clip(request.id)
    name = found.clip.name if found.clip.name in EXAMPLES else clean_name(request.name) or "clip"
    clip = replace(found.clip, name=name)
    shown = replace(found, clip=clip, masks=found.masks[: request.done])
    return f"{clip.stem}-{request.file}", FILES[request.file](shown)
