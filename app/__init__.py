"""The attention lab: a page in the browser where a photograph becomes attention maps, masks and downloads."""

import os

# Read by Gradio when it is imported: no figures about the use of this page leave the machine.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
