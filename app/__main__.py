"""`python -m app`: the attention lab in the browser."""

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from app.limits.bounds import MEGABYTE, Limits
from dino_model.runtime.errors import EXPECTED, sentence

if TYPE_CHECKING:
    import gradio as gr

PORTS_TRIED = 100
LAST_PORT = 65535
M_ARENA_MAX = -8  # glibc's malloc.h
GRACE_SECONDS = 1.5  # for requests under way when the server is ended


@dataclass(frozen=True)
class Serve:
    """Open the attention lab in the browser: attention maps of every head of a vision transformer."""

    host: str = "127.0.0.1"
    """Address to listen on. Any other address shows the page to other machines."""
    port: int = 7860
    """Port to listen on. If it is taken, the next free port is used."""
    model: str = "embedded"
    """Model that the page opens with; `python -m dino_model list` prints the names."""
    heads: int | None = None
    """Attention heads of --model, if it is a bare checkpoint that does not say their number."""
    models_dir: Path | None = None
    """Folder of checkpoints, training runs and class maps that users may choose by name."""
    any_model: Literal["auto", "on", "off"] = "auto"
    """Let users type other models into the model menu: checkpoints and runs of this machine, and models of
    timm and the Hugging Face Hub. auto: on if --host is this machine, and --allowed-hosts, --proxies and
    --root-path are not given. Leave it off where strangers reach the page: they would learn which files
    exist, and fill the disk with downloads."""
    search: Path | None = None
    """File of `python -m dino_model index`: users search its images by an image or by a part of it."""
    size: int = 224
    """Resolution that the page opens with: pixels of the short side."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the model; auto is bf16 where the hardware has it."""
    device: str = "auto"
    """Device of the model: auto, cpu, cuda or mps."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which users reach the page, in addition to --host and localhost."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies on other machines, such as 10.0.0.0/8. Limits apply to the client that
    their X-Forwarded headers name. Proxies on this machine are always trusted."""
    auth: Path | None = None
    """File with a line USER:PASSWORD for each user; or set DINO_LAB_AUTH to such lines. No option takes the
    password itself, because the list of processes shows options. Passwords are sent unencrypted: beyond this
    machine, use a proxy with TLS."""
    root_path: str = ""
    """Path under which a proxy shows the page, such as /dino. The proxy may strip it or not."""
    frame_ancestors: tuple[str, ...] = ()
    """Origins of pages that may show this page in a frame, such as https://course.example."""
    downloads: bool = True
    """Offer models that are downloaded when a user chooses one."""
    mcp: bool = False
    """Offer the endpoints to language models too, as tools at /gradio_api/mcp (Model Context Protocol)."""
    limits: Annotated[Limits, tyro.conf.arg(name="")] = field(default_factory=Limits)

    def run(self) -> None:
        """Load the model, print the address, and serve until interrupted."""
        # Read once, when NumPy and PyTorch are imported. Threads that spin while they wait make an image
        # eight times slower next to other work; NumPy's products are all short.
        for name, value in {"OMP_WAIT_POLICY": "passive", "OPENBLAS_NUM_THREADS": "1"}.items():
            os.environ.setdefault(name, value)
        # These three are read when gradio is imported.
        os.environ |= {"GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_SHARE": "False", "HF_HUB_OFFLINE": "1"}
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        share_heap()
        from app.limits import fairness, guard
        from app.limits.bounds import temporary_folder

        guard.check_root_path(self.root_path)
        guard.check_frame_ancestors(self.frame_ancestors)
        if self.proxies:  # read by uvicorn
            os.environ["FORWARDED_ALLOW_IPS"] = ",".join(guard.trusted_addresses(self.proxies))
        hosts, users = guard.host_names(self.host, self.allowed_hosts), guard.read_users(self.auth)
        port = free_port(self.host, self.port)
        fairness.MODEL.max_waiting = self.limits.max_waiting
        with temporary_folder(self.limits.max_disk_mb * MEGABYTE):
            demo = self.launch_blocks(port, hosts, users)
            gc.freeze()  # passes over the objects of packages would stop the page
            gc.enable()
            if self.port and port != self.port:
                print(f"Port {self.port} is taken; {port} is the next free one.")
            if not users and self.host not in guard.LOCAL_NAMES:
                print(
                    f"{self.host} can be reached without a password: --auth FILE asks for one.",
                    file=sys.stderr,
                )
            print(f"The attention lab is at {address(self.host, port)} (Ctrl+C ends it)", flush=True)
            try:
                threading.Event().wait()
            finally:
                closing = threading.Thread(target=demo.close, args=(False,), daemon=True)
                closing.start()
                closing.join(GRACE_SECONDS)

    def launch_blocks(self, port: int, hosts: Sequence[str], users: Mapping[str, str]) -> "gr.Blocks":
        """Launch the page; `hosts` and `users` are those of `app.limits.guard.Guard`."""
        from starlette.middleware import Middleware

        from app import STATIC
        from app.handlers.arrays import routes
        from app.layout import build, head, theme
        from app.limits.guard import LOCAL_NAMES, Guard
        from app.store.backend import Backend
        from app.store.models import Models
        from dino_model.inference.search import open_search

        computed: dict[str, Any] = {"precision": self.precision, "device": self.device}
        index = open_search(self.search, **computed) if self.search else None
        own: dict[str, Any] = {"downloads": self.downloads, "limits": self.limits, "heads": self.heads}
        public = self.host not in LOCAL_NAMES or self.allowed_hosts or self.proxies or self.root_path
        own["any_model"] = self.any_model == "on" or (self.any_model == "auto" and not public)
        models = Models(self.model, self.models_dir, **own, **computed)
        backend = Backend(models, self.limits, self.size, index=index)
        guard = Middleware(Guard, hosts, users, self.frame_ancestors, self.limits)
        demo = build(backend)
        demo.queue(max_size=4 * self.limits.max_waiting).launch(
            server_name=self.host,
            server_port=port,
            root_path=self.root_path.rstrip("/") or None,
            app_kwargs={"routes": routes(backend), "middleware": [guard]},
            max_file_size=self.limits.max_upload_bytes,
            mcp_server=self.mcp,
            prevent_thread_lock=True,
            quiet=True,
            share=False,
            ssr_mode=False,
            run_history=False,
            enable_monitoring=False,
            footer_links=["api"],
            state_session_capacity=200,
            favicon_path=STATIC / "favicon.png",
            theme=theme(),
            head=head(backend),
        )
        return demo


