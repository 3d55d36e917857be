"""Clips: how they come in, their frames, and objects that are followed through them."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

import anyio.from_thread
import numpy as np
from anyio.lowlevel import current_token
from fastapi import APIRouter, Query, Request, Response
from PIL import Image
from pydantic import Field

from app import clip_files, following
from app.clips import FRAME_SIDE, Clip
from app.errors import NotHere
from app.example_clips import EXAMPLES
from app.files import jpeg
from app.following import Following, SharedFeatures, from_runs
from app.lab import Lab
from app.lanes import Tell, in_thread, silent
from app.limits import SIZES, Limits
from app.photos import clean_name
from app.routes.asking import Answer, file_named, owner_of, slow, unless_left, upload
from app.routes.encodings import Asked, known_file
from segmentation.propagation import Labels

THUMBNAIL_HEIGHT = 96


class Follow(Asked):
    """The first frame's labels as runs in reading order, [label, pixels, …], and which model looks."""

    runs: list[int]
    model: str = "embedded"
    size: int = Field(224, ge=SIZES[0], le=SIZES[1])


def routes(lab: Lab) -> APIRouter:
    """Addresses under api/clips."""
    router = APIRouter(prefix="/api/clips")

    @router.post("", tags=["programs"])
    async def send(request: Request, name: str = "clip") -> Answer:
        """Send a video, a zip of frames or an animated picture: the body is the file as it is.

        The answer's `clip` stands for it from now on, and its `photo` for the first frame.
        """
        name = clean_name(name) or "clip"
        async with upload(request, lab) as content:
            keep = partial(lab.clips.keep, content, name)
            token, clip = await unless_left(request, lab.reading.run(keep))
        return _told(lab, token, clip, name)

    @router.get("/{token}", include_in_schema=False)
    async def again(request: Request, token: str) -> Answer:
        clip = await found(request, token)
        return _told(lab, token, clip, EXAMPLES[token].title if token in EXAMPLES else "")

    @router.get("/{token}/frames/{number}.jpg", include_in_schema=False)
    async def frame(request: Request, token: str, number: int) -> Response:
        clip = await found(request, token)
        return Response(_nth(clip.frames, number), media_type="image/jpeg")

    @router.get("/{token}/thumbnail.jpg", include_in_schema=False)
    async def thumbnail(request: Request, token: str) -> Response:
        clip = await found(request, token)
        small = await unless_left(request, lab.engine.decoding.run(lambda: _thumbnail(clip)))
        headers = {"Cache-Control": "max-age=3600"} if token in EXAMPLES else None
        return Response(small, media_type="image/jpeg", headers=headers)

    async def found(request: Request, token: str) -> Clip:
        if token not in EXAMPLES:
            return lab.clips.get(token)
        return await unless_left(request, lab.engine.decoding.run(lambda: lab.clips.get(token)))

    @router.post("/{token}/follow", include_in_schema=False)
    async def follow(request: Request, token: str, asked: Follow) -> Response:
        """Follow objects; whoever leaves ends it, and what was done stays under its name."""

        async def job(tell: Tell) -> Answer:
            clip = await found(request, token)
            first_mask = from_runs(asked.runs, clip.size)
            owner = owner_of(request, token)
            name, done = await followed(lab, token, clip, first_mask, asked.model, asked.size, tell, owner)
            return _progress(name, done)

        return await slow(request, job)

    return router


def following_routes(lab: Lab) -> APIRouter:
    """Addresses under api/followings/FOLLOWING."""
    router = APIRouter(prefix="/api/followings/{following}", include_in_schema=False)

    @router.get("")
    async def state(following: str) -> Answer:
        one = lab.clips.following(following)
        return _progress(following, one) | {"state": one.state, "ids": one.ids}

    @router.get("/masks/{number}.png")
    async def mask(following: str, number: int) -> Response:
        """Palette PNG: the index of a colour is the number of an object, 0 is none."""
        masks = lab.clips.following(following).masks
        return Response(_nth(masks, number), media_type="image/png")

    @router.get("/files/{file}")
    async def download(
        request: Request,
        following: str,
        file: str,
        name: str = "clip",
        frames: Annotated[int | None, Query(ge=1)] = None,
    ) -> Response:
        """The first `frames` of what was followed, or all: more may be done than who left has seen."""
        media_type, make = known_file(clip_files.FILES, file)
        one = lab.clips.following(following)
        if not one.masks:
            raise NotHere("Nothing has been followed here yet: wait for the first frame.", "file")
        called = one.token if one.token in EXAMPLES else name
        named = replace(one, clip=replace(one.clip, name=called), masks=one.masks[:frames])
        work = lab.drawing.run(lambda: make(named), owner=owner_of(request, following))
        content = await unless_left(request, work)
        return Response(content, media_type=media_type, headers=file_named(called, file, "clip"))

    return router


