"""The tab Explore: the attention of every head for the whole image, or for the patch under the pointer."""

import gradio as gr

from app.shared import Shared
from app.views import attention_view

TITLE = "Explore"

QUANTITIES = [
    ("Attention", "attention"),
    ("Key similarity", "likeness"),
    ("q · k", "logits"),
    ("Key cosine", "key-cosine"),
    ("Token cosine", "token-cosine"),
    ("Rollout", "rollout"),
    ("Key PCA", "key-pca"),
    ("Token PCA", "token-pca"),
]


def build(shared: Shared) -> None:
    """Build the tab inside its `gr.Tab`."""
    with gr.Row():
        with gr.Column(scale=3, min_width=300):
            view = attention_view(
                elem_id="explore", address=True, grid=True, server_functions=shared.server_functions
            )
            shared.views.append(view)
        with gr.Column(scale=2, min_width=300):
            gr.Radio(QUANTITIES, value="attention", label="Quantity", elem_id="quantity")
