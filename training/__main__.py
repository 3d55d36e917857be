"""`python -m training pretrain|evaluate|thin-log`."""

import sys

import tyro

from dino_model.errors import EXPECTED, sentence
from training import pretrain
from training.evaluation.knn import Knn
from training.thin_log import ThinLog

USAGE = """usage: python -m training COMMAND [options]

commands:
  pretrain       train a backbone without labels (DINO)
  evaluate knn   accuracy of a k-nearest-neighbour vote on frozen features
  thin-log       one short log from those of a training's phases

`python -m training COMMAND --help` tells the options."""


def main(arguments: list[str]) -> int:
    """Run the command; errors become one sentence and exit code 1."""
    try:
        match arguments:
            case ["pretrain", *rest]:
                pretrain.parse(rest).run()
            case ["evaluate", "knn", *rest]:
                tyro.cli(Knn, args=rest, prog="python -m training evaluate knn").run()
            case ["thin-log", *rest]:
                tyro.cli(ThinLog, args=rest, prog="python -m training thin-log").run()
            case ["-h" | "--help"]:
                print(USAGE)
            case _:
                print(USAGE, file=sys.stderr)
                return 2
    except EXPECTED as error:
        print(f"error: {sentence(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
