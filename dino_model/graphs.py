"""Blocks compiled by OpenVINO into one graph: exported, run, kept on disk and found there again."""

import copy
import hashlib
import importlib.metadata
import importlib.util
import logging
import platform
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dino_model import files
from dino_model.device import ComputePrecision
from dino_model.download import cache_folder

# An import of OpenVINO is told to its makers over the network, by a forked process for which this one waits
# at its end, for minutes where nobody answers. Without this package of theirs nothing is told.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

BYTES_ON_DISK = 2_000_000_000
_FEWEST = 2  # of what a graph takes any number of: torch.export would take a single one for a constant


def installed() -> bool:
    """Whether OpenVINO can be imported."""
    return importlib.util.find_spec("openvino") is not None


def version() -> str:
    """OpenVINO and its version, as answers name it."""
    return f"OpenVINO {importlib.metadata.version('openvino')}"


def folder() -> Path:
    """Where compiled graphs lie."""
    return cache_folder() / "openvino"


def processor() -> str:
    """What a graph is compiled for."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags"))}))


def compiled(module: nn.Module, tokens: Tensor, precision: ComputePrecision, *, any_length: bool) -> Any:
    """A module that turns tokens [batch, tokens, width] into several of that shape, as a graph for any batch.

    By torch.export and OpenVINO's own front end. A copy of the module is exported: its weights are replaced
    for the while, and other threads may be running it.

    Args:
        module: as told; its weights are fp32.
        tokens: an example.
        precision: of matrix products.
        any_length: whether the graph shall take any number of tokens; otherwise that of the example.
    """
    from openvino import Core, PartialShape
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.fx_decoder import TorchFXPythonDecoder

    free = {0: torch.export.Dim("batch", min=_FEWEST)}
    if any_length:
        free[1] = torch.export.Dim("tokens", min=_FEWEST)
    example = tokens[:1].expand(_FEWEST, -1, -1).contiguous()
    with torch.no_grad(), _quietly():
        program = torch.export.export(copy.deepcopy(module).eval(), (example,), dynamic_shapes=(free,))
        front_end = FrontEndManager().load_by_framework("pytorch")
        decoder = TorchFXPythonDecoder.from_exported_program(program)
        model = front_end.convert(front_end.load(decoder))
    model.reshape(PartialShape([-1 if axis in free else side for axis, side in enumerate(example.shape)]))
    return Core().compile_model(model, "CPU", _settings(precision))


def run(graph: Any, tokens: Tensor) -> list[Tensor]:
    """Straight into memory of torch's: nothing is copied, nothing is overwritten by the next picture."""
    from openvino import Tensor as Shared

    request = graph.create_infer_request()
    found = [torch.empty(tokens.shape) for _ in graph.outputs]
    request.set_input_tensor(0, Shared(tokens.contiguous().numpy(), shared_memory=True))
    for number, tensor in enumerate(found):
        request.set_output_tensor(number, Shared(tensor.numpy(), shared_memory=True))
    request.infer()
    return found


def keep(path: Path, graph: Any) -> None:
    """Write a graph to `path`, and delete those used longest ago.

    Raises:
        OSError: it cannot be written.
    """
    exported = graph.export_model()
    blob = exported if isinstance(exported, bytes | bytearray) else exported.getvalue()
    with files.replacing(path) as beside:
        beside.write_bytes(hashlib.sha256(blob).digest() + blob)
    make_room(path.parent, keep=path)


def restored(path: Path, precision: ComputePrecision) -> Any:
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


def make_room(folder: Path, keep: Path, limit: int | None = None) -> None:
    """Delete the graphs used longest ago until all take at most `limit` bytes (`BYTES_ON_DISK`)."""
    limit = BYTES_ON_DISK if limit is None else limit
    found = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in folder.glob("*.blob"))
    total = sum(size for _, size, _ in found)
    for _, size, path in found:
        if total > limit and path != keep:
            path.unlink(missing_ok=True)
            total -= size


def _settings(precision: ComputePrecision) -> dict[str, str | int]:
    """How OpenVINO computes. Left out, it takes bf16 by itself where the processor has it."""
    return {
        "INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16"}[precision],
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
    }


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
