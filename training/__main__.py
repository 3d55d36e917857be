"""`python -m training pretrain|evaluate|thin-log|keep`."""

import sys

import tyro

from dino_model.errors import EXPECTED, sentence

USAGE = """usage: python -m training COMMAND [options]

commands:
  pretrain       train a backbone without labels
  evaluate       what frozen features are worth: k-NN and others, `evaluate --help`
  thin-log       one short log from those of a training's phases
  keep           a run's networks in half precision, small enough to be kept

`python -m training COMMAND --help` tells the options."""


def main(arguments: list[str]) -> int:
    """Run the command; errors become one sentence and exit code 1."""
    try:
        match arguments:
            case ["pretrain", *rest]:
                from training.commands import pretrain

                return pretrain.parse(rest).run()
            case ["evaluate", *rest]:
                from training.commands import evaluate

                return evaluate.main(rest)
            case ["keep", *rest]:
                from training.commands.keep import Keep

                tyro.cli(Keep, args=rest, prog="python -m training keep").run()
            case ["thin-log", *rest]:
                from training.commands.thin_log import ThinLog

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
