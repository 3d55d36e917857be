"""`python -m training evaluate`: figures of frozen features. One module for each protocol."""

import importlib
import sys

import tyro

EVALUATIONS = {
    "knn": ("knn", "Knn", "a vote of k nearest neighbours"),
    "linear": ("linear", "Linear", "a linear classifier: a grid of rates and features in one pass"),
    "logistic": ("logistic", "LogisticRegression", "logistic regression, from few labels and from all"),
    "retrieval": ("retrieval", "Retrieval", "mAP on revisited Oxford and Paris"),
    "retrieval index": ("retrieval", "Index", "keep the features of a folder, to be asked"),
    "retrieval query": ("retrieval", "Query", "which pictures of an index a photograph is like"),
    "copy-detection": ("copy_detection", "CopyDetection", "mAP on Copydays"),
    "copy-detection synthetic": ("copy_detection", "Synthetic", "mAP of copies made by a seed"),
    "copy-detection duplicates": ("copy_detection", "Duplicates", "near-duplicates of a folder, in groups"),
    "finetune": ("finetune", "Finetune", "the whole network trained on labelled pictures"),
    "throughput": ("throughput", "MeasureThroughput", "images a second, FLOPs, memory of the networks"),
    "report": ("report", "Report", "one page of what was measured, beside the paper's tables"),
}
"""Protocol: module and class of its command, and what it measures."""

USAGE = "\n".join(
    [
        "usage: python -m training evaluate PROTOCOL [options]\n\nprotocols, on frozen features:",
        *(f"  {name:<26} {told}" for name, (_, _, told) in EVALUATIONS.items()),
        "\n`python -m training evaluate PROTOCOL --help` tells the options.",
    ]
)


def main(arguments: list[str]) -> int:
    """Run a protocol; returns the exit code."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    for words in (2, 1):
        name = " ".join(arguments[:words])
        if name in EVALUATIONS and len(arguments) >= words:
            module, command, _ = EVALUATIONS[name]
            chosen = getattr(importlib.import_module(f"training.commands.evaluate.{module}"), command)
            tyro.cli(chosen, args=arguments[words:], prog=f"python -m training evaluate {name}").run()
            return 0
    print(USAGE, file=sys.stderr)
    return 2
