"""DINO attention lab: a Gradio app that shows the attention maps of vision transformers.

`create` builds the page; `app.views` has its components, which work in any `gr.Blocks`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # read when gradio is imported

if TYPE_CHECKING:
    import gradio as gr

    from app.lab import Lab


def create(lab: Lab | None = None) -> gr.Blocks:
    """Build the page as one `gr.Blocks`: launch it, mount it, or render it inside another app.

    Args:
        lab: Models, images and limits. Default: the embedded model at resolution 224.

    Returns:
        A page that needs no routes of its own. `python -m app` adds routes that serve arrays from memory.
    """
    from app.lab import Lab  # importing gradio takes seconds
    from app.limits import Limits
    from app.models import Models
    from app.page import build

    return build(lab or Lab(Models(), Limits()))
