"""Which models the page offers, drawn up anew whenever somebody asks; visitors choose by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.runs import Runs, checkpoint_file
from dino_model.weights import OFFICIAL, is_local

SUPERVISED = {
    "deit_small_patch16_224.fb_in1k": "ViT-S/16, supervised on ImageNet-1k (DeiT)",
    "deit_base_patch16_224.fb_in1k": "ViT-B/16, supervised on ImageNet-1k (DeiT)",
}
"""What the paper compares its maps with, by timm's names."""

CHECKPOINT_SUFFIXES = frozenset({".safetensors", ".pth", ".pt"})


@dataclass(frozen=True)
class Choice:
    """One entry of the list."""

    label: str
    """What a visitor reads."""
    source: str
    """What `dino_model.weights.load_model` takes; may be a path, which a visitor never sees."""
    remote: bool = False
    """Whether choosing it downloads it."""


Catalogue = Mapping[str, Choice]
"""Choices by the name that goes to the browser and comes back."""


def catalogue(
    first: str = "embedded", models_dir: Path | None = None, *, downloads: bool = True
) -> Catalogue:
    """The model the page opens with, the ones everybody knows, and those found in a folder.

    Args:
        first: any name that `load_model` takes, or a path.
        models_dir: checkpoint files and training runs directly inside are offered by their names, and of each
            run the checkpoints that it kept on its way, as RUN@STEP.
        downloads: whether to offer models that are not on this machine.

    Raises:
        FileNotFoundError: `models_dir` is no folder.
    """
    known = {
        "embedded": Choice("embedded · trained by this project", "embedded"),
        "random:embedded": Choice("random:embedded · the same network, untrained", "random:embedded"),
    }
    found = {} if models_dir is None else _local(models_dir) | _on_the_way(models_dir)
    official = {
        name: _choice(name, model.title)
        for name, model in OFFICIAL.items()
        if model.config.architecture != "resnet50"
    }
    supervised = {name: _choice(name, title) for name, title in SUPERVISED.items()}
    published = official | supervised
    everything = known | found | {name: one for name, one in published.items() if downloads or not one.remote}
    if first in everything:
        return {first: everything[first]} | everything
    name = Path(first).name if Path(first).exists() else first  # a visitor sees no path of the server
    return {name: Choice(name, first)} | everything


def _local(folder: Path) -> dict[str, Choice]:
    if not folder.is_dir():
        raise FileNotFoundError(f"--models-dir names no folder: {folder}")
    files = [
        entry
        for entry in sorted(folder.iterdir())
        if entry.suffix in CHECKPOINT_SUFFIXES or (entry / "checkpoint.pt").is_file()
    ]
    return {entry.name: Choice(f"{entry.name} · from this server's folder", str(entry)) for entry in files}


def _on_the_way(folder: Path) -> dict[str, Choice]:
    """What the runs in a folder kept of their steps, by the names that the tab Training gives them too."""
    runs = [run for run in Runs(folder).all().values() if run.folder]
    kept = [(run, one) for run in runs for one in run.checkpoints() if one.step is not None]
    return {
        one.model: Choice(f"{run.name} · {one.label}", str(checkpoint_file(one.model, folder)))
        for run, one in kept
    }


def _choice(name: str, title: str) -> Choice:
    here = is_local(name)
    return Choice(f"{name} · {title}{'' if here else ' · downloads when chosen'}", name, remote=not here)
