"""Initialize a training from another run, from an official checkpoint, or with the backbone of any model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dino_model.data.channels import ChannelStatistics
from dino_model.models import position
from dino_model.models.adaptation import adapt_channels
from dino_model.models.catalogue import is_path
from dino_model.models.checkpoint import WRAPPERS, read_torch
from dino_model.models.load import LoadedModel, load_model
from dino_model.runtime.errors import pluralize
from training.methods.method import Method
from training.recipes.recipe import Recipe, method_of
from training.recipes.validation import flag
from training.run.checkpoint import first_misfit, read_state
from training.run.folder import Run, RunError


def from_checkpoint(method: Method, recipe: Recipe, path: Path) -> str:
    """Load all networks, heads included, of a run or of the official code's full checkpoint.

    A run is named by its folder or one of its checkpoints; center and queue keep their initial values. Of a
    checkpoint of facebookresearch/dino the center is loaded, too. Position embeddings of another grid are
    resampled.

    Returns:
        What was loaded, in words.

    Raises:
        RunError: No checkpoint, another method, a part that is missing, or networks that do not fit.
        WeightsError: A refused file, or a run's checkpoint without its config.json.

    Source: main_dino.py of facebookresearch/dino saves the keys of an official checkpoint.
    """
    payload = read_torch(path) if path.is_file() else {}
    networks = [name for name, child in method.named_children() if any(True for _ in child.parameters())]
    loaded = tuple(f"{name}." for name in networks)
    if {"student", "teacher"} <= set(payload):
        trained, words = "dino", f"student, teacher, their heads and the center of {path}"
        words += f", epoch {payload.get('epoch', 0)}"
        pairs = [(name, *pair) for name in ("student", "teacher") for pair in payload[name].items()]
        tensors = {f"{name}.{WRAPPERS.sub('', key)}": tensor for name, key, tensor in pairs}
        loaded = (*loaded, "center")
        tensors |= {key: tensor for key, tensor in payload.get("dino_loss", {}).items() if key == "center"}
    else:
        file = Run(path).checkpoint if path.is_dir() else path
        try:
            state = read_state(file)
        except RunError as error:
            raise RunError(f"{error}; --init-backbone {file} takes the backbone of any other file") from None
        trained, words = method_of(Run(file.parent).config()), f"weights of {path}, step {state['step']}"
        tensors = {key: tensor for key, tensor in state["method"].items() if key.startswith(loaded)}
    if recipe.method.name != trained:
        raise RunError(
            f"{path} was trained with {trained}, but --method is {recipe.method.name}: pass --method "
            f"{trained}, or --init-backbone {path} for its backbone"
        )
    _refuse_misfits(load_model(str(path)), method, recipe)
    initial = {key: tensor for key, tensor in method.state_dict().items() if not key.startswith(loaded)}
    _load_resampled(method, initial | tensors, str(path))
    return words


def from_backbone(method: Method, recipe: Recipe, name: str) -> None:
    """Load the weights of a model's backbone into all backbones of the method; positions are resampled.

    Raises:
        RunError: A model of another architecture, or of none that can be trained.
        WeightsError, DownloadError: As `dino_model.models.load.load_model`.
    """
    model = load_model(name, heads=recipe.backbone.heads if is_path(name) else None)
    if recipe.channel_range and not model.channel_range:
        model = adapt_channels(model, ChannelStatistics(recipe.channel_range, recipe.mean, recipe.std))
    _refuse_misfits(model, method, recipe)
    for backbone in method.backbones().values():
        _load_resampled(backbone, model.backbone.state_dict(), name)


def _refuse_misfits(model: LoadedModel, method: Method, recipe: Recipe) -> None:
    backbone = next(iter(method.backbones().values()))
    found, expected = _kind(model.backbone), _kind(backbone)
    if found != expected:
        raise RunError(
            f"{model.name} is a {found}, expected a {expected} for --architecture "
            f"{recipe.backbone.architecture}: only timm's VisionTransformer with [CLS] alone and ResNet-50 "
            "can be trained"
        )
    misfits = model.misfits(backbone, recipe.mean, recipe.std)
    if misfits:
        words = ", ".join(f"{name} {_words(a)} instead of {_words(b)}" for name, (a, b) in misfits.items())
        remedy = " ".join(f"{flag(name)} {_words(found)}" for name, (found, _) in misfits.items() if found)
        raise RunError(f"the weights of {model.name} do not fit the model to train: {words}; pass {remedy}")


def _kind(backbone: nn.Module) -> str:
    prefix = getattr(backbone, "num_prefix_tokens", 0)
    return type(backbone).__name__ + (f" with {pluralize(prefix, 'prefix token')}" if prefix else "")


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
