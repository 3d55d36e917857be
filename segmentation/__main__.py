"""`python -m segmentation COMMAND`: each command is a dataclass in `segmentation.commands`."""

import sys
from typing import Any

import tyro

from dino_model.errors import EXPECTED, sentence
from segmentation.commands.attention import Attention
from segmentation.commands.davis import Davis
from segmentation.commands.discover import Discover
from segmentation.commands.gallery import Gallery
from segmentation.commands.score import Score
from segmentation.commands.video import Video
from segmentation.commands.voc import Voc

COMMANDS: dict[str, type[Any]] = {
    "attention": Attention,
    "gallery": Gallery,
    "voc": Voc,
    "davis": Davis,
    "score": Score,
    "video": Video,
    "discover": Discover,
}


def usage() -> str:
    """The commands, each with the first line of its description."""
    lines = [f"  {name:<10} {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: python -m segmentation COMMAND [options]\n",
            *lines,
            "\n`python -m segmentation COMMAND --help` tells the options.",
        ]
    )


def main() -> None:
    """Parse, run; what was wrong with the input is told in one sentence with exit code 1, with the command
    line in 2."""
    name, *rest = sys.argv[1:] or [""]
    if name in ("-h", "--help"):
        print(usage())
        return
    if name not in COMMANDS:
        print(f"unknown command {name!r}\n\n{usage()}" if name else usage(), file=sys.stderr)
        sys.exit(2)
    try:
        tyro.cli(COMMANDS[name], prog=f"python -m segmentation {name}", args=rest).run()
    except EXPECTED as error:
        sys.exit(f"error: {sentence(error)}")
    except KeyboardInterrupt:
        sys.exit("interrupted; what is finished stays")


if __name__ == "__main__":
    main()
