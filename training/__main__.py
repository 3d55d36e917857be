"""`python -m training COMMAND`."""

import sys
from functools import partial

from dino_model.runtime import dispatch
from training.commands import COMMANDS

main = partial(dispatch.main, "training", COMMANDS)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
