"""Ports for servers of tests."""

import random
import socket


def free_port() -> int:
    """Return a free port below 32768: from there on, clients get ports and could take it before its use."""
    while True:
        port = random.randrange(20_000, 32_768)
        with socket.socket() as server:
            try:
                server.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
