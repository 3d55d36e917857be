"""Names to models: the embedded one, those published with the paper, timm's, files, runs, random weights."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import huggingface_hub
import timm
import torch
from timm.models.beit import Beit
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from dino_model import hub, position, relative
from dino_model.backbones import BackboneConfig, create_backbone, traits
from dino_model.checkpoints import (
    SUFFIXES,
    CheckpointKey,
    StoredBackbone,
    WeightsError,
    infer_config,
    load_strictly,
    read_backbone,
)
from dino_model.download import cache_folder, fetch
from dino_model.images import IMAGENET_MEAN, IMAGENET_STD
from dino_model.official import is_official, load_official
from dino_model.position import PositionMode

EMBEDDED_FILE = Path(__file__).parent / "embedded" / "model.safetensors"
OFFICIAL_ADDRESS = "https://dl.fbaipublicfiles.com/dino"


@dataclass(frozen=True)
class LoadedModel:
    """A backbone with weights, ready to look at pictures."""

    name: str
    """What `load_model` was asked for."""
    backbone: nn.Module
    """In evaluation mode, without gradients."""
    mean: tuple[float, ...]
    """Mean of each channel that inputs are normalised with, on a scale of 0 to 1."""
    std: tuple[float, ...]
    """Standard deviation, likewise."""
    source: str
    """Where the weights came from, for people."""
    config: BackboneConfig | None
    """None for a timm model that is no backbone of this package."""

    def misfits(
        self, backbone: nn.Module, mean: Sequence[float], std: Sequence[float]
    ) -> dict[str, tuple[Any, Any]]:
        """What keeps `backbone`, fed with pictures normalised so, from being trained on from these weights.

        Shapes of tensors do not tell it: heads cut the same matrix otherwise, pictures of other figures look
        strange. Returns names of settings with what was found here and what is expected there.
        """
        found = traits(self.backbone) | {"mean": self.mean, "std": self.std}
        expected = traits(backbone) | {"mean": tuple(mean), "std": tuple(std)}
        names = dict.fromkeys([*found, *expected])
        return {
            name: (found.get(name), expected.get(name))
            for name in names
            if found.get(name) != expected.get(name)
        }


@dataclass(frozen=True)
class Scores:
    """Figures published for a model, in percent; None where none is published."""

    knn: float | None = None
    """ImageNet-1k top-1 of weighted k-NN, k = 20."""
    linear: float | None = None
    """ImageNet-1k top-1 of a linear classifier on frozen features."""
    voc: float | None = None
    """VOC12 Jaccard of attention masks that keep 60 % of the mass."""
    davis: float | None = None
    """DAVIS-2017 mean of J and F."""


@dataclass(frozen=True)
class OfficialWeights:
    """One model published with the paper. No checksum is: length and strict loading are the checks."""

    title: str
    stem: str
    """Name of the file without its suffix, and of its folder."""
    config: BackboneConfig
    scores: Scores = field(default_factory=Scores)
    note: str = ""
    licence: str = "Apache-2.0"

    @property
    def file_name(self) -> str:
        """Name of the file, as published and in the cache."""
        return f"{self.stem}.pth"

    @property
    def address(self) -> str:
        """Where the file is published."""
        return f"{OFFICIAL_ADDRESS}/{self.stem}/{self.file_name}"


def _official_vit(size: str, patch_size: int) -> BackboneConfig:
    return BackboneConfig(f"vit_{size}", patch_size, position_mode="official")


_WHICH_VITS8 = (
    "The paper gives a VOC12 Jaccard of 44.7 for ViT-S/8 without saying for which of its two checkpoints."
)

OFFICIAL: dict[str, OfficialWeights] = {
    "dino_vits16": OfficialWeights(
        "ViT-S/16", "dino_deitsmall16_pretrain", _official_vit("small", 16), Scores(74.5, 77.0, 45.9, 61.8)
    ),
    "dino_vits8": OfficialWeights(
        "ViT-S/8",
        "dino_deitsmall8_pretrain",
        _official_vit("small", 8),
        Scores(78.3, 79.7, 44.7, 69.9),
        _WHICH_VITS8,
    ),
    "dino_vitb16": OfficialWeights(
        "ViT-B/16", "dino_vitbase16_pretrain", _official_vit("base", 16), Scores(76.1, 78.2, None, 62.3)
    ),
    "dino_vitb8": OfficialWeights(
        "ViT-B/8", "dino_vitbase8_pretrain", _official_vit("base", 8), Scores(77.4, 80.1, None, 71.4)
    ),
    "dino_vits8_300ep": OfficialWeights(
        "ViT-S/8, 300 epochs",
        "dino_deitsmall8_300ep_pretrain",
        _official_vit("small", 8),
        note=f"The model behind the paper's figures. {_WHICH_VITS8}",
    ),
    "dino_resnet50": OfficialWeights(
        "ResNet-50",
        "dino_resnet50_pretrain",
        BackboneConfig("resnet50"),
        Scores(67.5, 75.3),
        "No attention maps.",
    ),
}
"""The models published with the paper and the figures it and its repository give for them."""


def load_model(
    name: str = "embedded",
    *,
    checkpoint_key: CheckpointKey = None,
    patch_size: int | None = None,
    position_mode: PositionMode | None = None,
) -> LoadedModel:
    """The model called `name`, in evaluation mode.

    Args:
        name: one of
            `embedded`, the model that is part of this package;
            a key of `OFFICIAL`, such as `dino_vits16`, downloaded once into the cache;
            `random:ARCHITECTURE/PATCH`, such as `random:vit_small/16`, `random:resnet50` or `random:embedded`
            (architecture of the embedded model): fresh weights from seed 0;
            a .pth, .pt or .safetensors file, DINOv2's and DINOv3's included, or the folder of a training run;
            any name that timm has weights for, such as `vit_small_patch14_reg4_dinov2.lvd142m`;
            `hf:OWNER/NAME`, a Hugging Face repository of timm's or of transformers' ViT or DINOv2 weights.
        checkpoint_key: which network of a checkpoint that holds several; None: the teacher, or what the run's
            method evaluates.
        patch_size: the patch size that is expected; None takes what there is.
        position_mode: how position embeddings are resampled; None takes what the file says, then the way of
            the model's family (`position.FAMILIES`), and `official` for .pth and .pt files that do not say.

    Raises:
        WeightsError: unknown name, or weights that are broken, refused or incomplete, or do not fit.
        DownloadError: weights that are not here and cannot be fetched.
    """
    if is_path(name):
        model = _load_file(name, Path(name), checkpoint_key, position_mode)
    elif checkpoint_key not in (None, "teacher"):
        raise WeightsError(
            f"{name} is a single network and has no {checkpoint_key}: leave the checkpoint key out"
        )
    else:
        model = _load_single(name, position_mode)
    _expect_patch_size(model, patch_size)
    model.backbone.eval().requires_grad_(False)
    return model


def is_local(name: str) -> bool:
    """Whether `load_model(name)` needs no network.

    Raises:
        WeightsError: a timm name with a tag that timm does not have.
    """
    if name in OFFICIAL:
        return (cache_folder() / OFFICIAL[name].file_name).is_file()
    if name in ("embedded", "random:embedded"):
        return EMBEDDED_FILE.is_file()
    if name.startswith("random:") or is_path(name):
        return True
    if hub.is_hosted(name):
        return hub.is_local(name)
    return timm.is_model(name) and _cached_timm_file(name) is not None


def download_of(name: str) -> tuple[str, str] | None:
    """Address, and name in the cache, of the file that `load_model(name)` would fetch; None where it is here.

    Raises:
        WeightsError: a timm name without weights that can be read.
    """
    if is_local(name):
        return None
    if name in OFFICIAL:
        return OFFICIAL[name].address, OFFICIAL[name].file_name
    return _timm_download(name) if timm.is_model(name) else None


def is_path(name: str) -> bool:
    """Whether a name means a file or folder, there or not."""
    known = name in OFFICIAL or name == "embedded" or name.startswith(("random:", hub.PREFIX))
    return not known and bool(name) and (Path(name).exists() or Path(name).suffix in SUFFIXES)


def _load_single(name: str, position_mode: PositionMode | None) -> LoadedModel:
    """A model that is told by its name alone."""
    if name == "embedded":
        return _load_file(name, _embedded_file(), None, position_mode)
    if name.startswith("random:"):
        return _load_random(name, position_mode)
    if name in OFFICIAL:
        return _load_official(name, position_mode)
    if hub.is_hosted(name):
        return _load_hosted(name, position_mode)
    if timm.is_model(name):
        return _load_timm(name, position_mode)
    raise WeightsError(_unknown(name))


def _load_random(name: str, position_mode: PositionMode | None) -> LoadedModel:
    architecture, _, patch = name.removeprefix("random:").partition("/")
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    if architecture == "embedded" and not patch:
        stored = read_backbone(_embedded_file())
        config, mean, std = _described(stored, "the embedded model")
    elif architecture == "resnet50" and not patch:
        config = BackboneConfig("resnet50")
    elif patch.isdecimal():
        config = BackboneConfig(architecture, int(patch))
    else:
        raise WeightsError(
            f"{name!r} names no architecture: write random:vit_small/16, random:resnet50 or random:embedded"
        )
    config = _with_mode(config, position_mode)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = _create(config, name)
    return LoadedModel(name, backbone, mean, std, "random weights, seed 0", config)


def _load_official(name: str, position_mode: PositionMode | None) -> LoadedModel:
    entry = OFFICIAL[name]
    path = fetch(entry.address, entry.file_name, read_backbone)
    stored = replace(read_backbone(path), config=entry.config)
    return _build(
        name, stored, position_mode, str(path), f"{entry.title} published with the paper, {entry.file_name}"
    )


def _load_file(
    name: str, path: Path, checkpoint_key: CheckpointKey, position_mode: PositionMode | None
) -> LoadedModel:
    stored = read_backbone(path, checkpoint_key)
    if stored.config is None and is_official(stored.tensors):
        return _load_dinov2_or_3(name, path, stored, position_mode)
    if stored.config is None:
        # A bare file does not say how its positions are to be resampled. What torch saved is taken as the
        # official code takes it, whatever the file is called; .safetensors is the form that others use.
        mode: PositionMode = "size" if path.suffix == ".safetensors" else "official"
        stored = replace(stored, config=replace(infer_config(stored.tensors, str(path)), position_mode=mode))
    source = f"{stored.network} of {path.name}" if stored.network else path.name
    return _build(name, stored, position_mode, str(path), source)


def _load_dinov2_or_3(
    name: str, path: Path, stored: StoredBackbone, position_mode: PositionMode | None
) -> LoadedModel:
    """A file that DINOv2 or DINOv3 publishes; models of satellite images have their own statistics."""
    backbone, family = load_official(stored.tensors, str(path))
    if position_mode is not None:
        position.install(backbone, position_mode)
    mean, std = IMAGENET_MEAN, IMAGENET_STD
    if "sat493m" in path.name:
        satellite = timm.get_pretrained_cfg("vit_large_patch16_dinov3.sat493m")
        mean, std = satellite.mean, satellite.std
    return LoadedModel(name, backbone, mean, std, f"{path.name} ({family})", None)


def _build(
    name: str, stored: StoredBackbone, position_mode: PositionMode | None, where: str, source: str
) -> LoadedModel:
    config, mean, std = _described(stored, where)
    config = _with_mode(config, position_mode)
    backbone = _create(config, where)
    load_strictly(backbone, stored.tensors, where)
    return LoadedModel(name, backbone, mean, std, source, config)


def _create(config: BackboneConfig, where: str) -> nn.Module:
    try:
        return create_backbone(config)
    except (ValueError, TypeError) as error:  # a type only where a description was tampered with
        raise WeightsError(f"the backbone described by {where} cannot be: {error}") from error


def _described(
    stored: StoredBackbone, where: str
) -> tuple[BackboneConfig, tuple[float, ...], tuple[float, ...]]:
    """Architecture and normalisation: the file's own, or ImageNet's for three channels."""
    assert stored.config is not None
    if stored.mean is not None and stored.std is not None:
        return stored.config, stored.mean, stored.std
    if stored.config.in_channels == 3:
        return stored.config, IMAGENET_MEAN, IMAGENET_STD
    # Nothing is known about such channels but that they were trained on the scale of 0 to 1.
    return stored.config, (0.0,) * stored.config.in_channels, (1.0,) * stored.config.in_channels


def _load_timm(name: str, position_mode: PositionMode | None) -> LoadedModel:
    path = _cached_timm_file(name) or fetch(*_timm_download(name), read_backbone)
    backbone = _create_timm(name, path)
    resamples = isinstance(backbone, VisionTransformer) and backbone.pos_embed is not None
    resamples = resamples and not hasattr(backbone, "dist_token")
    if resamples:
        position.install(backbone, position_mode or position.official_mode(name))
    elif position_mode is not None:
        raise WeightsError(
            f"{name} has no position embeddings that mode {position_mode!r} could resample: leave it out"
        )
    if isinstance(backbone, Beit):
        relative.install(backbone)
    settings: Any = backbone.pretrained_cfg
    return LoadedModel(
        name, backbone, tuple(settings["mean"]), tuple(settings["std"]), f"timm weights {name}", None
    )


def _load_hosted(name: str, position_mode: PositionMode | None) -> LoadedModel:
    hosted = hub.load(name)
    if isinstance(hosted.backbone, VisionTransformer) and hosted.backbone.pos_embed is not None:
        mode = position_mode or position.official_mode(f"{name} {hosted.kind}")
        position.install(hosted.backbone, mode)
    elif position_mode is not None:
        raise WeightsError(f"{name} has no position embeddings that mode {position_mode!r} could resample")
    if isinstance(hosted.backbone, Beit):
        relative.install(hosted.backbone)
    source = f"https://huggingface.co/{name.removeprefix(hub.PREFIX)} ({hosted.kind})"
    return LoadedModel(name, hosted.backbone, hosted.mean, hosted.std, source, None)


def _create_timm(name: str, path: Path) -> nn.Module:
    """Model with its classifier loaded strictly, then taken off: timm is lenient where the classes differ."""
    sizes = [{"dynamic_img_size": True, "dynamic_img_pad": True}, {"dynamic_img_size": True}, {}]
    for options in sizes:  # most capable first: which of them a model takes is only told by its constructor
        try:
            model = timm.create_model(
                name, pretrained=True, pretrained_cfg_overlay={"file": str(path)}, **options
            )
        except TypeError as error:
            if "dynamic_img" not in str(error):
                raise
        except Exception as error:  # timm and safetensors raise many kinds
            reason = " ".join(line.strip() for line in str(error).splitlines()[:2])
            raise WeightsError(
                f"the timm weights in {path} do not load ({reason}): delete the file to fetch it anew"
            ) from error
        else:
            model.reset_classifier(0)
            return model
    raise WeightsError(f"timm's {name} cannot be created")


def _timm_download(name: str) -> tuple[str, str]:
    """Address and file name in the cache of timm's weights; only .safetensors, never pickles."""
    return huggingface_hub.hf_hub_url(_timm_repository(name), "model.safetensors"), f"{name}.safetensors"


