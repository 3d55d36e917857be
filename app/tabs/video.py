"""The tab Video."""

import gradio as gr

from app.shared import Shared

TITLE = "Video"


def build(shared: Shared) -> None:
    """Build the tab inside its `gr.Tab`."""
    gr.Markdown("Video moves to this page.")
