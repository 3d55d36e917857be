"""Hugging Face Space of the attention lab. On ZeroGPU hardware, images are encoded on the GPU."""

import os

from app.__main__ import Serve

try:
    import spaces  # only on ZeroGPU hardware
except ImportError:
    spaces = None

if spaces is not None:
    from app.engine import Engine

    Engine.look = spaces.GPU(Engine.look)  # encodings are arrays of the CPU: the GPU is gone after the call

Serve(
    host="0.0.0.0",
    port=int(os.environ.get("GRADIO_SERVER_PORT", "7860")),
    allowed_hosts=(os.environ.get("SPACE_HOST", "localhost"),),
    frame_ancestors=("https://huggingface.co",),
    downloads=False,
).run()