def _cached_timm_file(name: str) -> Path | None:
    """Weights that are here already, in this package's cache or in the one that timm itself fills."""
    own = cache_folder() / f"{name}.safetensors"
    shared = huggingface_hub.try_to_load_from_cache(_timm_repository(name), "model.safetensors")
    return own if own.is_file() else Path(shared) if isinstance(shared, str) else None


def _timm_repository(name: str) -> str:
    try:
        settings = timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        raise WeightsError(f"timm has no such weights: {error}") from error
    if settings is None or not settings.hf_hub_id or settings.hf_hub_filename:
        raise WeightsError(f"timm publishes no .safetensors weights for {name!r}: choose another name")
    return str(settings.hf_hub_id)


def _embedded_file() -> Path:
    if not EMBEDDED_FILE.is_file():
        raise WeightsError(
            "the package here has no embedded model (dino_model/embedded/model.safetensors is missing): "
            "install it anew, or choose another model, such as dino_vits16 or random:vit_small/16"
        )
    return EMBEDDED_FILE


def _with_mode(config: BackboneConfig, position_mode: PositionMode | None) -> BackboneConfig:
    return config if position_mode is None else replace(config, position_mode=position_mode)


def _expect_patch_size(model: LoadedModel, asked: int | None) -> None:
    if asked is None:
        return
    embedding = getattr(model.backbone, "patch_embed", None)
    found = None if embedding is None else embedding.patch_size[0]
    if found is None:
        raise WeightsError(f"{model.name} has no patches, asked for patch {asked}: leave the patch size out")
    if found != asked:
        what = "a timm model" if model.config is None else model.config.architecture
        raise WeightsError(
            f"no weights with patch {asked} in {model.name}: found {what} with patch {found} "
            f"({model.source}); ask for patch size {found} or choose other weights"
        )


def _unknown(name: str) -> str:
    known = ["embedded", *OFFICIAL, *timm.list_models(pretrained=True)]
    close = difflib.get_close_matches(name, known, n=3)
    hint = f" (did you mean {' or '.join(close)}?)" if close else ""
    return (
        f"unknown model {name!r}{hint}: give 'embedded', one of {', '.join(OFFICIAL)}, "
        "random:ARCHITECTURE/PATCH, a timm name, hf:OWNER/NAME, or an existing file or training run"
    )
