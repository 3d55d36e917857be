"""What runs the blocks of a ViT: torch, or OpenVINO on CPUs. All before and after them stays torch's.

Both give the same tokens: in fp32 to a few millionths, in bf16 as closely as torch's own bf16. OpenVINO
compiles a graph once, which takes seconds: it serves pictures of every size, or of one where blocks depend on
where their patches lie, as in rotary models. Graphs stay in memory and in the cache folder.
"""

import hashlib
import json
import sys
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any, Literal

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from dino_model import graphs
from dino_model.device import ComputePrecision, autocast, has_bf16
from dino_model.feature_cache import model_fingerprint
from dino_model.readable import BiasedViT, Grid, ReadableViT, readable

Engine = Literal["auto", "torch", "openvino"]
Kind = Literal["inputs", "last"]
"""Tokens that enter each block (embedded pictures first), or those that leave the last."""

GRAPHS_IN_MEMORY = 4
WORTH_COMPILING = 3  # pictures; `auto` leaves the first ones to torch
_HINT = "choose --engine torch"


class TorchEncoder:
    """The blocks as they are, in the precision asked for.

    Attributes:
        name: what answered last.
        may_answer: everything that may, in words.
        ran: how many pictures were encoded by what.
    """

    def __init__(self, vit: ReadableViT, precision: ComputePrecision, device: torch.device) -> None:
        self._vit, self._precision, self._device = vit, precision, device
        self.name = self.may_answer = "torch"
        self.ran = Counter[str]()

    @torch.no_grad()
    def __call__(self, images: Tensor, kind: Kind) -> list[Tensor]:
        """Normalised images [batch, channels, height, width] -> tokens [batch, tokens, width], see `Kind`."""
        self.ran[self.name] += len(images)
        with autocast(self._precision, self._device):
            tokens = self._vit.embed(images)
            return _after(self._vit, tokens, self._vit.grid(images), kind)

    def compiles(self, grid: Grid, kind: Kind) -> bool:
        """Whether the next picture of this patch grid waits for seconds first: never."""
        return False


class OpenVinoEncoder:
    """The same, compiled by OpenVINO.

    Args:
        vit: with fp32 weights, which must not change afterwards.
        precision: bf16 only where the processor has it.
        worth: how many calls it takes until a graph is compiled; before, torch answers, as `name` says.
            1 compiles at once and never lets torch answer.

    Attributes:
        name, may_answer, ran: see `TorchEncoder`.

    Raises:
        ValueError: OpenVINO is missing, or cannot compute so.
    """

    def __init__(self, vit: ReadableViT, precision: ComputePrecision, worth: int = 1) -> None:
        check(vit, precision, torch.device("cpu"))
        self._vit, self._precision, self._worth = vit, precision, worth
        self._torch = TorchEncoder(vit, precision, torch.device("cpu"))
        self._graphs: OrderedDict[str, Any] = OrderedDict()
        self._calls: Counter[str] = Counter()
        self._weights = ""
        self._refused = False
        self.name = graphs.version()
        self.may_answer = self.name if worth == 1 else f"torch or {self.name}"
        self.ran = self._torch.ran

    def __call__(self, images: Tensor, kind: Kind) -> list[Tensor]:
        """As `TorchEncoder`.

        Raises:
            ValueError: OpenVINO refuses the graph, and torch was not to answer instead.
        """
        graph = self._graph(images, kind)
        if graph is None:
            self.name = self._torch.name
            return self._torch(images, kind)
        self.name = graphs.version()
        self.ran[self.name] += len(images)
        with torch.no_grad(), autocast(self._precision, images.device):
            tokens = self._vit.embed(images).float()
        after = graphs.run(graph, tokens)
        return after if kind == "last" else [tokens, *after]

    def compiles(self, grid: Grid, kind: Kind) -> bool:
        """Whether the next picture of this patch grid waits for seconds first, while a graph is compiled."""
        key = self._key(grid, kind)
        due = not self._refused and self._calls[key] + 1 >= self._worth
        return due and key not in self._graphs and not self._path(key).is_file()

    def _graph(self, images: Tensor, kind: Kind) -> Any:
        """The compiled graph for such images; None where torch is to answer."""
        key = self._key(self._vit.grid(images), kind)
        self._calls[key] += 1
        if key not in self._graphs:
            path = self._path(key)
            if self._refused or (self._calls[key] < self._worth and not path.is_file()):
                return None
            try:
                self._graphs[key] = graphs.restored(path, self._precision) or self._compiled(
                    images, kind, path
                )
            except ValueError as error:
                if self._worth == 1:
                    raise
                print(f"{error}; torch answers instead", file=sys.stderr)
                self._refused = True
                return None
        self._graphs.move_to_end(key)
        while len(self._graphs) > GRAPHS_IN_MEMORY:
            self._graphs.popitem(last=False)
        return self._graphs[key]

    def _compiled(self, images: Tensor, kind: Kind, path: Path) -> Any:
        """Compile, keep on disk; told on stderr, for it takes seconds."""
        grid = self._vit.grid(images)
        words = f" for {grid[0]} × {grid[1]} patches" if self._vit.blocks_know_the_grid else ""
        print(f"compiling the model{words} with {graphs.version()}, once …", file=sys.stderr, flush=True)
        try:
            blocks = _Blocks(self._vit, grid, kind)
            any_length = not self._vit.blocks_know_the_grid
            graph = graphs.compiled(blocks, self._vit.embed(images), self._precision, any_length=any_length)
        except Exception as error:  # the exporter, the converter and the compiler raise many kinds
            reason = " ".join(str(error).split())[-160:] or type(error).__name__
            raise ValueError(f"OpenVINO refuses this model{words} (… {reason}): {_HINT}") from error
        try:
            graphs.keep(path, graph)
        except OSError as error:
            print(f"the compiled graph is not kept: {error}", file=sys.stderr)
        return graph

    def _key(self, grid: Grid, kind: Kind) -> str:
        """Which graph serves a patch grid."""
        return f"{kind} {grid}" if self._vit.blocks_know_the_grid else kind

    def _path(self, key: str) -> Path:
        """Where a graph lies on disk; another processor, version or weight means another file."""
        self._weights = self._weights or model_fingerprint(self._vit.vit)
        threads = torch.get_num_threads()
        parts = (key, self._weights, self._precision, graphs.version(), graphs.processor(), threads)
        return graphs.folder() / f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}.blob"


