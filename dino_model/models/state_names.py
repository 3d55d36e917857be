"""Find the networks of a checkpoint: the only owner of prefixes that wrappers put before names of tensors.

A checkpoint nests its networks in dictionaries and modules, such as `state_dict` and `module.backbone`. The
keys are joined to full names, and the segments of wrappers are removed. A network begins where its first
convolution is: everything before this name is the prefix of the network.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch import Tensor

from dino_model.models.configs import CheckpointKey

WRAPPERS = {"module", "_orig_mod", "_forward_module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
"""Segments that data parallelism, torch.compile and other wrappers insert anywhere in a name."""
_ANCHORS = (
    "patch_embed.proj.weight",
    "layer1.0.conv1.weight",  # ResNet
    "embeddings.patch_embeddings.projection.weight",  # transformers' ViT and DINOv2
    "embeddings.patch_embeddings.weight",  # transformers' DINOv3
)
_ANCHOR = re.compile(rf"(?:^|(?<=\.))(?:{'|'.join(map(re.escape, _ANCHORS))})$")
_ROLES = ("teacher", "ema", "base_encoder|encoder_q|online", "target")
"""Networks that are the usual choice among several, the first of these first."""
_EXTRAS = re.compile(
    r"(head\w*|heads|fc|classifier|pooler|pre_logits|decoder\w*|masked_embed|proj\w*|pred\w*|prototypes"
    r"|lm_head|n_averaged|\w+_head)(\.|$)"
)
"""Parts next to a backbone that it does not use."""


class NetworkError(ValueError):
    """A checkpoint without the requested network. The message lacks the name of the file."""


@dataclass(frozen=True)
class Network:
    """A network of a checkpoint.

    Attributes:
        label: Its name among several networks; None for the only one.
        tensors: By the names of the backbone.
        dropped: Names of tensors of heads and decoders, which the backbone does not use.
        others: Labels of the other networks.
    """

    label: CheckpointKey
    tensors: dict[str, Tensor]
    dropped: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def flat_names(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of nested dictionaries and lists with their keys joined by dots."""
    for key, value in values.items():
        if isinstance(value, list | tuple):
            value = dict(enumerate(value))
        if isinstance(value, Tensor):
            yield f"{prefix}{key}", value
        elif isinstance(value, Mapping):
            yield from flat_names(value, f"{prefix}{key}.")


def unwrap(name: str) -> str:
    """Remove the segments of wrappers from a name."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def find_network(payload: Mapping[str, Any], key: CheckpointKey = None, prefix: str | None = None) -> Network:
    """Find a backbone in the content of a checkpoint.

    Args:
        payload: Nested dictionaries with tensors.
        key: Label of one of several networks. Default: the teacher, else an exponential moving average, else
            the encoder of MoCo.
        prefix: Everything before the names of the backbone, such as `model.vision`, instead of a search.

    Raises:
        NetworkError: No backbone, no such network, or several without a usual choice.
    """
    tensors: dict[str, Tensor] = {}
    for name, tensor in flat_names(payload):
        if (bare := unwrap(name)) in tensors:
            raise NetworkError(f"two tensors are called {bare!r} without their wrappers")
        tensors[bare] = tensor
    if prefix is not None:
        root = ".".join([*filter(None, unwrap(prefix).split(".")), ""])
        if not any(name.startswith(root) for name in tensors):
            raise NetworkError(f"no tensor begins with {prefix!r}: found {few(tensors)}")
        return _network(tensors, root, [], None, ())
    roots = [_ANCHOR.sub("", name) for name in tensors if _ANCHOR.search(name)]
    if not roots:
        dropped = [name for name in tensors if _EXTRAS.match(name)]
        kind = "tensors of a backbone" if len(dropped) == len(tensors) else "DINO backbone"
        if tensors.keys() == {"weight", "bias"}:
            kind = "backbone, but a linear head; `training evaluate linear --head` takes it"
        raise NetworkError(f"holds no {kind}: found {len(tensors)} tensors ({few(tensors) or 'nothing'})")
    labels = _labels(roots)
    label = _choose(list(labels), key)
    others = tuple(other for other in labels if other != label)
    return _network(tensors, labels[label], roots, label or None, others)


def few(names: Iterable[object]) -> str:
    """List the first three names."""
    first = [str(name) for name in islice(names, 4)]
    return ", ".join(first[:3]) + (", …" if len(first) > 3 else "")


def _labels(roots: list[str]) -> dict[str, str]:
    """Label each root by the segments that not all roots have; a single one only by teacher or student."""
    parts = {root: root.rstrip(".").split(".") for root in roots}
    common = set.intersection(*map(set, parts.values())) if len(roots) > 1 else set()
    labels = {}
    for root, segments in parts.items():
        own = ".".join(part for part in segments if part not in common)
        role = re.search(r"teacher|student", own)
        label = role[0] if role else own if len(roots) > 1 else ""
        labels[label if label not in labels else root.rstrip(".")] = root
    return labels


def _choose(labels: list[str], key: CheckpointKey) -> str:
    choices = ", ".join(sorted(filter(None, labels)))
    if key is not None:
        matches = [label for label in labels if key == label or key in re.split(r"[._]", label)]
        if len(matches) == 1:
            return matches[0]
        if labels == [""]:
            if key == "teacher":
                return ""
            raise NetworkError(f"has no {key}: it holds a single network, leave the key out")
        raise NetworkError(f"has {'several' if matches else 'no'} {key}: found {choices}")
    if labels == ["student"]:
        raise NetworkError("has no teacher: found student; pass --checkpoint-key student to load it")
    if len(labels) == 1:
        return labels[0]
    for role in _ROLES:
        matches = [label for label in labels if re.search(rf"(^|[._])({role})($|[._])", label)]
        if matches:
            return matches[0]
    raise NetworkError(f"holds several networks: choose one of {choices} with --checkpoint-key")


def _network(
    tensors: Mapping[str, Tensor], root: str, roots: list[str], label: CheckpointKey, others: tuple[str, ...]
) -> Network:
    nested = tuple(other for other in roots if other != root and other.startswith(root))
    own = {
        name.removeprefix(root): tensor
        for name, tensor in tensors.items()
        if name.startswith(root) and not (nested and name.startswith(nested))
    }
    dropped = [name for name in own if _EXTRAS.match(name)]
    for name in dropped:
        del own[name]
    # A head next to the backbone: not of a parent at the top, which also has the state of the optimizer.
    if parent := re.sub(r"[^.]*\.$", "", root):
        beside = (name for name in tensors if name.startswith(parent) and not name.startswith((root, *roots)))
        dropped += [name.removeprefix(parent) for name in beside]
    return Network(label, _join_chunks(own), tuple(dropped), others)


def _join_chunks(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Number the blocks of chunks through: DINOv2's training names them `blocks.CHUNK.BLOCK`."""
    chunked = {name: match for name in tensors if (match := re.match(r"blocks\.(\d+)\.(\d+)\.", name))}
    pairs = sorted({(int(match[1]), int(match[2])) for match in chunked.values()})
    number = {pair: index for index, pair in enumerate(pairs)}
    renamed = {}
    for name, tensor in tensors.items():
        if match := chunked.get(name):
            name = f"blocks.{number[int(match[1]), int(match[2])]}.{name[match.end() :]}"
        renamed[name] = tensor
    return renamed