async def followed(
    lab: Lab,
    token: str,
    clip: Clip,
    first_mask: Labels,
    model: str,
    size: int,
    tell: Tell = silent,
    owner: Hashable = None,
) -> tuple[str, Following]:
    """Follow the objects of a first mask through a clip, one clip at a time, sharing the model with others.

    Args:
        lab: whose.
        token, clip: whose frames.
        first_mask: labels of the first frame, uint8 [height, width].
        model, size: what looks, as visitors choose it.
        tell: hears of every frame.
        owner: who asks, see `Lane`.

    Returns:
        The name of what was followed, and what it is.

    Raises:
        LabError: no object, too many of them or too small, or a model or resolution that cannot be.
    """
    weights = await lab.models.ready(model, tell)
    predictor = lab.engine.predictor(weights, size)

    here = current_token()  # frames may be read ahead in threads that know of no event loop

    def look(images: Sequence[np.ndarray]) -> following.Tensor:
        return anyio.from_thread.run(lab.engine.lane.run, partial(predictor.features, images), token=here)

    source = SharedFeatures.of(predictor, look)
    one = following.begin(token, clip, first_mask, source, model, lab.limits)
    async with lab.following.turn(owner, tell):
        name = lab.clips.put(one)
        steps = following.steps(one, first_mask, source)
        try:
            tell({"state": "following"} | _progress(name, one))
            while await in_thread(partial(_step, steps)):
                tell({"state": "following"} | _progress(name, one))
        finally:
            one.stopped = True
    return name, one


def _step(steps: Iterator[None]) -> bool:
    """Take one; whether there was one."""
    return next(steps, steps) is not steps


def limits_in_words(limits: Limits) -> str:
    """What a clip may be, told before it is sent."""
    return (
        f"A video, a zip of frames or an animated picture, up to {limits.max_upload_mb} MB and "
        f"{limits.max_frame_megapixels} million pixels a frame. The first {limits.max_frames} frames within "
        f"{limits.max_clip_seconds} seconds are used, at most {FRAME_SIDE} pixels wide or high."
    )


def _told(lab: Lab, token: str, clip: Clip, name: str) -> Answer:
    """What a browser is told of a clip: numbers and words; frames it fetches."""
    height, width = clip.size
    sent = "" if clip.sent_size == clip.size else f", sent as {clip.sent_size[1]} × {clip.sent_size[0]}"
    return {
        "clip": token,
        "photo": lab.clips.photo_of(clip),
        "name": name,
        "width": width,
        "height": height,
        "frames": len(clip.frames),
        "fps": clip.fps,
        "sent": clip.sent_size,
        "note": clip.note,
        "marked": clip.marked,
        "facts": [
            ["Frames", f"{len(clip.frames)} of {width} × {height} pixels{sent}"],
            ["Length", f"{len(clip.frames) / clip.fps:.1f} s at {clip.fps:.3g} frames a second"],
        ],
    }


def _progress(name: str, one: Following) -> Answer:
    """How far a clip has been followed, and how many seconds are left."""
    return {
        "following": name,
        "clip": one.token,
        "model": one.model,
        "size": one.size,
        "done": len(one.masks),
        "frames": len(one.clip.frames),
        "left": one.left,
    }


def _nth(files: Sequence[bytes], number: int) -> bytes:
    if not 0 <= number < len(files):
        raise NotHere(f"There is no frame {number}: there are 0 to {len(files) - 1}.", "file")
    return files[number]


def _thumbnail(clip: Clip) -> bytes:
    image = Image.fromarray(clip.picture(0))
    image.thumbnail((THUMBNAIL_HEIGHT * image.width // image.height, THUMBNAIL_HEIGHT))
    return jpeg(np.asarray(image), quality=85)
