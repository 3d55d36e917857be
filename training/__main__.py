"""`python -m training pretrain|evaluate`."""

import sys

import tyro

from training import pretrain

USAGE = """usage: python -m training COMMAND [options]

commands:
  pretrain       train a backbone without labels (DINO)
  evaluate knn   accuracy of a k-nearest-neighbour vote on frozen features

`python -m training COMMAND --help` tells the options."""


def main(arguments: list[str]) -> int:
    """Run the command; errors become one sentence and exit code 1."""
    match arguments:
        case ["pretrain", *rest]:
            command = lambda: pretrain.parse(rest).run()  # noqa: E731
        case ["evaluate", "knn", *rest]:
            from training.evaluation.knn import Knn

            command = lambda: tyro.cli(Knn, args=rest, prog="python -m training evaluate knn").run()  # noqa: E731
        case ["-h" | "--help"]:
            print(USAGE)
            return 0
        case _:
            print(USAGE, file=sys.stderr)
            return 2
    try:
        command()
    except (ValueError, RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
