"""`python -m training pretrain|evaluate|study|doctor`.

A command is imported when it is called, so that `--help` and argument errors do not wait for torch.
"""

import os
import sys

import tyro

from dino_model.runtime.errors import EXPECTED, SettingError, sentence
from dino_model.runtime.outputs import EXIT_ERROR, run_command

USAGE = """usage: python -m training COMMAND [options]

commands:
  pretrain       train a backbone without labels
  evaluate       evaluate frozen features: k-NN, linear and others, `evaluate --help`
  doctor         diagnose a run from its log, in sentences and on one page
  study          repeat a conclusion of the paper with short runs: `study --help`

`python -m training COMMAND --help` lists the options."""


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code; an error is printed as one sentence."""
    return run_command(lambda: _run_on_rank(arguments))


def _run_on_rank(arguments: list[str]) -> int:
    """Run the command; of several processes the first prints the errors that all of them have."""
    try:
        return _run(arguments)
    except EXPECTED as error:
        rank = int(os.environ.get("RANK", "0"))
        if not rank or isinstance(error, BrokenPipeError):
            raise
        from dino_model.runtime.ranks import LostRank
        from training.run.folder import RunError

        if not isinstance(error, SettingError | RunError | LostRank):
            print(f"error in process {rank}: {sentence(error)}", file=sys.stderr)
        return EXIT_ERROR


def _run(arguments: list[str]) -> int:
    match arguments:
        case ["pretrain", *rest]:
            from training.commands.arguments import parse

            options = parse(rest)
            from training.commands import pretrain

            return pretrain.run(options)
        case ["evaluate", *rest]:
            from training.commands import evaluate

            return evaluate.main(rest)
        case ["doctor", *rest]:
            from training.commands.doctor import Doctor

            return tyro.cli(Doctor, args=rest, prog="python -m training doctor").run()
        case ["study", *rest]:
            from training.commands.study import StudyCommand

            return tyro.cli(StudyCommand, args=rest, prog="python -m training study").run()
        case ["-h" | "--help"]:
            print(USAGE)
            return 0
        case _:
            print(f"unknown command {arguments[0]!r}\n\n{USAGE}" if arguments else USAGE, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
