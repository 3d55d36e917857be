"""The tab Compare."""

import gradio as gr

from app.shared import Shared

TITLE = "Compare"


def build(shared: Shared) -> None:
    """Build the tab inside its `gr.Tab`."""
    gr.Markdown("Compare moves to this page.")
