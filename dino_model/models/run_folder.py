"""Names of the files in the folder of a training run; `training.run.folder` describes and writes them."""

import re
from pathlib import Path

CONFIG = "config.json"
CHECKPOINT = "checkpoint.pt"
LOG = "log.jsonl"
_MILESTONE = re.compile(r"step-(\d{8,12})\.pt")


def milestone_name(step: int) -> str:
    """Name of the checkpoint after `step` steps that stays."""
    return f"step-{step:08d}.pt"


def milestones(folder: Path) -> list[tuple[int, Path]]:
    """Steps and files of the checkpoints that stay, in the order of the steps."""
    named = ((_MILESTONE.fullmatch(path.name), path) for path in folder.glob("step-*.pt"))
    return sorted((int(name[1]), path) for name, path in named if name)
