"""Read every form a backbone is stored in, without running pickled code, and load it strictly.

Forms: this package's self-describing .safetensors, a training run's folder, the official code's backbones and
full checkpoints, and bare state dicts.
"""

import argparse
import json
import math
import pickle
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from dino_model.data.channels import ChannelRange
from dino_model.models.configs import VIT_SHAPES, BackboneConfig, CheckpointKey
from dino_model.runtime import files

OFFICIAL_NETWORKS = ("teacher", "student")
FORMAT = "dino-attention-lab/1"
SUFFIXES = (".pth", ".pt", ".safetensors")


class WeightsError(ValueError):
    """Weights that cannot be loaded. The message is one sentence."""


@dataclass(frozen=True)
class StoredBackbone:
    """Content of a file: the tensors of one backbone and, where the file describes itself, the rest.

    `network` is its name among several; None if the file holds only one.
    """

    tensors: dict[str, Tensor]
    config: BackboneConfig | None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    network: CheckpointKey = None
    channel_range: ChannelRange | None = None


def read_backbone(path: Path, checkpoint_key: CheckpointKey = None) -> StoredBackbone:
    """Read tensors and description of a backbone.

    Args:
        path: .safetensors, .pth or .pt file, or a run's folder with config.json and checkpoint.pt.
        checkpoint_key: Network of several. Default: the teacher, or the one that the run's method evaluates.

    Raises:
        WeightsError: No such file, an unreadable or refused one, or one without such a backbone.
    """
    if path.is_dir():
        return _read_run(path, checkpoint_key)
    if not path.is_file():
        raise WeightsError(f"no file or folder {str(path)!r}")
    if path.suffix == ".safetensors":
        return _read_safetensors(path, checkpoint_key)
    payload = read_torch(path)
    if "method" in payload:
        if not (path.parent / "config.json").is_file():
            raise WeightsError(f"{path} is part of a training run: put its config.json next to it")
        return _read_run(path.parent, checkpoint_key, path.name)
    tensors, network = _select_network(payload, checkpoint_key, str(path))
    return StoredBackbone(tensors, None, network=network)


