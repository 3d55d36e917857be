"""The tab Segment."""

import gradio as gr

from app.shared import Shared

TITLE = "Segment"


def build(shared: Shared) -> None:
    """Build the tab inside its `gr.Tab`."""
    gr.Markdown("Segment moves to this page.")
