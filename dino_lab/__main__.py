"""`dino-lab`: the page; `dino-lab segmentation …` and `dino-lab training …`: the commands."""

import runpy
import sys

from dino_lab import ROOMS

COMMANDS = ("segmentation", "training")


def main() -> None:
    """Run the page, or the commands of the package that is named first."""
    sys.path.insert(0, str(ROOMS))
    if len(sys.argv) > 1 and sys.argv[1] in COMMANDS:
        name = sys.argv.pop(1)
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
    from app.__main__ import main as serve

    serve()


if __name__ == "__main__":
    main()
