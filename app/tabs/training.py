"""The tab Training."""

import gradio as gr

from app.shared import Shared

TITLE = "Training"


def build(shared: Shared) -> None:
    """Build the tab inside its `gr.Tab`."""
    gr.Markdown("Training moves to this page.")