Encoder = TorchEncoder | OpenVinoEncoder


def create_encoder(
    engine: Engine, vit: ReadableViT, precision: ComputePrecision, device: torch.device
) -> Encoder:
    """What runs `vit`. `auto` is OpenVINO where it is installed and can, torch elsewhere.

    Raises:
        ValueError: unknown engine, or OpenVINO asked for where it is missing or cannot compute so.
    """
    if engine not in ("auto", "torch", "openvino"):
        raise ValueError(f"unknown engine {engine!r}: choose 'auto', 'torch' or 'openvino'")
    if engine == "openvino":
        check(vit, precision, device)
        return OpenVinoEncoder(vit, precision)
    if engine == "auto" and obstacle(vit, precision, device) is None:
        return OpenVinoEncoder(vit, precision, worth=WORTH_COMPILING)
    return TorchEncoder(vit, precision, device)


class EncodedBackbone(nn.Module):
    """A backbone whose blocks another engine runs: images -> the same feature."""

    def __init__(self, backbone: nn.Module, encoder: OpenVinoEncoder) -> None:
        super().__init__()
        self.backbone = backbone
        self.encoder = encoder
        self.engine = encoder.may_answer  # a feature cache tells them apart by it

    def forward(self, images: Tensor) -> Tensor:
        """[batch, channels, height, width] -> [batch, width]."""
        vit: Any = self.backbone
        feature: Tensor = vit.forward_head(vit.norm(self.encoder(images, "last")[0]))
        return feature


def by_engine(
    backbone: nn.Module, engine: Engine, precision: ComputePrecision, device: torch.device
) -> nn.Module:
    """`backbone`, or one that gives the same features by OpenVINO.

    Raises:
        ValueError: as `create_encoder`; or OpenVINO asked for what is no ViT.
    """
    if engine == "torch" or (engine == "auto" and not isinstance(backbone, VisionTransformer)):
        return backbone
    encoder = create_encoder(engine, readable(backbone), precision, device)
    return EncodedBackbone(backbone, encoder) if isinstance(encoder, OpenVinoEncoder) else backbone


def check(vit: ReadableViT, precision: ComputePrecision, device: torch.device) -> None:
    """Refuse what OpenVINO cannot run here.

    Raises:
        ValueError: saying what is in the way.
    """
    if (found := obstacle(vit, precision, device)) is not None:
        raise ValueError(f"{found}, or {_HINT}")


def obstacle(vit: ReadableViT, precision: ComputePrecision, device: torch.device) -> str | None:
    """What keeps OpenVINO from running a model here, and a remedy; None if nothing does."""
    if not graphs.installed():
        return "OpenVINO is not installed: run `pip install -r requirements-openvino.txt`"
    if device.type != "cpu":
        return f"OpenVINO runs on the CPU here, found device {device}: choose --device cpu"
    if precision == "fp16":
        return "OpenVINO is given fp32 or bf16 here: choose one of them by --precision"
    if precision == "bf16" and not has_bf16(device):
        return "this processor has no bf16, and OpenVINO does not emulate it: choose --precision fp32"
    if isinstance(vit, BiasedViT):
        return "OpenVINO is not given a BEiT here, whose bias is resampled for every size"
    kinds = {tensor.dtype for tensor in vit.vit.parameters()}
    if kinds != {torch.float32}:
        return f"OpenVINO takes fp32 weights here, found {', '.join(sorted(map(str, kinds)))}: convert them"
    return None


class _Blocks(nn.Module):
    """The blocks of a ViT as one module: embedded tokens in, what the blocks make of them out."""

    def __init__(self, vit: ReadableViT, grid: Grid, kind: Kind) -> None:
        super().__init__()
        self.model = vit.vit
        self._vit, self._grid, self._kind = vit, grid, kind

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        found = _after(self._vit, tokens, self._grid, self._kind)
        return tuple(found if self._kind == "last" else found[1:])


def _after(vit: ReadableViT, tokens: Tensor, grid: Grid, kind: Kind) -> list[Tensor]:
    """Embedded tokens -> what `kind` tells."""
    if kind == "last":
        return [vit.run(tokens, grid, 0, vit.depth)]
    inputs = [tokens]
    for number in range(vit.depth - 1):
        inputs.append(vit.run(inputs[-1], grid, number, number + 1))
    return inputs
