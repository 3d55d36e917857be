"""Load models by name: the embedded one, the paper's, timm's, files, runs, random weights."""

import copy
import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from dino_model.data.channels import ChannelRange
from dino_model.data.images import IMAGENET_MEAN, IMAGENET_STD
from dino_model.models import attention, hub, position
from dino_model.models.backbones import create_backbone, traits
from dino_model.models.catalogue import EMBEDDED, OFFICIAL, WeightsError, check_module, kind_of, random_config
from dino_model.models.checkpoint import (
    StoredBackbone,
    infer_config,
    load_strictly,
    read_backbone,
    refuse_options,
)
from dino_model.models.configs import BackboneConfig, CheckpointKey, PositionMode
from dino_model.models.families import choose_heads, family_of, position_mode
from dino_model.models.official import family, is_plain, load_official, rename_timm
from dino_model.models.state_names import NetworkError


@dataclass(frozen=True)
class LoadedModel:
    """A backbone with weights.

    Attributes:
        name: Argument of `load_model`.
        backbone: In evaluation mode, without gradients.
        mean, std: Per channel, for normalizing inputs on a scale of 0 to 1.
        source: Origin of the weights, in words.
        config: None for a timm model that is no backbone of this package.
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

        Returns:
            Names of the settings that differ, with the value of this model and the other's.
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
            evaluates, else as `state_names.find_network`.
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
    if kind != "path":
        refuse_options(name, checkpoint_key, checkpoint_prefix)
    match kind:
        case "embedded":
            model = _build(name, read_backbone(EMBEDDED[name]), str(EMBEDDED[name]), "model.safetensors")
        case "official":
            entry, path = OFFICIAL[name], OFFICIAL[name].file.fetch()
            stored = replace(read_backbone(path), config=entry.config)
            model = _build(name, stored, str(path), f"{entry.title} published with the paper, {path.name}")
        case "random":
            model = _load_random(name)
        case "code" if named_by:
            raise WeightsError(
                f"{named_by} names own code, which is not run unless you name it: --model {name}"
            )
        case "code":
            model = _load_own(name)
        case "hosted":
            model = _accept_hosted(name, hub.load(name))
        case "path" if hub.is_repository(path):
            refuse_options(name, checkpoint_key, checkpoint_prefix)
            model = _accept_hosted(name, hub.load_folder(path if path.is_dir() else path.parent))
        case "path":
            stored = read_backbone(path, checkpoint_key, checkpoint_prefix)
            model = _load_stored(name, path, stored, heads)
    if heads is not None:
        _check_heads(model, heads)
    model.backbone.eval().requires_grad_(False)
    return model


def _check_heads(model: LoadedModel, heads: int) -> None:
    try:
        number = attention.readable(model.backbone).heads
    except ValueError:
        raise WeightsError(f"{model.name} is no ViT: leave --heads out") from None
    if number != heads:
        raise WeightsError(f"{model.name} has {number} heads, but --heads is {heads}: leave --heads out")


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
            f"a {type(module).__name__} has no mean and std of its own: pass both or set them as its "
            f"attributes, such as ImageNet's mean={IMAGENET_MEAN}, std={IMAGENET_STD}"
        )
    name = ".".join(filter(None, (described.get("architecture"), described.get("tag"))))
    shared = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    backbone = copy.deepcopy(module, shared).eval()
    if not hasattr(backbone, "position_mode"):
        _accept_any_size(backbone, name)
    title, statistics = name or type(module).__name__, (tuple(map(float, mean)), tuple(map(float, std)))
    return LoadedModel(title, backbone, *statistics, "a module of the caller", None)


def _load_own(name: str) -> LoadedModel:
    """Call own code; its errors are left to the user."""
    check_module(name)
    module, _, function = name.partition(":")
    create: Any = getattr(importlib.import_module(module), function, None)
    if not callable(create):
        raise WeightsError(f"the Python module {module!r} has no function or class {function!r}")
    made: Any = create()
    if not isinstance(made, nn.Module | LoadedModel):
        raise WeightsError(f"{name} returned a {type(made).__name__}, expected a torch.nn.Module")
    model = wrap_module(made) if isinstance(made, nn.Module) else made
    if attention.find_vit(model.backbone) is None:
        attention.readable(model.backbone)  # raises: only a ViT has the outputs that commands read
    return replace(model, name=name, source="own code")


def _accept_hosted(name: str, hosted: hub.Hosted) -> LoadedModel:
    backbone, mean, std, source = hosted
    if not hasattr(backbone, "position_mode"):
        _accept_any_size(backbone, f"{name} {source}")
    return LoadedModel(name, backbone, mean, std, source, None)


def _load_random(name: str) -> LoadedModel:
    config = random_config(name)
    stored = StoredBackbone({}, config) if config else read_backbone(EMBEDDED["embedded"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return _build(name, stored, name, "random weights, seed 0", load=False)


def _load_stored(name: str, path: Path, stored: StoredBackbone, heads: int | None) -> LoadedModel:
    """Load what a file or a run holds: official names, transformers' names, or a description."""
    if "embeddings.cls_token" in stored.tensors:
        return _accept_hosted(name, hub.load_folder(path.parent, stored.tensors))
    source = f"{stored.network} of {path.name}" if stored.network else path.name
    if stored.config is None:
        return _load_bare(name, path, stored, source, heads)
    return _build(name, stored, str(path), source)


