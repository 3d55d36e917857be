"""What visitors are told when something cannot be: one sentence, and the status that a program goes by."""

from typing import Literal

Unknown = Literal["photo", "token", "model", "clip", "following", "map", "run", "file"]


class LabError(RuntimeError):
    """Something a visitor can understand and mend; the message is one sentence and names no path here.

    Attributes:
        status: as HTTP counts: 422 cannot be, 404 is not here (any more), 413 too large, 503 not now.
        unknown: of 404, what is not here.
    """

    status = 422
    unknown: Unknown | None = None


class NotHere(LabError):
    """A name or token behind which there is nothing, or nothing any more."""

    status = 404

    def __init__(self, sentence: str, unknown: Unknown) -> None:
        super().__init__(sentence)
        self.unknown = unknown


class TooLarge(LabError):
    """More bytes than are taken."""

    status = 413


class Left(LabError):
    """Nobody waits for the answer any more."""

    status = 499


class Busy(LabError):
    """Possible, but not now."""

    status = 503
