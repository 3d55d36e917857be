"""The whole server: addresses of every room behind what guards them, on a port that is free."""

import contextlib
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from app.errors import LabError
from app.lab import Lab
from app.limits import MEGABYTE
from app.routes import ROOMS
from app.routes.asking import OUR_FAULT, told
from app.routes.mcp import routes as mcp_routes
from app.routes.page import STATIC, VersionedFiles, version
from app.security import (
    EVERY_ADDRESS,
    LOCAL_NAMES,
    BodyLimit,
    HostGate,
    PasswordGate,
    RootPath,
    SecurityHeaders,
)

PORTS_TRIED = 100
LAST_PORT = 65535
PATIENCE = 5  # seconds for answers that are on their way when the server is ended
KEPT_OPEN = 75  # seconds for which a browser's connection waits for its next question
ASKED_BYTES = 8 * MEGABYTE  # of JSON: a drawn mask of many small pieces takes two
RETRY_AFTER = 5  # seconds
M_ARENA_MAX = -8  # glibc's malloc.h


def serve(
    lab: Lab,
    host: str,
    port: int,
    host_names: Sequence[str],
    *,
    users: Mapping[str, str],
    root_path: str = "",
    frame_ancestors: Sequence[str] = (),
    mcp: bool = False,
) -> None:
    """Load the model, look at the first example, say the address, and serve until interrupted.

    Arguments as `create_app`.

    Raises:
        OSError, TypeError, ValueError: no free port, or a model that cannot be loaded.
    """
    share_heap()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with listen(host, port) as listening:
        lab.look_first()  # whatever is wrong with the model is said now
        app = create_app(
            lab, host_names, users=users, root_path=root_path, frame_ancestors=frame_ancestors, mcp=mcp
        )
        found = listening.getsockname()[1]
        if port and found != port:
            print(f"Port {port} is taken; {found} is the next free one.")
        if not users and host not in LOCAL_NAMES:
            print(
                f"No password is asked of whoever reaches {host}: --auth FILE asks for one.", file=sys.stderr
            )
        print(f"The attention lab is at {address(host, found)} (Ctrl+C ends it)", flush=True)
        config = uvicorn.Config(
            app, log_level="warning", timeout_graceful_shutdown=PATIENCE, timeout_keep_alive=KEPT_OPEN
        )
        uvicorn.Server(config).run(sockets=[listening])


def share_heap() -> None:
    """Let all threads allocate from one heap, where the C library is glibc.

    Left alone, glibc keeps a heap for each of the page's threads that the model ever ran in, and each grows
    to what one picture takes: 300 MB more for the embedded model, and growing for the first hundred pictures.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # other C libraries have no such call
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket on `port`, or on the next free one.

    Raises:
        OSError: none of a hundred ports is free, or no such address.
        ValueError: no such port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if not 0 <= port <= LAST_PORT:
        raise ValueError(f"--port is {port}, expected 0 to {LAST_PORT}")
    for candidate in range(port, min(port + PORTS_TRIED, LAST_PORT + 1)):
        # Named outright: asyncio spares answers the wait for acknowledgement, 40 ms, on sockets that say TCP.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            if os.name == "posix":  # elsewhere the option would let two servers share a port
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, candidate))
            listening.listen()
            return listening
        except OSError as error:
            listening.close()
            refused = error
    raise OSError(f"no free port from {port} to {candidate} on {host}: {refused}")


def address(host: str, port: int) -> str:
    """What to type into a browser on this machine."""
    name = "localhost" if host in EVERY_ADDRESS else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"


def create_app(
    lab: Lab,
    host_names: Sequence[str],
    *,
    users: Mapping[str, str] | None = None,
    root_path: str = "",
    frame_ancestors: Sequence[str] = (),
    mcp: bool = False,
) -> FastAPI:
    """The application: rooms inside, guards outside.

    Args:
        lab: what is shown.
        host_names: under which it may be addressed.
        users: passwords by user; without any, none is asked.
        root_path: where a proxy shows the page, such as /dino; whether it strips that from paths or not.
        frame_ancestors: origins that may show the page in a frame.
        mcp: whether language models find the endpoints for programs as tools.
    """
    app = FastAPI(title="DINO attention lab", docs_url=None, redoc_url=None, openapi_url="/api/openapi.json")
    for routes in ROOMS:
        app.include_router(routes(lab))
    if mcp:
        app.include_router(mcp_routes())
    app.mount(f"/static/{version()}", VersionedFiles(directory=STATIC))
    _say_what_is_wrong(app)
    if users:
        app.add_middleware(PasswordGate, users=users)
    app.add_middleware(BodyLimit, most=ASKED_BYTES)
    if root_path:
        app.add_middleware(RootPath, root_path=root_path)
    # The ones added last are the outermost: foreign names get no further, and every answer has its headers.
    app.add_middleware(HostGate, names=host_names)
    app.add_middleware(SecurityHeaders, frame_ancestors=frame_ancestors)
    return app


def _say_what_is_wrong(app: FastAPI) -> None:
    """Every refusal is JSON with one sentence, {"error": sentence}."""

    @app.exception_handler(LabError)
    async def refuse(request: Request, error: LabError) -> JSONResponse:
        # What is still on its way of a refused body is not waited for.
        headers = {"Connection": "close"} if error.status == 413 else {}
        headers |= {"Retry-After": str(RETRY_AFTER)} if error.status == 503 else {}
        return JSONResponse(told(error), status_code=error.status, headers=headers)

    @app.exception_handler(RequestValidationError)
    async def correct(request: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": correction(error)}, status_code=422)

    @app.exception_handler(HTTPException)
    async def tell(request: Request, error: HTTPException) -> JSONResponse:
        known = {
            400: "The request cannot be read.",
            404: "There is nothing at this address.",
            405: "This address is not asked in that way.",
        }
        sentence = known.get(error.status_code, str(error.detail))
        headers = {**(error.headers or {}), **({"Connection": "close"} if error.status_code == 413 else {})}
        return JSONResponse({"error": sentence}, status_code=error.status_code, headers=headers)

    @app.exception_handler(Exception)
    async def admit(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": OUR_FAULT}, status_code=500)


def correction(error: RequestValidationError) -> str:
    """What is wrong with a question, in one sentence that repeats nothing of it."""
    first = error.errors()[0]
    names = [part for part in first["loc"][1:] if isinstance(part, str)]
    if first["type"] == "json_invalid":
        return "The request is no JSON."
    if first["type"] == "extra_forbidden" or not names:
        return "This address does not take what was asked of it."
    if first["type"] == "missing":
        return f"The {names[-1]} is missing."
    limits = {"greater_than_equal": ("ge", "at least"), "less_than_equal": ("le", "at most")}
    if first["type"] in limits:
        bound, words = limits[first["type"]]
        return f"The {names[-1]} must be {words} {first['ctx'][bound]}."
    wanted = first["msg"].removeprefix("Input should be ")
    same = wanted == first["msg"]
    return (
        f"The {names[-1]} cannot be that." if same else f"The {names[-1]} must be {wanted.partition(',')[0]}."
    )
