"""`python -m segmentation COMMAND`: each command is a dataclass in `segmentation.commands`."""

import sys
from importlib import import_module
from typing import Any

import tyro

from dino_model.errors import EXPECTED, sentence

COMMANDS = {
    "attention": "Where every head of a ViT looks in photographs: maps, masks, and the attention of a point.",
    "gallery": "A contact sheet: each photograph, its best head, all heads, and the best head's mask.",
    "voc": "How well attention masks agree with the annotated objects of VOC 2012, and under which protocol.",
    "davis": "Carry the labels of first frames through DAVIS by nearest neighbours of features, and score.",
    "score": "Region similarity J and contour accuracy F of predicted masks, as DAVIS defines them.",
    "video": "Attention of any video, as videos and masks; with --mask, its first labels carried along.",
    "match": "Which parts of two photographs look alike: matches, lines between them, colours in common.",
    "discover": "Objects without labels or training: LOST, TokenCut, several objects; one pass of the model.",
}
"""Each with the first line of its description: a command and what it needs are imported when it runs."""


def command(name: str) -> type[Any]:
    """The dataclass of a command: `Voc` of `segmentation.commands.voc`."""
    return getattr(import_module(f"segmentation.commands.{name}"), name.capitalize())


def usage() -> str:
    """The commands, each with the first line of its description."""
    lines = [f"  {name:<10} {summary}" for name, summary in COMMANDS.items()]
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
        tyro.cli(command(name), prog=f"python -m segmentation {name}", args=rest).run()
    except EXPECTED as error:
        sys.exit(f"error: {sentence(error)}")
    except KeyboardInterrupt:
        sys.exit("interrupted; what is finished stays")


if __name__ == "__main__":
    main()
