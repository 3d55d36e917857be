"""The tab Class map."""

import gradio as gr

from app.shared import Shared

TITLE = "Class map"


def build(shared: Shared) -> None:
    """Build the tab inside its `gr.Tab`."""
    gr.Markdown("Class map moves to this page.")
