"""The page and its server: Gradio inside a plain FastAPI application, on a port that is free."""

import socket
import tempfile
from dataclasses import dataclass, field
from os import environ, name
from pathlib import Path
from typing import Annotated, Literal

import gradio as gr
import tyro
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.staticfiles import StaticFiles

from app import photos
from app.catalogue import catalogue
from app.engine import Engine, LabError
from app.limits import Limits
from app.routes import encoding_routes
from app.security import SecurityHeaders, host_names
from app.tabs import Start, explore

STATIC = Path(__file__).parent / "static"
TABS = (explore.TAB,)
PORTS_TRIED = 100
HEAD = '<link rel="stylesheet" href="lab/static/page.css">'


@dataclass(frozen=True)
class Serve:
    """Open the attention lab in the browser: a photograph, and where every head of a ViT looks."""

    host: str = "127.0.0.1"
    """Address to listen on. Any other than this one shows the page to other machines."""
    port: int = 7860
    """Port to listen on; when it is taken, the next free one is, and said."""
    model: str = "embedded"
    """Model the page opens with; `python -m dino_model list` tells the names."""
    models_dir: Path | None = None
    """Folder of checkpoints and training runs that visitors may choose from, by name."""
    size: int = 480
    """Resolution the page opens with: pixels of the short side."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the model; auto is bf16 where the hardware has it."""
    device: str = "auto"
    """Where the model runs: auto, cpu, cuda or mps."""
    allowed_hosts: tuple[str, ...] = ()
    """Names, beside --host and localhost, under which visitors may reach the page."""
    limits: Annotated[Limits, tyro.conf.arg(name="")] = field(default_factory=Limits)

    def run(self) -> None:
        """Load the model, look at the first example, say the address, and serve until interrupted."""
        hosts = host_names(self.host, self.allowed_hosts)
        models = catalogue(self.model, self.models_dir)
        engine = Engine(models, self.limits, precision=self.precision, device=self.device)
        start = Start(model=next(iter(models)), size=self.size, example="cat")
        with (
            listen(self.host, self.port) as listening,
            tempfile.TemporaryDirectory(prefix="dino-lab-") as uploads,
        ):
            environ["GRADIO_TEMP_DIR"] = uploads  # nobody else's, and gone when the server is
            engine.encode(photos.example(start.example), start.model, start.size)
            app = create_app(engine, start, hosts)
            port = listening.getsockname()[1]
            if port != self.port:
                print(f"Port {self.port} is taken; {port} is the next free one.")
            print(f"The attention lab is at http://{self.host}:{port} (Ctrl+C ends it)", flush=True)
            uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """A listening socket on `port`, or on the next free one.

    Raises:
        OSError: none of a hundred ports is free, or no such address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in range(port, port + PORTS_TRIED):
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            if name == "posix":  # elsewhere the option would let two servers share a port
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, candidate))
            listening.listen()
            return listening
        except OSError as error:
            listening.close()
            refused = error
    raise OSError(f"no free port from {port} to {port + PORTS_TRIED - 1} on {host}: {refused}")


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
    return page.queue(max_size=engine.limits.max_waiting, api_open=False)


def create_app(engine: Engine, start: Start, hosts: list[str]) -> FastAPI:
    """The whole server: our own routes and files under /lab, Gradio at the root, guarded on the outside."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.mount("/lab/static", StaticFiles(directory=STATIC))
    app.include_router(encoding_routes(engine))

    @app.exception_handler(LabError)
    def tell(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=422)

    gr.mount_gradio_app(
        app,
        create_page(engine, start),
        path="/",
        theme=theme(),
        head=HEAD,
        footer_links=[],
        run_history=False,
        show_error=False,
        max_file_size=f"{engine.limits.max_upload_mb}mb",
        ssr_mode=False,
        enable_monitoring=False,
        mcp_server=False,
    )
    app.add_middleware(SecurityHeaders)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts)  # outermost: foreign names get no further
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
