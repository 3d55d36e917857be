"""Execution of the lessons while the documentation is built."""

import hashlib
from pathlib import Path

from dino_model.threads import PASSIVE_OMP

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("dino_model", "segmentation", "training", "notebooks")
TIMEOUT_S = 900
"""Longest cell on a busy machine."""


def fingerprint() -> str:
    """Hash everything that the outputs of a lesson depend on besides the lesson itself."""
    digest = hashlib.sha256((ROOT / "dino_model" / "embedded" / "model.safetensors").read_bytes())
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            if package != "notebooks" or not file.name[0].isdigit():
                digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def environment() -> dict[str, str]:
    """Environment variables of the kernels: offline, with threads that sleep while they wait."""
    return PASSIVE_OMP | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
