"""DINO attention lab: a Gradio app that shows the attention maps of vision transformers.

`create` builds the page; `app.views` has its components, which work in any `gr.Blocks`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # read when gradio is imported

if TYPE_CHECKING:
    import gradio as gr

    from app.backend import Backend


def create(backend: Backend | None = None) -> gr.Blocks:
    """Build the page as one `gr.Blocks`: launch it, mount it, or render it inside another app.

    Args:
        backend: Models, images and limits. Default: the embedded model at resolution 224.

    Returns:
        A page that needs no routes of its own. `python -m app` adds routes that serve arrays from memory.
    """
    from app.backend import Backend  # importing gradio takes seconds
    from app.layout import build
    from app.limits import Limits
    from app.models import Models

    return build(backend or Backend(Models(), Limits()))
