"""What a command says when it cannot go on."""

EXPECTED = (ValueError, RuntimeError, OSError)
"""What pictures, settings, files and hardware raise; anything else is a fault of the program."""


def sentence(error: BaseException) -> str:
    """The error as one sentence: the system's own errors name the file and the reason instead of a number."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"cannot use {str(error.filename)!r}: {error.strerror.lower()}"
    return str(error)
