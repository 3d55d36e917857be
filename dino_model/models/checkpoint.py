"""Read every form a backbone is stored in, without running pickled code, and load it strictly.

Forms: this package's self-describing .safetensors, a training run's folder, the official code's backbones and
full checkpoints, and bare state dicts.
"""

import argparse
import codecs
import io
import json
import math
import pickle
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from dino_model.data.channels import ChannelRange
from dino_model.models.catalogue import SUFFIXES, WeightsError
from dino_model.models.configs import VIT_SHAPES, BackboneConfig, CheckpointKey
from dino_model.models.families import PublishedFamily, find_published
from dino_model.models.pickles import open_as_protocol_2
from dino_model.models.run_folder import CHECKPOINT, CONFIG
from dino_model.models.state_names import Network, NetworkError, few, find_network, flat_names
from dino_model.runtime import files
from dino_model.runtime.errors import pluralize

OFFICIAL_NETWORKS = ("teacher", "student")
FORMAT = "dino-attention-lab/1"


_NUMPY = ("numpy._core.multiarray", "numpy.core.multiarray")  # of numpy 2 and 1


def _dictionary(*_factory: Any) -> dict[Any, Any]:
    """Stand for a defaultdict, whose items torch does not set."""
    return {}


_HARMLESS: list[Any] = [
    argparse.Namespace,
    (_dictionary, "collections.defaultdict"),
    *(dict, list, set, int, float, str),  # factories of a defaultdict
    *(
        (PurePath, f"{module}.{name}")
        for module in ("pathlib", "pathlib._local")
        for name in ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath", "Path", "PurePath")
    ),
    *((np._core.multiarray.scalar, f"{module}.scalar") for module in _NUMPY),  # type: ignore[attr-defined]
    *((np._core.multiarray._reconstruct, f"{module}._reconstruct") for module in _NUMPY),  # type: ignore[attr-defined]
    (np._core.numeric._frombuffer, "numpy._core.numeric._frombuffer"),  # type: ignore[attr-defined]
    *(np.ndarray, np.dtype, codecs.encode),
    *{type(np.dtype(code)) for code in "?bBhHiIlLqQefdFDSUmM"},
]
"""Types in the official codes' checkpoints that run no code; no others are read."""


@dataclass(frozen=True)
class StoredBackbone:
    """Content of a file: the tensors of one backbone and, where the file describes itself, the rest.

    Attributes:
        network: Its name among several; None if the file holds only one.
        family: Published models of which the file has the mark.
        note: What else the file holds, in words.
    """

    tensors: dict[str, Tensor]
    config: BackboneConfig | None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    network: CheckpointKey = None
    channel_range: ChannelRange | None = None
    family: PublishedFamily | None = None
    note: str = ""


def read_backbone(
    path: Path, checkpoint_key: CheckpointKey = None, prefix: str | None = None
) -> StoredBackbone:
    """Read tensors and description of a backbone.

    Args:
        path: A .safetensors file, a file of torch.save, or a run's folder with config.json and checkpoint.pt.
        checkpoint_key: Network of several. Default: the one that the run's method evaluates, else as
            `state_names.find_network`.
        prefix: As `state_names.find_network`; not of files that describe themselves.

    Raises:
        WeightsError: No such file, an unreadable or refused one, or one without such a backbone.
    """
    if path.is_dir():
        return _read_run(path, checkpoint_key, prefix)
    if not path.is_file():
        raise WeightsError(f"no file or folder {str(path)!r}")
    if is_safetensors(path):
        return _read_safetensors(path, checkpoint_key, prefix)
    payload = read_torch(path)
    if "method" in payload and "step" in payload:
        if not (path.parent / CONFIG).is_file():
            raise WeightsError(f"{path} is part of a training run: put its config.json next to it")
        return _read_run(path.parent, checkpoint_key, prefix, path.name)
    return _find(payload, checkpoint_key, prefix, str(path))


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
    with files.replace_file(path) as temporary:
        temporary.write_bytes(safetensors.torch.save(tensors, metadata))


