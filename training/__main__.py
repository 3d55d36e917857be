"""`python -m training pretrain|evaluate|thin-log|keep`."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import tyro

from dino_model.errors import EXPECTED, SettingError, sentence

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
                with _requeued_on_sigterm():
                    from training.commands.arguments import parse

                    return parse(rest).run()
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
        _tell(error)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def _tell(error: Exception) -> None:
    """One sentence; of several processes the first speaks, the others of what is wrong for them alone."""
    rank = int(os.environ.get("RANK", "0"))
    if rank:
        from training.checkpoint import RunError
        from training.distributed import LostRank

        if isinstance(error, SettingError | RunError | LostRank):
            return
    print(f"error{f' in process {rank}' if rank else ''}: {sentence(error)}", file=sys.stderr)


@contextmanager
def _requeued_on_sigterm() -> Iterator[None]:
    """SIGTERM outside of the steps: nothing is lost, and a queue begins again after EX_TEMPFAIL."""
    former = signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
