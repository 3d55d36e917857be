"""From a file to the tensors of one backbone, without running pickled code.

Forms: this package's self-describing .safetensors, a training run's folder, and checkpoints of other code.
Other code nests networks in dictionaries and modules, such as `state_dict` and `module.backbone`. The keys
are joined to full names, and the segments of wrappers are removed. A network begins where its first
convolution is: everything before this name is the prefix of the network.
"""

import argparse
import codecs
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.serialization import safe_globals

from dino_model.data.channels import ChannelRange
from dino_model.models.catalogue import SUFFIXES, WeightsError, read_json
from dino_model.models.configs import BackboneConfig, CheckpointKey
from dino_model.models.run_folder import CHECKPOINT, CONFIG
from dino_model.runtime import files
from dino_model.runtime.errors import list_names

FORMAT = "dino-attention-lab/1"
OFFICIAL_NETWORKS = ("teacher", "student")
WRAPPERS = re.compile(
    r"(?:(?<=\.)|^)(module|_orig_mod|_forward_module|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)
"""Segments that data parallelism, torch.compile and other wrappers insert anywhere in a name."""
_ANCHORS = (
    "patch_embed.proj.weight",
    "layer1.0.conv1.weight",  # ResNet
    "embeddings.patch_embeddings.projection.weight",  # transformers' ViT and DINOv2
    "embeddings.patch_embeddings.weight",  # transformers' DINOv3
)
_ANCHOR = re.compile(rf"(?:^|(?<=\.))(?:{'|'.join(map(re.escape, _ANCHORS))})$")
_CHUNKED = re.compile(r"^blocks\.(\d+)\.(\d+)\.")
_ROLES = ("teacher", "ema", "base_encoder|encoder_q|online", "target")
"""Networks that are the usual choice among several, the first of these first."""
_EXTRAS = re.compile(
    r"(head\w*|heads|fc|classifier|pooler|pre_logits|decoder\w*|masked_embed|proj\w*|pred\w*|prototypes"
    r"|lm_head|n_averaged|\w+_head)(\.|$)"
)
"""Parts next to a backbone that it does not use."""
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
    """Tensors of one backbone by its names and, where the file describes itself, the rest.

    Attributes:
        config: None if the file does not describe itself.
        names: Names in the file, without wrappers.
        network: Label of the network among several; None if the file holds only one.
        note: What else the file holds, in words.
    """

    tensors: Mapping[str, Tensor]
    config: BackboneConfig | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    channel_range: ChannelRange | None = None
    names: tuple[str, ...] = ()
    network: CheckpointKey = None
    note: str = ""


def read_backbone(
    path: Path, checkpoint_key: CheckpointKey = None, prefix: str | None = None
) -> StoredBackbone:
    """Read tensors and description of a backbone.

    Args:
        path: A .safetensors file, a file of torch.save, or a run's folder with config.json and checkpoint.pt.
        checkpoint_key: Network of several. Default: the one that the run's method evaluates, else the
            teacher, else an exponential moving average, else the encoder of MoCo.
        prefix: Everything before the names of the backbone, such as `model.vision`, instead of a search; not
            of files that describe themselves.

    Raises:
        WeightsError: No such file, an unreadable or refused one, or one without such a backbone.
    """
    if is_run := path.is_dir():
        path = path / CHECKPOINT
        for needed in (path.with_name(CONFIG), path):
            if not needed.is_file():
                found = list_names(
                    sorted(each.name for each in path.parent.iterdir() if each.suffix in SUFFIXES)
                )
                hint = f"; it holds {found}: pass a file" if found and needed != path else ""
                raise WeightsError(f"{str(path.parent)!r} is no training run: it has no {needed.name}{hint}")
    payload, metadata = read_checkpoint(path)
    if metadata.get("format") == FORMAT:
        refuse_options(str(path), checkpoint_key, prefix)
        try:
            settings = {name: json.loads(metadata[name]) for name in ("backbone", "mean", "std")}
            settings["channel_range"] = json.loads(metadata.get("channel_range", "null"))
        except (ValueError, KeyError) as error:
            raise WeightsError(f"{path} does not describe a backbone: {error!r}") from error
        return _describe(payload, settings, str(path))
    if not (is_run or ("method" in payload and "step" in payload)):
        return find_backbone(payload, str(path), checkpoint_key, prefix)
    config = path.with_name(CONFIG)
    if not config.is_file():
        raise WeightsError(f"{path} is part of a training run: put its {CONFIG} next to it")
    refuse_options(str(path), prefix=prefix)
    settings, state = read_json(config), payload.get("method")
    networks = settings.get("networks") or {name: f"{name}.backbone" for name in OFFICIAL_NETWORKS}
    label = checkpoint_key or next(iter(networks))
    if label not in networks:
        raise WeightsError(f"{path.parent} has no {label}: found {', '.join(networks)}")
    stored = find_backbone(state if isinstance(state, Mapping) else {}, str(path), prefix=networks[label])
    return _describe(stored.tensors, settings, str(config), label)


def _describe(
    tensors: Mapping[str, Tensor], settings: Mapping[str, Any], where: str, network: CheckpointKey = None
) -> StoredBackbone:
    """Add the description in a file or run; raises WeightsError."""
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
    return StoredBackbone(tensors, config, mean, std, channel_range, network=network)


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
    """
    tensors = {
        name: tensor.detach().to("cpu", dtype if tensor.is_floating_point() else tensor.dtype).contiguous()
        for name, tensor in backbone.state_dict().items()
    }
    broken = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if broken:
        raise WeightsError(f"{broken[0]} has values that {dtype} cannot hold: choose fp32, or repair it")
    settings = {"backbone": asdict(config), "mean": mean, "std": std}
    settings |= {"channel_range": asdict(channel_range)} if channel_range else {}
    metadata = {"format": FORMAT} | {name: json.dumps(value) for name, value in settings.items()}
    with files.replace_file(path) as temporary:
        temporary.write_bytes(safetensors.torch.save(tensors, metadata))


def load_strictly(backbone: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Copy tensors into a backbone that has exactly these names and shapes; raise WeightsError otherwise."""
    integers = [name for name, tensor in tensors.items() if not tensor.is_floating_point()]
    if quantized := [name for name in integers if name.endswith((".weight", ".bias"))]:
        raise WeightsError(f"{where} has quantized weights ({list_names(quantized)}): expected floats")
    try:
        names = backbone.load_state_dict(dict(tensors), strict=False)
    except RuntimeError as error:  # of shapes; its second line names the first tensor
        reason = str(error).splitlines()[1].strip()
        raise WeightsError(f"the weights in {where} do not fit the model: {reason}") from None
    # Older files lack batch norm's counter, which nothing in evaluation reads.
    missing = [name for name in names.missing_keys if not name.endswith("num_batches_tracked")]
    faults = {"missing": missing, "not expected": names.unexpected_keys}
    reasons = [f"{len(keys)} {fault} ({list_names(keys)})" for fault, keys in faults.items() if keys]
    if reasons:
        raise WeightsError(f"the weights in {where} do not fit the model: tensors {', '.join(reasons)}")


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Read a file of torch.save, or .safetensors with its metadata, by its content and not its suffix.

    Raises WeightsError for a missing file, and as `read_torch`.
    """
    if not path.is_file():
        raise WeightsError(f"no file or folder {str(path)!r}")
    with path.open("rb") as file:
        if file.read(9)[8:] != b"{":  # .safetensors: a length, then a JSON object
            return read_torch(path), {}
    try:
        with safetensors.safe_open(path, framework="pt") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (no mapping)
            return tensors, opened.metadata() or {}
    except safetensors.SafetensorError as error:
        raise _foreign(path) from error


def read_torch(path: Path) -> dict[str, Any]:
    """Read a file of torch.save that holds tensors, plain values and the types of `_HARMLESS` only.

    Raises:
        WeightsError: Another file, a broken one, or one whose pickle has another protocol or other types.
    """
    try:
        # A file that is opened here may have any suffix. PyTorch warns of protocols that are refused below.
        with path.open("rb") as file, safe_globals(_HARMLESS), warnings.catch_warnings(action="ignore"):
            payload = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a broken file can raise anything at all
        if not (culprit := re.search(r"GLOBAL (\S+)|operand 149", str(error))):  # 149: of protocols 4 and 5
            raise _foreign(path) from error
        found = f"{culprit[1]}, which could run code" if culprit[1] else "a pickle of protocol 4 or 5"
        raise WeightsError(
            f"{path} is refused: it holds {found}; only tensors and plain values of protocol 2 are read. If"
            " you trust its origin, load it where it was made and torch.save its state_dict() alone"
        ) from error
    if not isinstance(payload, Mapping):
        raise WeightsError(f"{path} holds a {type(payload).__name__}, expected a checkpoint's dictionary")
    return dict(payload)


def _foreign(path: Path) -> WeightsError:
    """Describe a file that is no checkpoint, or a broken one."""
    with path.open("rb") as file:
        start = file.read(4)  # no more, as the page shows it to clients
    content = f"it begins with {start!r}" if start else "it is empty"
    return WeightsError(
        f"{path} is no readable checkpoint of PyTorch or .safetensors: {content}. Fetch a pointer, a web "
        "page or a broken file again; unpack an archive; of TorchScript, save the state_dict()"
    )


def refuse_options(where: str, checkpoint_key: CheckpointKey = None, prefix: str | None = None) -> None:
    """Refuse options of bare checkpoints for a model that describes itself; raises WeightsError."""
    if checkpoint_key not in (None, OFFICIAL_NETWORKS[0]):
        raise WeightsError(f"{where} has no {checkpoint_key}: it holds a single network, leave the key out")
    if prefix is not None:
        raise WeightsError(f"{where} describes itself: leave --checkpoint-prefix out")


def find_backbone(
    payload: Mapping[str, Any], where: str, key: CheckpointKey = None, prefix: str | None = None
) -> StoredBackbone:
    """Find a backbone in the nested dictionaries of a checkpoint; `key` and `prefix` as `read_backbone`.

    Raises:
        WeightsError: No backbone, no such network, or several without a usual choice.
    """
    tensors: dict[str, Tensor] = {}
    for name, tensor in flat_names(payload):
        if (bare := WRAPPERS.sub("", name)) in tensors:
            raise WeightsError(f"{where} has two tensors called {bare!r} without their wrappers")
        tensors[bare] = tensor
    roots = [_ANCHOR.sub("", name) for name in tensors if _ANCHOR.search(name)]
    label, others = "", list[str]()
    if prefix is not None:
        root, roots = WRAPPERS.sub("", f"{prefix.strip('.')}.").lstrip("."), []
        if not any(name.startswith(root) for name in tensors):
            raise WeightsError(f"{where}: no tensor begins with {prefix!r}: found {list_names(tensors)}")
    elif not roots:
        found = f"found {len(tensors)} tensors ({list_names(tensors) or 'nothing'})"
        raise WeightsError(f"{where} holds no backbone, ViT or ResNet-50: {found}")
    else:
        root, label, others = _choose_network(roots, key, where)
    nested = tuple(other for other in roots if other != root and other.startswith(root))
    own = {
        name.removeprefix(root): tensor
        for name, tensor in tensors.items()
        if name.startswith(root) and not (nested and name.startswith(nested))
    }
    dropped = [name for name in own if _EXTRAS.match(name)]
    own = {name: tensor for name, tensor in own.items() if name not in dropped}
    # A head next to the backbone: not of a parent at the top, which also has the state of the optimizer.
    if parent := re.sub(r"[^.]*\.$", "", root):
        beside = (name for name in tensors if name.startswith(parent) and not name.startswith((root, *roots)))
        dropped += [name.removeprefix(parent) for name in beside]
    # DINOv2's training names blocks `blocks.CHUNK.BLOCK`: they are numbered through.
    pairs = sorted({(int(at[1]), int(at[2])) for name in own if (at := _CHUNKED.match(name))})
    number = {f"blocks.{chunk}.{block}.": f"blocks.{index}." for index, (chunk, block) in enumerate(pairs)}
    own = {_CHUNKED.sub(lambda at: number[at[0]], name, count=1): tensor for name, tensor in own.items()}
    note = ""
    if dropped:
        parts = ", ".join(sorted({name.split(".")[0] for name in dropped}))
        note = f", without {len(dropped):,} tensors of {parts}"
    note += f" (not used: {', '.join(others)})" if others else ""
    return StoredBackbone(own, names=tuple(tensors), network=label or None, note=note)


def flat_names(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of nested dictionaries and lists with their keys joined by dots."""
    for key, value in values.items():
        if isinstance(value, list | tuple):
            value = dict(enumerate(value))
        if isinstance(value, Tensor):
            yield f"{prefix}{key}", value
        elif isinstance(value, Mapping):
            yield from flat_names(value, f"{prefix}{key}.")


def _choose_network(roots: list[str], key: CheckpointKey, where: str) -> tuple[str, str, list[str]]:
    """Return root and label of one of the networks that begin at `roots`, and the labels of the others.

    A network is labeled by the segments that not all roots have, a single one only by teacher or student.
    """
    parts = {root: root.rstrip(".").split(".") for root in roots}
    common = set.intersection(*map(set, parts.values())) if len(roots) > 1 else set()
    labels: dict[str, str] = {}
    for root, segments in parts.items():
        own = ".".join(part for part in segments if part not in common)
        role = re.search(r"teacher|student", own)
        label = role[0] if role else own if len(roots) > 1 else ""
        labels[label if label not in labels else root.rstrip(".")] = root
    choices = ", ".join(sorted(filter(None, labels)))
    usual = [[label for label in labels if re.search(rf"(^|[._])({role})($|[._])", label)] for role in _ROLES]
    if key is not None and not (key == OFFICIAL_NETWORKS[0] and labels.keys() == {""}):
        matches = [label for label in labels if key == label or key in re.split(r"[._]", label)]
        if len(matches) != 1:
            found = f"found {choices}" if choices else "it holds a single network, leave the key out"
            raise WeightsError(f"{where} has {'several' if matches else 'no'} {key}: {found}")
    elif labels.keys() == {"student"}:
        raise WeightsError(f"{where} has no teacher: found student; pass --checkpoint-key student to load it")
    else:
        matches = [*labels] if len(labels) == 1 else next(filter(None, usual), [])
    if not matches:
        raise WeightsError(f"{where} holds several networks: choose one of {choices} with --checkpoint-key")
    return labels[matches[0]], matches[0], [label for label in labels if label != matches[0]]
