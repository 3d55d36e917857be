"""Commands of `python -m training`. Their modules import torch late, so that `--help` is fast."""

COMMANDS = {
    "pretrain": "training.commands.arguments:main",
    "evaluate knn": "training.evaluation.options:Knn",
    "evaluate linear": "training.evaluation.options:Linear",
    "evaluate logistic": "training.evaluation.options:Logistic",
    "evaluate retrieval": "training.evaluation.options:Retrieval",
    "evaluate copy-detection": "training.evaluation.options:CopyDetection",
    "evaluate copy-detection synthetic": "training.evaluation.options:CopyDetectionSynthetic",
    "evaluate finetune": "training.evaluation.options:Finetune",
    "evaluate throughput": "training.evaluation.options:Throughput",
    "doctor": "training.commands.doctor:Doctor",
    "study": "training.commands.study:StudyCommand",
}
"""Implementation of each command, see `dino_model.runtime.dispatch`."""
