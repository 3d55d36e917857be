"""How page and programs ask: files counted as they come, slow answers as a stream, who left is let go."""

import asyncio
import contextlib
import json
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from app.errors import Busy, LabError, Left, TooLarge
from app.lab import Lab
from app.lanes import Tell, silent
from app.photos import stem

Result = TypeVar("Result")
Answer = dict[str, Any]
Job = Callable[[Tell], Awaitable[Answer]]
"""Slow work: hears how it may tell of its progress, answers in the end."""

LINES = "application/x-ndjson"
SIGN_OF_LIFE = 10.0  # seconds between two lines of a stream
SILENCE = 20.0  # seconds without a byte after which an upload is given up
UPLOADS_HELD = 16  # so many of the largest files may be on their way at once
OUR_FAULT = "Something went wrong in the server: try again, or tell who runs it."


def owner_of(request: Request, picture: str) -> Hashable:
    """Whose work something is, for `Lane`: a machine's, about one picture."""
    return (request.client.host if request.client else "", picture)


def file_named(name: str, file: str, otherwise: str = "photograph") -> dict[str, str]:
    """Headers of a download: what a visitor calls a picture, and which of its files this is."""
    return {"Content-Disposition": f'attachment; filename="{stem(name, otherwise)}-{file}"'}


@contextlib.asynccontextmanager
async def upload(request: Request, lab: Lab) -> AsyncIterator[bytes]:
    """The file that is a request's body, counted as it comes; within the block it counts as held.

    Raises:
        TooLarge: more than the limit.
        LabError: no more for a long time, or too much is on its way from others.
    """
    most = lab.limits.max_upload_bytes
    too_large = TooLarge(f"This file is larger than the {lab.limits.max_upload_mb} MB allowed.")
    if int(request.headers.get("content-length", 0)) > most:
        raise too_large
    content, parts = bytearray(), request.stream()
    try:
        while part := await _before_long(anext(parts, b"")):
            lab.incoming += len(part)
            content += part
            if len(content) > most:
                raise too_large
            await _room(lab)
        yield bytes(content)
    finally:
        lab.incoming -= len(content)


async def _before_long(part: Awaitable[bytes]) -> bytes:
    try:
        return await asyncio.wait_for(part, SILENCE)
    except TimeoutError as error:
        raise LabError("The file stopped coming: send it again.") from error


async def _room(lab: Lab) -> None:
    """Wait, and read no further, while others' files fill the memory for them."""
    until = time.monotonic() + SILENCE
    while lab.incoming > UPLOADS_HELD * lab.limits.max_upload_bytes:
        if time.monotonic() > until:
            raise Busy("Too many files are on their way: try again in a moment.")
        await asyncio.sleep(0.05)


async def unless_left(request: Request, work: Awaitable[Result]) -> Result:
    """What `work` answers; it is ended when who asked goes away.

    Raises:
        Left: he did.
    """
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            raise Left("Nobody waits for this answer any more.")
        return task.result()
    finally:
        leaving.cancel()
        task.cancel()


async def slow(request: Request, job: Job) -> Response:
    """The answer of slow work: at once as JSON, or line by line with its progress to who accepts `LINES`.

    Every line is an object with a `state`; the last one is "done" with the answer, or "error".
    """
    if LINES not in request.headers.get("accept", ""):
        return JSONResponse(await unless_left(request, job(silent)))
    headers = {"X-Accel-Buffering": "no"}  # nginx hands on each line as it comes
    return StreamingResponse(_lines(job), media_type=LINES, headers=headers)


async def _lines(job: Job) -> AsyncIterator[str]:
    news: asyncio.Queue[Answer] = asyncio.Queue()
    task = asyncio.ensure_future(_last_line(job, news.put_nowait))
    task.add_done_callback(lambda done: None if done.cancelled() else news.put_nowait(done.result()))
    line: Answer = {"state": "waiting"}
    try:
        while line["state"] not in ("done", "error"):
            with contextlib.suppress(TimeoutError):  # the same line again
                line = await asyncio.wait_for(news.get(), SIGN_OF_LIFE)
            yield json.dumps(line) + "\n"
    finally:
        task.cancel()


async def _last_line(job: Job, tell: Tell) -> Answer:
    try:
        return {"state": "done"} | await job(tell)
    except LabError as error:
        return {"state": "error", "status": error.status} | told(error)
    except Exception:
        traceback.print_exc()
        return {"state": "error", "status": 500, "error": OUR_FAULT}


def told(error: LabError) -> Answer:
    """A refusal as JSON."""
    return {"error": str(error)} | ({"unknown": error.unknown} if error.unknown else {})


async def _left(request: Request) -> None:
    """Return when who asked is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
