"""`python -m app`: the attention lab in the browser."""

import sys

import tyro


def main() -> None:
    """Parse, serve, and turn an error into one sentence."""
    from app.server import Serve

    command = tyro.cli(Serve, prog="python -m app")
    try:
        command.run()
    except (OSError, ValueError) as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
