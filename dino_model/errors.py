"""What a command says when it cannot go on."""


class SettingError(Exception):
    """A setting that cannot be. The message is one sentence for people that names the setting.

    Not a ValueError: of those that nested settings raise, the parser of the command line makes boxes.
    """


EXPECTED = (SettingError, ValueError, RuntimeError, OSError)
"""What pictures, settings, files and hardware raise; anything else is a fault of the program."""


def sentence(error: BaseException) -> str:
    """The error as one sentence: the system's own errors name the file and the reason instead of a number."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"cannot use {str(error.filename)!r}: {error.strerror.lower()}"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot go on: {error.strerror.lower()}"
    return str(error)
