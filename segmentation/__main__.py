"""`python -m segmentation COMMAND`: each command is a dataclass in `segmentation.commands`."""

import sys
from importlib import import_module
from typing import Any

import tyro

from dino_model.runtime.outputs import run_command

COMMANDS = {
    "attention": "Attention maps and masks of every head, and the attention of a point.",
    "voc": "Agreement of attention masks with the annotated objects of VOC 2012, and its protocol.",
    "davis": "Labels of first frames propagated through DAVIS by nearest neighbors, and their scores.",
    "score": "Region similarity J and contour accuracy F of predicted masks, as DAVIS defines them.",
    "video": "Attention of a video; with --mask or --masks, the labels of some frames propagated.",
    "match": "Corresponding parts of two images: matches, lines between them, common colors.",
    "discover": "Objects without labels or training: LOST, TokenCut, MaskCut, with one pass of the model.",
    "head": "Segmentation from few masks: a head on frozen features is fitted, applied and scored.",
}
"""First line of the description of each command. A command is imported when it runs."""


def command(name: str) -> type[Any]:
    """Return the dataclass of a command: `Voc` of `segmentation.commands.voc`."""
    return getattr(import_module(f"segmentation.commands.{name}"), name.capitalize())


def usage() -> str:
    """List the commands, each with the first line of its description."""
    lines = [f"  {name:<10} {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            "usage: python -m segmentation COMMAND [options]\n",
            *lines,
            "\nUse `python -m segmentation COMMAND --help` to list its options.",
        ]
    )


def main() -> None:
    """Parse and run; the exit code is 2 for wrong usage, else that of `run_command`."""
    name, *rest = sys.argv[1:] or [""]
    if name in ("-h", "--help"):
        print(usage())
    elif name not in COMMANDS:
        print(f"unknown command {name!r}\n\n{usage()}" if name else usage(), file=sys.stderr)
        sys.exit(2)
    else:
        prog = f"python -m segmentation {name}"
        sys.exit(run_command(lambda: tyro.cli(command(name), prog=prog, args=rest).run()))


if __name__ == "__main__":
    main()
