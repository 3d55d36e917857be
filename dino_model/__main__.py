"""`python -m dino_model COMMAND`."""

import sys
from functools import partial

from dino_model.commands import COMMANDS
from dino_model.runtime import dispatch

main = partial(dispatch.main, "dino_model", COMMANDS)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
