"""Progress of slow work, reported as `gr.Progress` takes it."""

from typing import Protocol


class Progress(Protocol):
    """Called with the share that is done, 0 to 1, or None where it is unknown; `gr.Progress()` is one."""

    def __call__(self, progress: float | None, desc: str | None = None) -> object:
        """Report the share done and a short description."""


def silent(progress: float | None, desc: str | None = None) -> None:
    """Report nothing."""
