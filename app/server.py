"""The page and its server: Gradio inside a plain FastAPI application, on a port that is free."""

import contextlib
import ctypes
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

import gradio as gr
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.staticfiles import StaticFiles

from app import api, photos
from app.engine import Engine, LabError
from app.limits import MEGABYTE
from app.routes import encoding_routes
from app.security import EVERY_ADDRESS, LOCAL_NAMES, BodyLimit, PasswordGate, RootPath, SecurityHeaders
from app.tabs import Start, class_map, compare, explore, learn, segment, training, video

STATIC = Path(__file__).parent / "static"
TABS = (explore.TAB, segment.TAB, compare.TAB, class_map.TAB, video.TAB, training.TAB, learn.TAB)
PORTS_TRIED = 100
LAST_PORT = 65535
PATIENCE = 5  # seconds for answers that are on their way when the server is ended
BASE64 = 4 / 3  # of what it encodes
M_ARENA_MAX = -8  # glibc's malloc.h
STYLES = ("page.css", *(tab.style for tab in TABS if tab.style))
HEAD = "".join(f'<link rel="stylesheet" href="lab/static/{name}">' for name in STYLES)


def serve(
    engine: Engine,
    start: Start,
    host: str,
    port: int,
    host_names: list[str],
    *,
    users: Mapping[str, str],
    root_path: str = "",
) -> None:
    """Load the model, look at the first example, say the address, and serve until interrupted.

    Arguments as `create_app`.

    Raises:
        OSError, TypeError, ValueError: no free port, or a model that cannot be loaded.
    """
    share_heap()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended in either way, uploads are removed
    with listen(host, port) as listening, tempfile.TemporaryDirectory(prefix="dino-lab-") as uploads:
        os.environ["GRADIO_TEMP_DIR"] = uploads  # nobody else's, and gone when the server is
        engine.predictor(start.model, start.size)  # whatever is wrong with the model is said now
        engine.encode(photos.example(start.example), start.model, start.size)
        app = create_app(engine, start, host_names, users=users, root_path=root_path)
        found = listening.getsockname()[1]
        if port and found != port:
            print(f"Port {port} is taken; {found} is the next free one.")
        if not users and host not in LOCAL_NAMES:
            print(
                f"No password is asked of whoever reaches {host}: --auth FILE asks for one.", file=sys.stderr
            )
        print(f"The attention lab is at {address(host, found)} (Ctrl+C ends it)", flush=True)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=PATIENCE)
        Server(config).run(sockets=[listening])


def share_heap() -> None:
    """Let all threads allocate from one heap, where the C library is glibc.

    Left alone, glibc keeps a heap for each of the page's threads that the model ever ran in, and each grows
    to what one picture takes: 300 MB more for the embedded model, and growing for the first hundred pictures.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # other C libraries have no such call
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


class Server(uvicorn.Server):
    """Ends although pages are open: Gradio keeps a connection to each of them, until it is told to let go."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end, on the signal `sig`."""
        for route in self.config.app.routes:  # type: ignore[union-attr]
            if isinstance(mounted := getattr(route, "app", None), gr.routes.App):
                mounted.stop_event.set()
        super().handle_exit(sig, frame)


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


def create_page(engine: Engine, start: Start) -> gr.Blocks:
    """The page as Gradio sees it: a heading and the tabs."""
    page = gr.Blocks(title="DINO attention lab", analytics_enabled=False, delete_cache=(600, 3600))
    with page:
        gr.HTML(
            (STATIC / "header.html").read_text(encoding="utf-8"), elem_id="heading", apply_default_css=False
        )
        with gr.Tabs(elem_id="tabs"):
            for tab in TABS:
                with gr.Tab(tab.title):
                    tab.build(page, engine, start)
        api.publish(engine)
    return page.queue(max_size=engine.limits.max_waiting, api_open=False)


def create_app(
    engine: Engine,
    start: Start,
    host_names: list[str],
    *,
    users: Mapping[str, str] | None = None,
    root_path: str = "",
) -> FastAPI:
    """The whole server: our own routes and files under /lab, Gradio at the root, guarded on the outside.

    Args:
        engine, start: what the page shows.
        host_names: under which it may be addressed.
        users: passwords by user; without any, none is asked.
        root_path: where a proxy shows the page, such as /dino; whether it strips that from paths or not.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.mount("/lab/static", StaticFiles(directory=STATIC))
    app.include_router(encoding_routes(engine))
    for tab in TABS:
        if tab.routes:
            app.include_router(tab.routes(engine))

    @app.exception_handler(LabError)
    def tell(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=422)

    @app.exception_handler(RequestValidationError)
    def correct(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": "This address does not take what was asked of it."}, status_code=422)

    gr.mount_gradio_app(
        app,
        create_page(engine, start),
        path="/",
        theme=theme(),
        head=HEAD,
        favicon_path=str(STATIC / "favicon.png"),
        footer_links=[],
        run_history=False,
        show_error=False,
        max_file_size=f"{engine.limits.max_upload_mb}mb",
        ssr_mode=False,
        enable_monitoring=False,
        mcp_server=False,
        root_path=root_path or None,
    )
    if root_path:
        app.add_middleware(RootPath, root_path=root_path)
    if users:
        app.add_middleware(PasswordGate, users=users)
    app.add_middleware(BodyLimit, most=int(engine.limits.max_upload_bytes * BASE64) + MEGABYTE)
    app.add_middleware(SecurityHeaders)
    # The one added last is the outermost: foreign names get no further.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=host_names)
    return app


def theme() -> gr.themes.Base:
    """Calm and neutral, so that the maps carry the colour; every font comes with Gradio."""
    return gr.themes.Base(
        primary_hue=gr.themes.colors.violet,
        neutral_hue=gr.themes.colors.zinc,
        radius_size=gr.themes.sizes.radius_lg,
        font=[
            gr.themes.LocalFont("IBM Plex Sans", weights=(400, 700)),
            "ui-sans-serif",
            "system-ui",
            "sans-serif",
        ],
        font_mono=["ui-monospace", "monospace"],
    )
