"""`python -m training evaluate`: figures of frozen features. One module for each protocol."""

import importlib
import sys

import tyro

EVALUATIONS = {
    "knn": ("Knn", "accuracy of a k-nearest-neighbour vote on frozen features"),
    "linear": ("Linear", "a linear classifier: a grid of rates and features, with or without augmentation"),
    "logistic": (
        "LogisticRegression",
        "logistic regression on frozen features, from few labels and all",
    ),
    "report": ("Report", "one page of what was measured, beside the paper's tables"),
}
"""Protocol: the class of its command, in the module of the same name, and what it measures."""

USAGE = "\n".join(
    [
        "usage: python -m training evaluate PROTOCOL [options]\n\nprotocols:",
        *(f"  {name:<16} {told}" for name, (_, told) in EVALUATIONS.items()),
        "\n`python -m training evaluate PROTOCOL --help` tells the options.",
    ]
)


def main(arguments: list[str]) -> int:
    """Run a protocol; returns the exit code."""
    match arguments:
        case [name, *rest] if name in EVALUATIONS:
            module = importlib.import_module(f"training.commands.evaluate.{name.replace('-', '_')}")
            command = getattr(module, EVALUATIONS[name][0])
            tyro.cli(command, args=rest, prog=f"python -m training evaluate {name}").run()
            return 0
        case ["-h" | "--help"]:
            print(USAGE)
            return 0
    print(USAGE, file=sys.stderr)
    return 2
