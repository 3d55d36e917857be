"""The tab Learn."""

import gradio as gr

from app.shared import Shared

TITLE = "Learn"


def build(shared: Shared) -> None:
    """Build the tab inside its `gr.Tab`."""
    gr.Markdown("Learn moves to this page.")