def write_safetensors(
    backbone: nn.Module,
    path: Path,
    *,
    config: BackboneConfig,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    channel_range: ChannelRange | None = None,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write a backbone as a self-describing file, floating-point tensors in `dtype`, whole or not at all.

    Raises:
        WeightsError: A value that `dtype` cannot hold.
        OSError: `path` cannot be written.
    """
    tensors = {
        name: tensor.detach().to("cpu", dtype if tensor.is_floating_point() else tensor.dtype).contiguous()
        for name, tensor in backbone.state_dict().items()
    }
    broken = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if broken:
        raise WeightsError(
            f"{broken[0]} has values that {dtype} cannot hold: choose fp32, or repair the weights"
        )
    metadata = {
        "format": FORMAT,
        "backbone": json.dumps(asdict(config)),
        "mean": json.dumps(mean),
        "std": json.dumps(std),
    }
    if channel_range:
        metadata["channel_range"] = json.dumps(asdict(channel_range))
    with files.replacing(path) as temporary:
        temporary.write_bytes(safetensors.torch.save(tensors, metadata))


def load_strictly(backbone: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Copy tensors into a backbone that has exactly these names and shapes; raise WeightsError otherwise."""
    try:
        names = backbone.load_state_dict(dict(tensors), strict=False)
    except RuntimeError as error:  # of shapes; its second line names the first tensor
        reason = str(error).splitlines()[1].strip()
        raise WeightsError(f"the weights in {where} do not fit the model: {reason}") from None
    # Older files lack batch norm's counter, which nothing in evaluation reads.
    missing = [name for name in names.missing_keys if not name.endswith("num_batches_tracked")]
    faults = {"missing": missing, "not expected": names.unexpected_keys}
    reasons = [f"{len(keys)} {fault} ({_few(keys)})" for fault, keys in faults.items() if keys]
    if reasons:
        raise WeightsError(f"the weights in {where} do not fit the model: tensors {', '.join(reasons)}")


def infer_config(tensors: Mapping[str, Tensor], where: str) -> BackboneConfig:
    """Infer the architecture of bare tensors; heads are taken as 64 wide, as in the paper.

    Raises:
        WeightsError: Tensors of no backbone of this package.
    """
    first = tensors.get("conv1.weight")
    if "layer1.0.conv1.weight" in tensors and first is not None and first.ndim == 4:
        return BackboneConfig("resnet50", in_channels=first.shape[1])
    projection, positions = tensors.get("patch_embed.proj.weight"), tensors.get("pos_embed")
    if projection is None or positions is None or (projection.ndim, positions.ndim) != (4, 3):
        raise WeightsError(f"{where} holds no DINO backbone: found {len(tensors)} tensors ({_few(tensors)})")
    width, channels, patch_size, _ = projection.shape
    side = math.isqrt(max(0, positions.shape[1] - 1))
    if not side or side * side != positions.shape[1] - 1 or width % 64:
        raise WeightsError(
            f"{where} does not describe itself: found {positions.shape[1]} positions of width {width}, "
            "expected a square grid and heads of 64; export it as .safetensors from its run"
        )
    depth = len({name.split(".")[1] for name in tensors if name.startswith("blocks.")})
    shape = (width, depth, width // 64)
    known = next((name for name, paper_shape in VIT_SHAPES.items() if paper_shape == shape), None)
    overrides = () if known else shape
    return BackboneConfig(known or "vit_small", patch_size, side * patch_size, channels, *overrides)


def _read_run(
    folder: Path, checkpoint_key: CheckpointKey, file_name: str = "checkpoint.pt"
) -> StoredBackbone:
    """Read a training run's folder: the description in config.json, tensors in checkpoint.pt."""
    for needed in ("config.json", file_name):
        if not (folder / needed).is_file():
            raise WeightsError(f"{str(folder)!r} is no training run: it has no {needed}")
    where = str(folder / "config.json")
    try:
        settings = json.loads(Path(where).read_text(encoding="utf-8"))
        networks = dict(settings.get("networks") or {name: f"{name}.backbone" for name in OFFICIAL_NETWORKS})
    except (ValueError, TypeError, AttributeError) as error:
        raise WeightsError(f"{where} does not describe a backbone: {error!r}") from error
    network = checkpoint_key or next(iter(networks))
    if network not in networks:
        raise WeightsError(f"{folder} has no {network}: found {', '.join(networks)}")
    state = read_torch(folder / file_name).get("method")
    if not isinstance(state, Mapping) or not (tensors := _below(f"{networks[network]}.", state)):
        raise WeightsError(f"{folder / file_name} has no {network}: found no {networks[network]}.…")
    return _describe(tensors, settings, where, network)


def open_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read every tensor and the metadata of a .safetensors file; raise WeightsError if it is broken."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            return tensors, file.metadata() or {}
    except safetensors.SafetensorError as error:
        raise WeightsError(
            f"{path} is no readable .safetensors file (broken or cut off?): {error}"
        ) from error


def _read_safetensors(path: Path, checkpoint_key: CheckpointKey) -> StoredBackbone:
    """Self-describing where this package wrote it, a bare state dict otherwise."""
    tensors, metadata = open_safetensors(path)
    if metadata.get("format") != FORMAT:
        return StoredBackbone(_select_network(tensors, checkpoint_key, str(path))[0], None)
    refuse_network(checkpoint_key, str(path))
    try:
        described = {name: json.loads(metadata[name]) for name in ("backbone", "mean", "std")}
        described["channel_range"] = json.loads(metadata.get("channel_range", "null"))
    except (ValueError, KeyError) as error:
        raise WeightsError(f"{path} does not describe a backbone: {error!r}") from error
    return _describe(tensors, described, str(path))


def _describe(
    tensors: dict[str, Tensor], settings: Any, where: str, network: CheckpointKey = None
) -> StoredBackbone:
    try:
        config = BackboneConfig(**settings["backbone"])
        mean, std = (
            tuple(map(float, settings[name])) if name in settings else None for name in ("mean", "std")
        )
        if not all(_is_statistic(values, config.in_channels) for values in (mean, std)) or 0 in (std or ()):
            raise ValueError(f"mean {mean} and std {std} for {config.in_channels} channels")
        bounds = settings.get("channel_range")
        channel_range = bounds and ChannelRange(*(tuple(map(float, bounds[end])) for end in ("low", "high")))
    except (ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{where} does not describe a backbone: {error!r}") from error
    return StoredBackbone(tensors, config, mean, std, network, channel_range)


def _is_statistic(values: tuple[float, ...] | None, channels: int) -> bool:
    """Test if each channel has a finite value; statistics may be missing."""
    return values is None or (len(values) == channels and all(map(isfinite, values)))


def read_torch(path: Path) -> dict[str, Any]:
    """Read a file of torch.save: tensors, plain values and the official code's argparse.Namespace only."""
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            payload = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        culprit = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"it holds {culprit[1]}, which could run code" if culprit else "it is no checkpoint"
        raise WeightsError(f"{path} is refused: {reason}; only tensors and plain values are read") from error
    except Exception as error:  # a broken file can raise anything at all
        raise WeightsError(
            f"{path} is no readable checkpoint (broken or cut off?): {type(error).__name__}"
        ) from error
    if not isinstance(payload, dict):
        raise WeightsError(f"{path} holds a {type(payload).__name__}, expected a checkpoint's dictionary")
    return payload


def _select_network(
    payload: Mapping[str, Any], checkpoint_key: CheckpointKey, where: str
) -> tuple[dict[str, Tensor], CheckpointKey]:
    """Tensors of the chosen network, under the backbone's own names, and its name if it has one."""
    networks = {name: payload[name] for name in OFFICIAL_NETWORKS if name in payload}
    if networks:
        network = checkpoint_key or OFFICIAL_NETWORKS[0]
        if network not in networks:
            raise WeightsError(f"{where} has no {network}: found {', '.join(sorted(networks))}")
        return _strip(networks[network], where), network
    refuse_network(checkpoint_key, where)
    nested = next((payload[name] for name in ("state_dict", "model") if name in payload), payload)
    return _strip(nested, where), None


def _strip(network: Any, where: str) -> dict[str, Tensor]:
    """Remove the prefixes of data parallelism and of the multi-crop wrapper, and the head."""
    if not isinstance(network, Mapping):
        raise WeightsError(f"{where} holds no state dict: found a {type(network).__name__}")
    tensors = _below("", {str(name).removeprefix("module."): value for name, value in network.items()})
    backbone = _below("backbone.", tensors) or {
        name: value for name, value in tensors.items() if not name.startswith(("head.", "fc."))
    }
    if not backbone:
        raise WeightsError(f"{where} holds no tensors of a backbone: found {_few(network) or 'nothing'}")
    return backbone


def _below(prefix: str, values: Mapping[str, Any]) -> dict[str, Tensor]:
    """Tensors whose names begin with the prefix, without it."""
    own = ((name, value) for name, value in values.items() if name.startswith(prefix))
    return {name.removeprefix(prefix): value for name, value in own if isinstance(value, Tensor)}


def refuse_network(checkpoint_key: CheckpointKey, where: str) -> None:
    """Raise WeightsError if the key names a network of several, of which `where` holds a single one."""
    if checkpoint_key not in (None, OFFICIAL_NETWORKS[0]):
        raise WeightsError(f"{where} has no {checkpoint_key}: it holds a single network, leave the key out")


def _few(names: Any) -> str:
    names = [str(name) for name in names]
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