def load_strictly(backbone: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Copy tensors into a backbone that has exactly these names and shapes; raise WeightsError otherwise."""
    integers = [name for name, tensor in tensors.items() if not tensor.is_floating_point()]
    if quantized := [name for name in integers if name.endswith((".weight", ".bias"))]:
        raise WeightsError(
            f"{where} has quantized weights ({few(quantized)}): expected floating-point numbers"
        )
    try:
        names = backbone.load_state_dict(dict(tensors), strict=False)
    except RuntimeError as error:  # of shapes; its second line names the first tensor
        reason = str(error).splitlines()[1].strip()
        raise WeightsError(f"the weights in {where} do not fit the model: {reason}") from None
    # Older files lack batch norm's counter, which nothing in evaluation reads.
    missing = [name for name in names.missing_keys if not name.endswith("num_batches_tracked")]
    faults = {"missing": missing, "not expected": names.unexpected_keys}
    reasons = [f"{len(keys)} {fault} ({few(keys)})" for fault, keys in faults.items() if keys]
    if reasons:
        raise WeightsError(f"the weights in {where} do not fit the model: tensors {', '.join(reasons)}")


def infer_config(tensors: Mapping[str, Tensor], where: str, heads: int | None = None) -> BackboneConfig:
    """Infer the architecture of bare tensors.

    Args:
        tensors: Of a ResNet-50, or of a ViT as DINO has it (`official.is_plain`).
        where: Name of their file for messages.
        heads: Attention heads of a ViT.

    Raises:
        WeightsError: Tensors of no backbone of this package.
    """
    first = tensors.get("conv1.weight")
    if "layer1.0.conv1.weight" in tensors and first is not None and first.ndim == 4:
        return BackboneConfig("resnet50", in_channels=first.shape[1])
    projection, positions = tensors.get("patch_embed.proj.weight"), tensors.get("pos_embed")
    if projection is None or positions is None or (projection.ndim, positions.ndim) != (4, 3):
        raise WeightsError(f"{where} holds no DINO backbone: found {len(tensors)} tensors ({few(tensors)})")
    width, channels, patch_size, _ = projection.shape
    side = math.isqrt(positions.shape[1] - 1)
    depth = len({name.split(".")[1] for name in tensors if name.startswith("blocks.")})
    shape = (width, depth, heads)
    known = next((name for name, paper_shape in VIT_SHAPES.items() if paper_shape == shape), None)
    overrides = () if known else shape
    return BackboneConfig(known or "vit_small", patch_size, side * patch_size, channels, *overrides)


def _read_run(
    folder: Path, checkpoint_key: CheckpointKey, prefix: str | None, file_name: str = CHECKPOINT
) -> StoredBackbone:
    """Read a training run's folder: the description in config.json, tensors in checkpoint.pt."""
    refuse_options(str(folder), prefix=prefix)
    for needed in (CONFIG, file_name):
        if not (folder / needed).is_file():
            found = sorted(path.name for path in folder.iterdir() if path.suffix in SUFFIXES)
            hint = f"; it holds {few(found)}: pass a file" if found and needed == CONFIG else ""
            if (folder / "snapshots").is_dir():
                hint = "; pass one of the folders in its snapshots"
            if any(folder.glob("*.distcp")):
                hint = (
                    "; it is a checkpoint in shards: join it with torch.distributed.checkpoint.format_utils"
                )
            raise WeightsError(f"{str(folder)!r} is no training run: it has no {needed}{hint}")
    where = str(folder / CONFIG)
    try:
        settings = json.loads(Path(where).read_text(encoding="utf-8"))
        networks = dict(settings.get("networks") or {name: f"{name}.backbone" for name in OFFICIAL_NETWORKS})
    except (ValueError, TypeError, AttributeError) as error:
        raise WeightsError(f"{where} does not describe a backbone: {error!r}") from error
    network = checkpoint_key or next(iter(networks))
    if network not in networks:
        raise WeightsError(f"{folder} has no {network}: found {', '.join(networks)}")
    state = read_torch(folder / file_name).get("method")
    try:
        tensors = find_network(state if isinstance(state, Mapping) else {}, prefix=networks[network]).tensors
    except NetworkError as error:
        raise WeightsError(f"{folder / file_name} has no {network}: {error}") from None
    return _describe(tensors, settings, where, network)


def is_safetensors(path: Path) -> bool:
    """Return whether a file is one of .safetensors, by its first bytes: a length and a JSON object."""
    with path.open("rb") as file:
        return file.read(9)[8:] == b"{"


def open_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read every tensor and the metadata of a .safetensors file; raise WeightsError if it is broken."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            return tensors, file.metadata() or {}
    except safetensors.SafetensorError as error:
        raise _foreign(path) from error


def _read_safetensors(path: Path, checkpoint_key: CheckpointKey, prefix: str | None) -> StoredBackbone:
    """Self-describing where this package wrote it, a bare state dict otherwise."""
    tensors, metadata = open_safetensors(path)
    if metadata.get("format") != FORMAT:
        return _find(tensors, checkpoint_key, prefix, str(path))
    refuse_options(str(path), checkpoint_key, prefix)
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
        statistics = [values for values in (mean, std) if values is not None]
        is_whole = all(len(each) == config.in_channels and all(map(isfinite, each)) for each in statistics)
        if not is_whole or 0 in (std or ()):
            raise ValueError(f"mean {mean} and std {std} for {config.in_channels} channels")
        bounds = settings.get("channel_range")
        channel_range = bounds and ChannelRange(*(tuple(map(float, bounds[end])) for end in ("low", "high")))
    except (ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{where} does not describe a backbone: {error!r}") from error
    return StoredBackbone(tensors, config, mean, std, network, channel_range)


def read_torch(path: Path) -> dict[str, Any]:
    """Read a file of torch.save that holds tensors, plain values and the types of `_HARMLESS` only.

    Raises:
        WeightsError: Another file, a broken one, or one whose pickle names other types.
    """
    try:
        with torch.serialization.safe_globals(_HARMLESS):
            source = open_as_protocol_2(path)
            if path.suffix == ".safetensors" and isinstance(source, Path):  # not by its suffix
                source = io.BytesIO(source.read_bytes())
            payload = torch.load(source, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if culprit := re.search(r"GLOBAL (\S+)", str(error)):
            raise WeightsError(
                f"{path} is refused: it holds {culprit[1]}, which could run code; only tensors and plain "
                "values are read. If you trust its origin, load it where it was made and save its "
                "state_dict() alone"
            ) from error
        raise _foreign(path) from error
    except Exception as error:  # a broken file can raise anything at all
        raise _foreign(path) from error
    if isinstance(payload, list | tuple) and any(isinstance(each, Mapping) for each in payload):
        payload = dict(enumerate(payload))
    if not isinstance(payload, Mapping):
        raise WeightsError(f"{path} holds a {type(payload).__name__}, expected a checkpoint's dictionary")
    return dict(payload)


def _foreign(path: Path) -> WeightsError:
    """Describe a file that is no checkpoint, or a broken one."""
    with path.open("rb") as file:
        start = file.read(40)
    content = f"it begins with {start!r}" if start else "it is empty"
    return WeightsError(
        f"{path} is no readable checkpoint of PyTorch or .safetensors: {content}. Fetch a pointer, a web "
        "page or a broken file again; unpack an archive; of TorchScript, save the state_dict()"
    )


def _find(
    payload: Mapping[str, Any], checkpoint_key: CheckpointKey, prefix: str | None, where: str
) -> StoredBackbone:
    """Describe the chosen network of a checkpoint that does not describe itself."""
    try:
        network = find_network(payload, checkpoint_key, prefix)
    except NetworkError as error:
        raise WeightsError(f"{where} {error}") from None
    family = find_published(name for name, _ in flat_names(payload))
    return StoredBackbone(network.tensors, None, network=network.label, family=family, note=_note(network))


def _note(network: Network) -> str:
    """Name what the file holds in addition to the network."""
    parts = sorted({name.split(".")[0] for name in network.dropped})
    dropped = f", without {pluralize(len(network.dropped), 'tensor')} of {few(parts)}" if parts else ""
    return dropped + (f" (not used: {few(network.others)})" if network.others else "")


def refuse_options(where: str, checkpoint_key: CheckpointKey = None, prefix: str | None = None) -> None:
    """Refuse options of bare checkpoints for a model that describes itself; raises WeightsError."""
    if checkpoint_key not in (None, OFFICIAL_NETWORKS[0]):
        raise WeightsError(f"{where} has no {checkpoint_key}: it holds a single network, leave the key out")
    if prefix is not None:
        raise WeightsError(f"{where} describes itself: leave --checkpoint-prefix out")
