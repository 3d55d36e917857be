"""Hugging Face Space of the attention lab, on CPU hardware."""

import os

from app.__main__ import Serve

Serve(
    host="0.0.0.0",
    port=int(os.environ.get("GRADIO_SERVER_PORT", "7860")),
    allowed_hosts=(os.environ.get("SPACE_HOST", "localhost"),),
    frame_ancestors=("https://huggingface.co",),
    proxies=("10.0.0.0/8",),
    downloads=False,
).run()
