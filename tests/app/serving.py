"""A whole page server in a thread of the test's own process."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from app.lab import Lab
from app.security import host_names
from app.server import create_app, listen


@contextmanager
def serving(lab: Lab) -> Iterator[str]:
    """The address of this lab's page on a free port, until the block ends."""
    with listen("127.0.0.1", 0) as listening:
        app = create_app(lab, host_names("127.0.0.1"))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.05)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
