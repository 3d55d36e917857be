"""`python -m segmentation COMMAND`: each command is a dataclass in `segmentation.commands`."""

import sys
from collections.abc import Callable
from typing import Any

import tyro

from segmentation.commands.attention import Attention
from segmentation.commands.davis import Davis
from segmentation.commands.discover import Discover
from segmentation.commands.score import Score
from segmentation.commands.video import Video
from segmentation.commands.voc import Voc

COMMANDS: dict[str, Callable[..., Any]] = {
    "attention": Attention,
    "voc": Voc,
    "davis": Davis,
    "score": Score,
    "video": Video,
    "discover": Discover,
}


def main() -> None:
    """Parse, run; whatever was wrong with the input becomes one sentence and exit code 1."""
    try:
        command = tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="python -m segmentation",
            description="Attention maps and masks, VOC12 and DAVIS scores, video, object discovery.",
        )
        command.run()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; what is finished stays")


if __name__ == "__main__":
    main()
