"""What runs the blocks of a ViT: torch, or OpenVINO on CPUs. All before and after them stays torch's.

Both give the same tokens: in fp32 to a few millionths, in bf16 as closely as torch's own bf16. OpenVINO
compiles one graph for each size of picture, which takes seconds; graphs stay in memory and in the cache
folder.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import platform
import sys
import warnings
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from dino_model import files
from dino_model.device import ComputePrecision, autocast, has_bf16
from dino_model.download import cache_folder
from dino_model.feature_cache import model_fingerprint
from dino_model.readable import BiasedViT, Grid, ReadableViT, readable

Engine = Literal["auto", "torch", "openvino"]
Kind = Literal["inputs", "last"]
"""Tokens that enter each block (embedded pictures first), or those that leave the last."""

GRAPHS_IN_MEMORY = 4
BYTES_ON_DISK = 2_000_000_000
WORTH_COMPILING = 3  # pictures of one size; `auto` leaves the first ones to torch
_HINT = "choose --engine torch"


class TorchEncoder:
    """The blocks as they are, in the precision asked for.

    Attributes:
        name: what answered last.
        ran: how many pictures were encoded by what.
    """

    def __init__(self, vit: ReadableViT, precision: ComputePrecision, device: torch.device) -> None:
        self._vit, self._precision, self._device = vit, precision, device
        self.name = "torch"
        self.ran = Counter[str]()

    @torch.no_grad()
    def __call__(self, images: Tensor, kind: Kind) -> list[Tensor]:
        """Normalised images [batch, channels, height, width] -> tokens [batch, tokens, width], see `Kind`."""
        self.ran[self.name] += len(images)
        with autocast(self._precision, self._device):
            tokens = self._vit.embed(images)
            return _after(self._vit, tokens, self._vit.grid(images), kind)


class OpenVinoEncoder:
    """The same, compiled by OpenVINO for every size of picture that comes.

    Args:
        vit: with fp32 weights, which must not change afterwards.
        precision: bf16 only where the processor has it.
        worth: how many calls with one size it takes until that size is compiled; before, torch answers, as
            `name` says. 1 compiles at once and never lets torch answer.

    Attributes:
        name, ran: see `TorchEncoder`.

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
        self.name = version()
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
        self.name = version()
        self.ran[self.name] += len(images)
        with torch.no_grad(), autocast(self._precision, images.device):
            tokens = self._vit.embed(images).float()
        after = _run(graph, tokens)
        return after if kind == "last" else [tokens, *after]

    def _graph(self, images: Tensor, kind: Kind) -> Any:
        """The compiled graph for such images; None where torch is to answer."""
        key = f"{kind} {tuple(images.shape)}"
        self._calls[key] += 1
        if key not in self._graphs:
            path = self._path(key)
            if self._refused or (self._calls[key] < self._worth and not path.is_file()):
                return None
            try:
                self._graphs[key] = _restored(path, self._precision) or self._compiled(images, kind, path)
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
        many, _, height, width = images.shape
        words = f"{height} × {width} pixels" + (f", {many} at once" if many > 1 else "")
        print(f"compiling the model for {words} with {version()}, once …", file=sys.stderr, flush=True)
        try:
            blocks = _Blocks(self._vit, self._vit.grid(images), kind)
            graph = _compile(blocks, self._vit.embed(images), self._precision)
        except Exception as error:  # the exporter, the converter and the compiler raise many kinds
            reason = " ".join(str(error).split())[-160:] or type(error).__name__
            raise ValueError(f"OpenVINO refuses this model at {words} (… {reason}): {_HINT}") from error
        try:
            blob = _exported(graph)
            with files.replacing(path) as beside:
                beside.write_bytes(hashlib.sha256(blob).digest() + blob)
            make_room(path.parent, keep=path)
        except OSError as error:
            print(f"the compiled graph is not kept: {error}", file=sys.stderr)
        return graph

    def _path(self, key: str) -> Path:
        """Where a graph lies on disk; another processor, version or weight means another file."""
        self._weights = self._weights or model_fingerprint(self._vit.vit)
        parts = (key, self._weights, self._precision, version(), _processor(), torch.get_num_threads())
        return graphs_folder() / f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}.blob"


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
        self.engine = version()  # a feature cache tells them apart by it

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
    if not installed():
        return "OpenVINO is not installed: run `pip install -r requirements-openvino.txt`"
    if device.type != "cpu":
        return f"OpenVINO runs on the CPU here, found device {device}: choose --device cpu"
    if precision == "bf16" and not has_bf16(device):
        return "this processor has no bf16, and OpenVINO does not emulate it: choose --precision fp32"
    if isinstance(vit, BiasedViT):
        return "OpenVINO is not given a BEiT here, whose bias is resampled for every size"
    kinds = {tensor.dtype for tensor in vit.vit.parameters()}
    if kinds != {torch.float32}:
        return f"OpenVINO takes fp32 weights here, found {', '.join(sorted(map(str, kinds)))}: convert them"
    return None


