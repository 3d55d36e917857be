"""`python -m training evaluate PROTOCOL`: parse the options, then import and run the protocol."""

import sys
from dataclasses import replace
from importlib import import_module
from typing import Any

import tyro

from training.evaluation import options

PACKAGE = "training.evaluation"
PROTOCOLS: dict[str, tuple[str, type[Any]]] = {
    "knn": (f"{PACKAGE}.knn:evaluate", options.Knn),
    "linear": (f"{PACKAGE}.linear:evaluate", options.Linear),
    "logistic": (f"{PACKAGE}.logistic:evaluate", options.Logistic),
    "retrieval": (f"{PACKAGE}.retrieval:evaluate", options.Retrieval),
    "copy-detection": (f"{PACKAGE}.copy_detection:evaluate", options.CopyDetection),
    "copy-detection synthetic": (
        f"{PACKAGE}.copy_detection:evaluate_synthetic",
        options.CopyDetectionSynthetic,
    ),
    "finetune": (f"{PACKAGE}.finetune:evaluate", options.Finetune),
    "throughput": (f"{PACKAGE}.throughput:evaluate", options.Throughput),
}
"""Function, "module:function", and options of each protocol. Usage and documentation list this table."""


def usage() -> str:
    """Describe the command and its protocols."""
    lines = [f"  {name:<26} {(kind.__doc__ or '').splitlines()[0]}" for name, (_, kind) in PROTOCOLS.items()]
    first = "usage: python -m training evaluate PROTOCOL [options]\n\nprotocols:"
    return "\n".join(
        [first, *lines, "\nUse `python -m training evaluate PROTOCOL --help` to list the options."]
    )


def main(arguments: list[str]) -> int:
    """Run a protocol; processes started by torchrun share the work. Returns the exit code."""
    name = next((name for name in (" ".join(arguments[:2]), *arguments[:1]) if name in PROTOCOLS), None)
    if name is None:
        is_help = arguments[:1] in (["-h"], ["--help"])
        unknown = f"unknown protocol {arguments[0]!r}\n\n" if arguments and not is_help else ""
        print(f"{unknown}{usage()}", file=sys.stdout if is_help else sys.stderr)
        return 0 if is_help else 2
    path, kind = PROTOCOLS[name]
    words = arguments[len(name.split()) :]
    chosen = tyro.cli(kind, args=words, prog=f"python -m training evaluate {name}")
    from dino_model.models.catalogue import check_name
    from dino_model.runtime.device import choose_device
    from dino_model.runtime.ranks import process_group

    for model in getattr(chosen, "model", ()):
        if model != "pixels":
            check_name(model)
    module, function = path.split(":")
    with process_group(choose_device(chosen.device)) as device:
        getattr(import_module(module), function)(replace(chosen, device=str(device)))
    return 0
