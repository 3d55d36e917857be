"""DINO attention lab: a Gradio app that shows the attention maps of vision transformers.

`mount` adds the page to another server; `app.views` has its components, which work in any `gr.Blocks`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # read when gradio is imported

STATIC = Path(__file__).parent / "static"
"""Folder of scripts, styles and other files for the browser."""

if TYPE_CHECKING:
    from app.store.backend import Backend


def mount(server: Any, path: str, backend: Backend | None = None) -> Any:
    """Add the page to a server under a path.

    Args:
        server: A `FastAPI`, which is returned.
        path: Such as "/dino".
        backend: Models, images and limits. Default: the embedded model at resolution 224.
    """
    import gradio as gr  # takes seconds

    from app.handlers.arrays import routes
    from app.layout import build, head, theme
    from app.limits.bounds import Limits
    from app.store.backend import Backend
    from app.store.models import Models

    backend = backend or Backend(Models(), Limits())
    options = {"app_kwargs": {"routes": routes(backend)}, "theme": theme(), "head": head(backend)}
    return gr.mount_gradio_app(server, build(backend), path, **options)
