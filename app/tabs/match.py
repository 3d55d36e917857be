"""The tab Match."""

import gradio as gr

from app.shared import Shared

TITLE = "Match"


def build(shared: Shared) -> None:
    """Build the tab inside its `gr.Tab`."""
    gr.Markdown("Match moves to this page.")
