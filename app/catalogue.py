"""Models that the page offers. Clients choose by name and never send a path."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.runs import Runs, checkpoint_file
from dino_model.weights import OFFICIAL, is_local

SUPERVISED = {
    "deit_small_patch16_224.fb_in1k": "ViT-S/16, supervised on ImageNet-1k (DeiT)",
    "deit_base_patch16_224.fb_in1k": "ViT-B/16, supervised on ImageNet-1k (DeiT)",
}
"""Supervised baselines of the paper by their names in timm."""
CHECKPOINT_SUFFIXES = frozenset({".safetensors", ".pth", ".pt"})


@dataclass(frozen=True)
class Choice:
    """A model of the list.

    Attributes:
        label: Text for users.
        source: Argument of `load_model`; may be a path, which users do not see.
    """

    label: str
    source: str


Catalogue = Mapping[str, Choice]
"""Choices by the names that clients send."""


def catalogue(first: str = "embedded", folder: Path | None = None, *, downloads: bool = True) -> Catalogue:
    """List the first model, those of the package, those in a folder and the published ones.

    Args:
        first: Any name that `load_model` takes, or a path.
        folder: Checkpoint files and training runs in it are offered by name, checkpoints of runs as RUN@STEP.
        downloads: Whether to offer models that are not on this machine.

    Raises:
        FileNotFoundError: `folder` is no folder.
    """
    choices = {
        "embedded": Choice("embedded · trained by this project", "embedded"),
        "random:embedded": Choice("random:embedded · the same network, untrained", "random:embedded"),
    }
    if folder is not None:
        choices |= _in_folder(folder)
    attentive = {name: one.title for name, one in OFFICIAL.items() if one.config.architecture != "resnet50"}
    for name, title in (attentive | SUPERVISED).items():
        if is_local(name):
            choices[name] = Choice(f"{name} · {title}", name)
        elif downloads:
            choices[name] = Choice(f"{name} · {title} · downloads when chosen", name)
    name = Path(first).name if first not in choices and Path(first).exists() else first
    return {name: choices.get(first, Choice(name, first))} | choices


def _in_folder(folder: Path) -> dict[str, Choice]:
    """List checkpoint files, runs, and the checkpoints that runs kept."""
    if not folder.is_dir():
        raise FileNotFoundError(f"--models-dir names no folder: {folder}")
    found = {
        entry.name: Choice(f"{entry.name} · from this server's folder", str(entry))
        for entry in sorted(folder.iterdir())
        if entry.suffix in CHECKPOINT_SUFFIXES or (entry / "checkpoint.pt").is_file()
    }
    for run in Runs(folder).all().values():
        for one in run.checkpoints if run.folder else ():
            if one.step is not None:
                source = str(checkpoint_file(one.model, folder))
                found[one.model] = Choice(f"{run.name} · {one.label}", source)
    return found
