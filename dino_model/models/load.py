"""From a name to a model: the embedded ones, the paper's, timm's, files, runs, own code, random weights."""

import copy
import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dino_model.data.channels import ChannelRange
from dino_model.data.images import IMAGENET_MEAN, IMAGENET_STD
from dino_model.models import attention, conversion
from dino_model.models.backbones import create_backbone, traits
from dino_model.models.catalogue import (
    CONFIG,
    EMBEDDED,
    OFFICIAL,
    WeightsError,
    kind_of,
    random_config,
    read_json,
)
from dino_model.models.checkpoint import StoredBackbone, load_strictly, read_backbone, refuse_options
from dino_model.models.configs import VIT_SHAPES, BackboneConfig, CheckpointKey, PositionMode
from dino_model.models.families import choose_heads


@dataclass(frozen=True)
class LoadedModel:
    """A backbone with weights, in evaluation mode and without gradients.

    Attributes:
        name: Argument of `load_model`.
        mean, std: Per channel, for normalizing inputs on a scale of 0 to 1.
        source: Origin of the weights, in words.
        config: None for a model that is no backbone of this package.
        channel_range: Of a model for images of other channels than RGB.
    """

    name: str
    backbone: nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]
    source: str
    config: BackboneConfig | None
    channel_range: ChannelRange | None = None

    def misfits(
        self, backbone: nn.Module, mean: Sequence[float], std: Sequence[float]
    ) -> dict[str, tuple[Any, Any]]:
        """Compare settings that tensor shapes do not show, such as heads, with those of another backbone.

        Returns the names of the settings that differ, with the value of this model and the other's.
        """
        own = traits(self.backbone) | {"mean": self.mean, "std": self.std}
        expected = traits(backbone) | {"mean": tuple(mean), "std": tuple(std)}
        pairs = {name: (own.get(name), expected.get(name)) for name in own | expected}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def load_model(
    name: str = "embedded",
    *,
    checkpoint_key: CheckpointKey = None,
    checkpoint_prefix: str | None = None,
    heads: int | None = None,
    named_by: Path | None = None,
) -> LoadedModel:
    """Load a model in evaluation mode.

    Position embeddings are resampled in the mode that the file names. Otherwise the mode is that of the
    model's family (`families.PUBLISHED`), or `official` for .pth and .pt files.

    Args:
        name: A name of one of these kinds.
            - `embedded` or `embedded-dino`: the models that are part of this package.
            - A key of `OFFICIAL`, such as `dino_vits16`: downloaded once into the cache.
            - `random:vit_small/16`, `random:resnet50`, `random:embedded`: random weights from seed 0.
            - A file of torch.save or .safetensors (DINO, DINOv2, DINOv3, DeiT, MAE, MoCo-v3, timm).
            - The folder of a training run, or one with config.json that timm or transformers wrote.
            - A name of timm with weights, such as `vit_small_patch14_reg4_dinov2.lvd142m`.
            - `hf:OWNER/NAME`: a Hugging Face repository of timm's or of transformers' ViT or DINOv2 weights.
            - `MODULE:FUNCTION`: own Python code that returns a module, see `protocol.ViT`.
        checkpoint_key: Network of a checkpoint that holds several. Default: the network that the run's method
            evaluates, else as `checkpoint.read_backbone`.
        checkpoint_prefix: Of the backbone's tensors, where the search does not find them.
        heads: Attention heads of a bare checkpoint, see `families.PUBLISHED`. A model that shows its number
            must have this one.
        named_by: File that names the model, None for the user. Own code that a file names is not run.

    Raises:
        WeightsError: Unknown name, own code that a file names, or weights that are broken, refused,
            incomplete, or do not fit.
        DownloadError: Weights that are not on this machine and cannot be downloaded.
    """
    kind, path = kind_of(name), Path(name)
    described = path / CONFIG if path.is_dir() else path.with_name(CONFIG)
    keys = read_json(described).keys() if kind == "path" and described.is_file() else set()
    is_bare = kind == "path" and keys.isdisjoint(("model_type", "architecture"))  # of transformers and timm
    if not is_bare:
        refuse_options(name, checkpoint_key, checkpoint_prefix)
    match kind:
        case "embedded":
            model = _build(name, read_backbone(EMBEDDED[name]), "model.safetensors", where=name)
        case "official":
            entry, path = OFFICIAL[name], OFFICIAL[name].file.fetch()
            stored = replace(read_backbone(path), config=entry.config)
            source = f"{entry.title} published with the paper, {path.name}"
            model = _build(name, stored, source, where=str(path))
        case "random":
            config = random_config(name)
            stored = StoredBackbone({}, config) if config else read_backbone(EMBEDDED["embedded"])
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                model = _build(name, stored, "random weights, seed 0", where=None)
        case "code" if named_by:
            raise WeightsError(f"{named_by} names own code, which runs only if you name it: --model {name}")
        case "code":
            model = _load_own(name)
        case "hosted":
            model = LoadedModel(name, *conversion.load_hosted(name), None)
        case "path" if is_bare:
            stored = read_backbone(path, checkpoint_key, checkpoint_prefix)
            source = f"{stored.network} of {path.name}" if stored.network else path.name
            if stored.config:
                model = _build(name, stored, source, where=name)
            else:
                model = _load_bare(name, stored, source, heads)
        case "path":
            model = LoadedModel(name, *conversion.load_described(path), None)
    if heads is not None:
        _check_heads(model, heads)
    model.backbone.eval().requires_grad_(False)
    return model