def _load_bare(name: str, path: Path, stored: StoredBackbone, source: str, heads: int | None) -> LoadedModel:
    """Load tensors whose architecture is inferred."""
    tensors, where, origin = rename_timm(stored.tensors), str(path), ""
    if "patch_embed.proj.weight" not in tensors:
        heads = None
    elif tensors.keys().isdisjoint(("pos_embed", "storage_tokens")):
        raise WeightsError(f"{where} holds no ViT: it has patches and no pos_embed, as Swin and BEiT do")
    else:
        try:
            heads, origin = choose_heads(tensors, stored.family, heads)
        except NetworkError as error:
            raise WeightsError(f"{where} {error}") from None
    source, kind = f"{source}{origin and f', {origin}'}{stored.note}", family(tensors)
    if heads is None or (is_plain(tensors) and not kind):
        # A bare .pth file is resampled as the official code does; .safetensors is the form that others use.
        mode: PositionMode = "size" if path.suffix == ".safetensors" else "official"
        config = replace(infer_config(tensors, where, heads), position_mode=mode)
        tensors = {key: tensor for key, tensor in tensors.items() if key != "mask_token"}
        return _build(name, replace(stored, config=config, tensors=tensors), where, source)
    backbone = load_official(tensors, where, heads=heads)
    _accept_any_size(backbone, kind)
    mean, std = IMAGENET_MEAN, IMAGENET_STD
    if "sat493m" in path.name:  # models of satellite images have their own statistics
        satellite = timm.get_pretrained_cfg("vit_large_patch16_dinov3.sat493m")
        mean, std = satellite.mean, satellite.std
    return LoadedModel(name, backbone, mean, std, f"{source} ({kind or 'ViT'})", None)


def _build(name: str, stored: StoredBackbone, where: str, source: str, *, load: bool = True) -> LoadedModel:
    """Create the described backbone and load its tensors.

    Without statistics, three channels are normalized by ImageNet's, other numbers of channels are not.
    """
    config = cast(BackboneConfig, stored.config)
    try:
        backbone = create_backbone(config)
    except (ValueError, TypeError) as error:  # a type only where a description was tampered with
        raise WeightsError(f"the backbone described by {where} cannot be created: {error}") from error
    if load:
        load_strictly(backbone, stored.tensors, where)
    channels = config.in_channels
    mean, std = (IMAGENET_MEAN, IMAGENET_STD) if channels == 3 else ((0.0,) * channels, (1.0,) * channels)
    statistics = stored.mean or mean, stored.std or std
    return LoadedModel(name, backbone, *statistics, source, config, stored.channel_range)


def _accept_any_size(backbone: nn.Module, family: str) -> None:
    """Resample the positions of a model to each image, a ViT's in the way of its family."""
    entry = family_of(backbone)
    if entry and (entry.fixed_grid or entry.late_class):
        attention.accept_any_size(backbone)
    is_vit = isinstance(backbone, VisionTransformer) and backbone.pos_embed is not None
    if is_vit and not hasattr(backbone, "dist_token"):
        position.install(backbone, position_mode(family))
