"""`python -m segmentation COMMAND`."""

import sys
from functools import partial

from dino_model.runtime import dispatch
from segmentation.commands import COMMANDS

main = partial(dispatch.main, "segmentation", COMMANDS)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