def _build(name: str, stored: StoredBackbone, source: str, where: str | None) -> LoadedModel:
    """Create the backbone that `stored.config` describes, and load its tensors.

    Without statistics, three channels are normalized by ImageNet's, other numbers of channels are not.
    `where` is the place of the tensors, for messages; None keeps the random weights.

    Raises:
        WeightsError: An impossible configuration, or tensors that do not fit.
    """
    config: Any = stored.config
    try:
        backbone = create_backbone(config)
    except (ValueError, TypeError) as error:  # a type only where a description was tampered with
        raise WeightsError(f"the backbone described by {name} cannot be created: {error}") from error
    if where:
        load_strictly(backbone, stored.tensors, where)
    channels = config.in_channels
    mean, std = (IMAGENET_MEAN, IMAGENET_STD) if channels == 3 else ((0.0,) * channels, (1.0,) * channels)
    statistics = stored.mean or mean, stored.std or std
    return LoadedModel(name, backbone, *statistics, source, config, stored.channel_range)


def _load_bare(file: str, stored: StoredBackbone, source: str, heads: int | None) -> LoadedModel:
    """Load tensors without a description: a ResNet-50, DINO's ViT, or a ViT that `build_vit` builds."""
    tensors = {name: tensor for name, tensor in stored.tensors.items() if name != "mask_token"}
    if "patch_embed.proj.weight" in tensors:
        heads, origin = choose_heads(tensors, stored.names, file, heads)
        source += f", {origin}" if origin else ""
    elif "layer1.0.conv1.weight" not in tensors:
        raise WeightsError(f"{file} has transformers' names: put its {CONFIG} next to it")
    source += stored.note
    if config := _infer_config(tensors, heads):
        # A bare .pth file is resampled as the official code does; .safetensors is the form that others use.
        mode: PositionMode = "size" if file.endswith(".safetensors") else "official"
        stored = replace(stored, tensors=tensors, config=replace(config, position_mode=mode))
        return _build(file, stored, source, where=file)
    backbone, kind = conversion.build_vit(stored.tensors, file, heads=heads or 0)
    attention.accept_any_size(backbone, kind)
    return LoadedModel(file, backbone, IMAGENET_MEAN, IMAGENET_STD, f"{source} ({kind})", None)


def _infer_config(tensors: Mapping[str, Tensor], heads: int | None) -> BackboneConfig | None:
    """Return the configuration whose backbone has these names and shapes; None for ViTs that none has."""
    if "layer1.0.conv1.weight" in tensors:
        return BackboneConfig("resnet50", in_channels=tensors["conv1.weight"].shape[1])
    positions = tensors.get("pos_embed")
    if positions is None or positions.ndim != 3 or positions.shape[1] < 2:
        return None
    width, channels, patch_size, _ = tensors["patch_embed.proj.weight"].shape
    side = math.isqrt(positions.shape[1] - 1)
    shape = width, len({name.split(".")[1] for name in tensors if name.startswith("blocks.")}), heads
    known = next((name for name, usual in VIT_SHAPES.items() if usual == shape), None)
    overrides = () if known else shape
    config = BackboneConfig(known or "vit_small", patch_size, side * patch_size, channels, *overrides)
    with torch.device("meta"):
        expected = create_backbone(config).state_dict()
    shapes = [{name: each.shape for name, each in group.items()} for group in (expected, tensors)]
    return config if shapes[0] == shapes[1] else None


def _check_heads(model: LoadedModel, heads: int) -> None:
    try:
        number = attention.readable(model.backbone).heads
    except ValueError:
        raise WeightsError(f"{model.name} is no ViT: leave --heads out") from None
    if number != heads:
        raise WeightsError(f"{model.name} has {number} heads, but --heads is {heads}: pass --heads {number}")


def wrap_module(
    module: nn.Module, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
) -> LoadedModel:
    """Describe a module that another program made; it shares its weights with the result.

    Args:
        module: A model of timm, which is made to accept images of any size, or a ViT of `protocol.ViT`.
        mean, std: Per channel, on a scale of 0 to 1. Default: attributes of the module, or timm's.

    Raises:
        ValueError: A module without mean and standard deviation.
    """
    described = getattr(module, "pretrained_cfg", None) or {}
    mean = mean or getattr(module, "mean", described.get("mean"))
    std = std or getattr(module, "std", described.get("std"))
    if mean is None or std is None:
        raise ValueError(
            f"a {type(module).__name__} has no mean and std: set both as its attributes, such as ImageNet's "
            f"mean = {IMAGENET_MEAN}, std = {IMAGENET_STD}"
        )
    name = ".".join(filter(None, (described.get("architecture"), described.get("tag"))))
    shared = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    backbone = copy.deepcopy(module, shared).eval()
    if not hasattr(backbone, "position_mode"):
        attention.accept_any_size(backbone, name)
    title, statistics = name or type(module).__name__, (tuple(map(float, mean)), tuple(map(float, std)))
    return LoadedModel(title, backbone, *statistics, "a module of the caller", None)


def _load_own(name: str) -> LoadedModel:
    """Call own code; errors of the call are left to the user."""
    module, _, function = name.partition(":")
    try:
        create: Any = getattr(importlib.import_module(module), function, None)
    except Exception as error:
        kind = type(error).__name__
        raise WeightsError(f"the Python module {module!r} cannot be imported: {kind}: {error}") from error
    if not callable(create):
        raise WeightsError(f"the Python module {module!r} has no function or class {function!r}")
    made: Any = create()
    if not isinstance(made, nn.Module | LoadedModel):
        raise WeightsError(f"{name} returned a {type(made).__name__}, expected a torch.nn.Module")
    backbone = made if isinstance(made, nn.Module) else made.backbone
    if attention.find_vit(backbone) is None:
        attention.readable(backbone)  # raises: only a ViT has the outputs that commands read
    model = wrap_module(made) if isinstance(made, nn.Module) else made
    return replace(model, name=name, source="own code")
