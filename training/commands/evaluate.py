"""`python -m training evaluate PROTOCOL`: parse the options, then import and run the protocol."""

import sys
from dataclasses import replace
from importlib import import_module
from typing import Any

import tyro

from training.evaluation import options

PROTOCOLS: dict[str, tuple[str, type[Any], str]] = {
    "knn": ("knn.evaluate", options.Knn, "weighted k-nearest-neighbor vote"),
    "linear": (
        "linear.evaluate",
        options.Linear,
        "linear classifier: a grid of rates and features in one pass",
    ),
    "logistic": ("logistic.evaluate", options.Logistic, "logistic regression, from few labels and from all"),
    "retrieval": ("retrieval.evaluate", options.Retrieval, "mAP on revisited Oxford and Paris"),
    "copy-detection": ("copy_detection.evaluate", options.CopyDetection, "mAP on Copydays"),
    "copy-detection synthetic": (
        "copy_detection.evaluate_synthetic",
        options.CopyDetectionSynthetic,
        "mAP of seeded copies",
    ),
    "finetune": ("finetune.evaluate", options.Finetune, "train the whole network on labeled images"),
    "throughput": ("throughput.evaluate", options.Throughput, "images/s, FLOPs and memory of networks"),
}
"""Function below `training.evaluation`, options and summary of each protocol."""

USAGE = "\n".join(
    [
        "usage: python -m training evaluate PROTOCOL [options]\n\nprotocols:",
        *(f"  {name:<26} {summary}" for name, (_, _, summary) in PROTOCOLS.items()),
        "\nUse `python -m training evaluate PROTOCOL --help` to list the options.",
    ]
)


def main(arguments: list[str]) -> int:
    """Run a protocol; returns the exit code."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    for words in (2, 1):
        name = " ".join(arguments[:words])
        if name in PROTOCOLS and len(arguments) >= words:
            _, kind, _ = PROTOCOLS[name]
            run(name, tyro.cli(kind, args=arguments[words:], prog=f"python -m training evaluate {name}"))
            return 0
    print(USAGE, file=sys.stderr)
    return 2


def run(name: str, chosen: Any) -> None:
    """Run a protocol with parsed options; processes started by torchrun share the work."""
    module, _, function = PROTOCOLS[name][0].partition(".")
    protocol = getattr(import_module(f"training.evaluation.{module}"), function)
    if not hasattr(chosen, "device"):
        protocol(chosen)
        return
    from dino_model.device import choose_device
    from dino_model.ranks import joined

    with joined(choose_device(chosen.device)) as device:
        protocol(replace(chosen, device=str(device)))
