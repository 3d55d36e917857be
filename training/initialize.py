"""Initialize a training from another run, from an official checkpoint, or with the backbone of any model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dino_model import position
from dino_model.channels import ChannelStatistics
from dino_model.checkpoints import read_torch
from dino_model.weights import LoadedModel, adapt_channels, load_model
from training.checkpoint import first_misfit, read_state
from training.methods.dino import DINO
from training.methods.method import Method
from training.recipe import Recipe
from training.run import Run, RunError
from training.settings import flag


def from_checkpoint(method: Method, recipe: Recipe, path: Path) -> str:
    """Load the networks of a run or of the official code's full checkpoint; return what was taken.

    Raises:
        RunError: No checkpoint, another method, or networks that do not fit.
        WeightsError: A refused file, or a run's checkpoint without its config.json.
    """
    payload = read_torch(path) if path.is_file() else {}
    if {"student", "teacher"} <= set(payload):
        epoch = from_official(method, recipe, path, payload)
        return f"student, teacher, their heads and the center of {path}, epoch {epoch}"
    return f"weights of {path}, step {from_run(method, recipe, path)}"


def from_official(method: Method, recipe: Recipe, path: Path, payload: Mapping[str, Any]) -> int:
    """Load student, teacher, both heads and the center of a checkpoint of facebookresearch/dino.

    Position embeddings of another grid are resampled. Returns the epoch of the checkpoint.

    Raises:
        RunError: Another method, a part that is missing, or sizes that do not fit.

    Source: the keys that main_dino.py of facebookresearch/dino saves.
    """
    if not isinstance(method, DINO):
        raise RunError(
            f"{path} is a checkpoint of DINO, but --method is {recipe.method.name}: pass --method dino, or "
            f"--init-backbone {path} for its backbone"
        )
    center = payload.get("dino_loss", {}).get("center")
    if center is None or center.shape != method.center.shape:
        found = "no center" if center is None else f"a center of shape {tuple(center.shape)}"
        raise RunError(
            f"{path} has {found}, expected {tuple(method.center.shape)} under dino_loss: pass --prototypes "
            f"as it was trained, or --init-backbone {path} for its backbone"
        )
    _refuse_misfits(load_model(str(path)), method, recipe)
    for name in ("student", "teacher"):
        tensors = {key.removeprefix("module."): tensor for key, tensor in payload[name].items()}
        _load_resampled(getattr(method, name), tensors, f"{path}, {name},")
    method.center.copy_(center)
    return int(payload.get("epoch", 0))


def from_run(method: Method, recipe: Recipe, path: Path) -> int:
    """Load the weights of all networks, heads included, from a run's folder or one of its checkpoints.

    The other state of the method (center, queue) keeps its initial value. Position embeddings of another grid
    are resampled. Returns the step of the weights.

    Raises:
        RunError: No checkpoint, another method, or networks that do not fit.
        WeightsError: A checkpoint without its config.json.
    """
    file = path / "checkpoint.pt" if path.is_dir() else path
    try:
        state = read_state(file)
    except RunError as error:
        raise RunError(f"{error}; --init-backbone {file} takes the backbone of any other file") from None
    found = Run(file.parent).config().get("method", recipe.method.name)
    if found != recipe.method.name:
        raise RunError(
            f"{path} was trained with {found}, not {recipe.method.name}: pass --init-backbone {path} for its "
            f"backbone, or --method {found}"
        )
    _refuse_misfits(load_model(str(path)), method, recipe)
    for name, child in method.named_children():
        if any(True for _ in child.parameters()):  # a queue has none
            prefix = f"{name}."
            own = {k.removeprefix(prefix): t for k, t in state["method"].items() if k.startswith(prefix)}
            _load_resampled(child, own, str(path))
    return int(state["step"])


def from_backbone(method: Method, recipe: Recipe, name: str) -> None:
    """Load the weights of a model's backbone into all backbones of the method; positions are resampled.

    Raises:
        RunError: A model of another architecture.
        WeightsError, DownloadError: As `dino_model.weights.load_model`.
    """
    model = load_model(name)
    if recipe.channel_range and not model.channel_range:
        model = adapt_channels(model, ChannelStatistics(recipe.channel_range, recipe.mean, recipe.std))
    _refuse_misfits(model, method, recipe)
    for backbone in method.backbones().values():
        _load_resampled(backbone, model.backbone.state_dict(), name)


def _refuse_misfits(model: LoadedModel, method: Method, recipe: Recipe) -> None:
    backbone = next(iter(method.backbones().values()))
    misfits = model.misfits(backbone, recipe.mean, recipe.std)
    if misfits:
        words = ", ".join(f"{name} {_words(a)} instead of {_words(b)}" for name, (a, b) in misfits.items())
        remedy = " ".join(f"{flag(name)} {_words(found)}" for name, (found, _) in misfits.items() if found)
        raise RunError(f"the weights of {model.name} do not fit the model to train: {words}; pass {remedy}")


def _words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _load_resampled(module: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    tensors, own = dict(tensors), module.state_dict()
    for name, tensor in tensors.items():
        if name.endswith("pos_embed") and name in own and own[name].shape != tensor.shape:
            old, new = (round((t.shape[1] - 1) ** 0.5) for t in (tensor, own[name]))
            tensors[name] = position.resample(tensor, (old, old), (new, new))
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise RunError(f"weights in {where} do not fit the model to train: {first_misfit(error)}") from None