def free_port(host: str, port: int) -> int:
    """Return `port`, or the next free one of a hundred; 0 stands for any.

    Raises:
        OSError, ValueError: None is free, or there is no such port.
    """
    if not 0 <= port <= LAST_PORT:
        raise ValueError(f"--port is {port}, expected 0 to {LAST_PORT}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in range(port, min(port + PORTS_TRIED, LAST_PORT + 1)):
        with contextlib.suppress(OSError), socket.create_server((host, candidate), family=family) as probe:
            return int(probe.getsockname()[1])
    raise OSError(f"no free port from {port} to {candidate} on {host}")


def address(host: str, port: int) -> str:
    """Return the address that a browser on this machine takes."""
    name = "localhost" if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"


def share_heap() -> None:
    """Let all threads allocate from one heap, where the C library is glibc.

    By default glibc keeps a heap for each thread in which the model ever ran, and each grows to what one
    image takes: 300 MB more for the embedded model.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # other C libraries have no such call
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse and serve; a wrong option ends with one sentence and exit code 1."""
    gc.disable()  # until the page is served: passes over the objects of packages take 2 s of processor time
    try:
        tyro.cli(Serve, prog="python -m app", args=arguments).run()
    except (*EXPECTED, TypeError) as error:
        sys.exit(f"error: {sentence(error)}")
    except KeyboardInterrupt:
        print("the attention lab is closed", file=sys.stderr, flush=True)
        os._exit(130)  # no garbage collection of PyTorch, which takes seconds, and no running models
    finally:
        gc.enable()


if __name__ == "__main__":
    main()
