"""`python -m training evaluate`: figures of frozen features. One module for each protocol."""

import importlib
import sys
from dataclasses import replace
from typing import Any

import tyro

EVALUATIONS = {
    "knn": "a vote of k nearest neighbours",
    "linear": "a linear classifier: a grid of rates and features in one pass",
    "logistic": "logistic regression, from few labels and from all",
    "retrieval": "mAP on revisited Oxford and Paris",
    "retrieval index": "keep the features of a folder, to be asked",
    "retrieval query": "which pictures of an index a photograph is like",
    "copy-detection": "mAP on Copydays",
    "copy-detection synthetic": "mAP of copies made by a seed",
    "copy-detection duplicates": "near-duplicates of a folder, in groups",
    "finetune": "the whole network trained on labelled pictures",
    "throughput": "images a second, FLOPs, memory of the networks",
    "report": "one page of what was measured, beside the paper's tables",
}
"""What each measures. The first word names the module of its command, the last one the class there."""

USAGE = "\n".join(
    [
        "usage: python -m training evaluate PROTOCOL [options]\n\nprotocols, on frozen features:",
        *(f"  {name:<26} {told}" for name, told in EVALUATIONS.items()),
        "\n`python -m training evaluate PROTOCOL --help` tells the options.",
    ]
)


def run(command: Any) -> None:
    """Run a command; of processes that torchrun has started each computes its share of the features."""
    if not hasattr(command, "device"):
        command.run()
        return
    from dino_model.device import choose_device
    from training.distributed import joined

    with joined(choose_device(command.device)) as device:
        replace(command, device=str(device)).run()


def main(arguments: list[str]) -> int:
    """Run a protocol; returns the exit code."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    for words in (2, 1):
        name = " ".join(arguments[:words])
        if name in EVALUATIONS and len(arguments) >= words:
            first, last = name.split()[0], name.split()[-1]
            module = importlib.import_module(f"{__name__}.{first.replace('-', '_')}")
            command = getattr(module, last.title().replace("-", ""))
            run(tyro.cli(command, args=arguments[words:], prog=f"python -m training evaluate {name}"))
            return 0
    print(USAGE, file=sys.stderr)
    return 2
