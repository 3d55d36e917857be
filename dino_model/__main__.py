"""`python -m dino_model list | show NAME | export NAME | embed | index | search | class-map`."""

import sys

from dino_model.commands import main
from dino_model.runtime.outputs import run_command

if __name__ == "__main__":
    sys.exit(run_command(main))
