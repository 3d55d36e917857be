"""A page in a thread of the test's own process."""

from collections.abc import Iterator
from contextlib import contextmanager

import app
from app.arrays import routes
from app.lab import Lab
from app.page import build

assert app


@contextmanager
def serving(lab: Lab) -> Iterator[str]:
    """The address of this lab's page on a free port, until the block ends."""
    demo = build(lab, routes=True)
    _, address, _ = demo.launch(
        prevent_thread_lock=True, quiet=True, ssr_mode=False, app_kwargs={"routes": routes(lab)}
    )
    try:
        yield address.rstrip("/")
    finally:
        demo.close()