def installed() -> bool:
    """Whether OpenVINO can be imported."""
    return importlib.util.find_spec("openvino") is not None


def version() -> str:
    """OpenVINO and its version, as answers name it."""
    return f"OpenVINO {importlib.metadata.version('openvino')}"


def graphs_folder() -> Path:
    """Where compiled graphs lie."""
    return cache_folder() / "openvino"


def make_room(folder: Path, keep: Path, limit: int | None = None) -> None:
    """Delete the graphs used longest ago until all take at most `limit` bytes (`BYTES_ON_DISK`)."""
    limit = BYTES_ON_DISK if limit is None else limit
    found = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in folder.glob("*.blob"))
    total = sum(size for _, size, _ in found)
    for _, size, path in found:
        if total > limit and path != keep:
            path.unlink(missing_ok=True)
            total -= size


class _Blocks(nn.Module):
    """The blocks of a ViT as one graph: embedded tokens in, what the blocks make of them out."""

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


def _compile(module: nn.Module, example: Tensor, precision: ComputePrecision) -> Any:
    """By torch.export and OpenVINO's own front end; its `convert_model` would send telemetry."""
    from openvino import Core
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.fx_decoder import TorchFXPythonDecoder

    with torch.no_grad(), _quietly():
        program = torch.export.export(module.eval(), (example,))
        front_end = FrontEndManager().load_by_framework("pytorch")
        decoder = TorchFXPythonDecoder.from_exported_program(program)
        model = front_end.convert(front_end.load(decoder))
    model.reshape(list(example.shape))
    return Core().compile_model(model, "CPU", _settings(precision))


def _settings(precision: ComputePrecision) -> dict[str, str | int]:
    """How OpenVINO computes. Left out, it takes bf16 by itself where the processor has it."""
    return {
        "INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16"}[precision],
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
    }


def _run(graph: Any, tokens: Tensor) -> list[Tensor]:
    """Straight into memory of torch's: nothing is copied, nothing is overwritten by the next picture."""
    from openvino import Tensor as Shared

    request = graph.create_infer_request()
    found = [torch.empty(tuple(port.shape)) for port in graph.outputs]
    request.set_input_tensor(0, Shared(tokens.contiguous().numpy(), shared_memory=True))
    for number, tensor in enumerate(found):
        request.set_output_tensor(number, Shared(tensor.numpy(), shared_memory=True))
    request.infer()
    return found


def _exported(graph: Any) -> bytes:
    blob = graph.export_model()
    return bytes(blob) if isinstance(blob, bytes | bytearray) else bytes(blob.getvalue())


def _restored(path: Path, precision: ComputePrecision) -> Any:
    """A graph from disk; None where there is none, or a damaged one, which is deleted with a word.

    The bytes are checked first: OpenVINO's own reader can end the process on a damaged graph.
    """
    from openvino import Core

    if not path.is_file():
        return None
    held = path.read_bytes()
    digest, blob = held[:32], held[32:]
    try:
        if hashlib.sha256(blob).digest() != digest:
            raise ValueError("its bytes are not those that were written")
        graph = Core().import_model(blob, "CPU", _settings(precision))
    except Exception as error:  # OpenVINO raises many kinds, as for a graph of another build
        print(f"{path} is damaged and deleted: {error}", file=sys.stderr)
        path.unlink(missing_ok=True)
        return None
    path.touch()
    return graph


def _processor() -> str:
    """What a graph was compiled for."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags"))}))


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the exporter's and the decoder's words on their own workings."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
