"""ONNX files compared with the model that they were written from."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

from dino_model.models.attention import readable
from dino_model.models.configs import PositionMode
from dino_model.models.export import QueriesAndKeys, StoredType, write_onnx
from dino_model.models.load import load_model
from dino_model.models.position import install
from tests.commands import dino


@pytest.fixture
def runtime() -> ModuleType:
    """ONNX Runtime, which is not imported while tests are collected."""
    reason = "ONNX is optional: pip install onnx onnxscript onnxruntime"
    return [pytest.importorskip(name, reason=reason) for name in ("onnx", "onnxscript", "onnxruntime")][-1]


def plain_outputs(vit: VisionTransformer, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Final tokens [tokens, width], and queries and keys [blocks, 2, heads, tokens, d]."""
    encoder = readable(vit)
    found = [torch.cat(encoder.queries_and_keys(call)[:2]) for call in encoder.calls(images)]
    return vit.forward_features(images)[0], torch.stack(found)


def cls_attention(queries_keys: torch.Tensor) -> torch.Tensor:
    query, key = queries_keys[:, 0, :, :1], queries_keys[:, 1]
    return (query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5).softmax(-1)


def small_vit(mode: PositionMode, registers: int, size: int | tuple[int, int]) -> VisionTransformer:
    options = {"reg_tokens": registers, "no_embed_class": registers > 0}
    vit = VisionTransformer(size, 8, embed_dim=24, depth=2, num_heads=2, num_classes=0, **options).eval()
    torch.nn.init.normal_(vit.pos_embed)
    install(vit, mode)
    return vit


MODES = pytest.mark.parametrize(
    ("mode", "registers", "learned"), [("official", 0, 32), ("size", 0, (32, 48)), ("antialias", 2, 32)]
)


def check(vit: VisionTransformer, compute: Callable[[torch.Tensor], Sequence]) -> None:
    """Compare outputs for images of several sizes with those of the model."""
    for size in ((32, 32), (16, 48), (64, 40), (32, 24)):
        images = torch.randn(1, 3, *size)
        tokens, expected = plain_outputs(vit, images)
        cls, patches, found = compute(images)
        np.testing.assert_allclose(cls, tokens[:1], atol=1e-4)
        np.testing.assert_allclose(patches[0], tokens[vit.num_prefix_tokens :], atol=1e-4)
        np.testing.assert_allclose(found, expected, atol=1e-4)


@MODES
@torch.no_grad()
def test_queries_and_keys_of_any_size_equal_the_model(mode: PositionMode, registers, learned):
    vit = small_vit(mode, registers, learned)
    check(vit, QueriesAndKeys(vit))


@pytest.mark.slow
@MODES
@torch.no_grad()
def test_onnx_of_any_size_equals_the_model(tmp_path: Path, runtime, mode: PositionMode, registers, learned):
    vit = small_vit(mode, registers, learned)
    write_onnx(vit, tmp_path / "vit.onnx")
    session = runtime.InferenceSession(tmp_path / "vit.onnx")
    check(vit, lambda images: session.run(None, {"images": images.numpy()}))


@pytest.mark.parametrize(("dtype", "levels"), [("fp16", 2**10), ("int8", 127)])
def test_large_weights_are_stored_in_fewer_bits_with_a_scale_for_each_row(
    tmp_path: Path, runtime, monkeypatch, dtype: StoredType, levels
):
    onnx = sys.modules["onnx"]
    shapes = {"matrix": (40, 30), "kernel": (7, 3, 8, 8), "small": (1023,), "vector": (1024,)}
    random = np.random.default_rng(0)
    weights = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    weights["matrix"] *= np.geomspace(0.1, 10, 30, dtype=np.float32)  # columns, as `x @ matrix` has outputs
    weights["kernel"] *= np.geomspace(0.1, 10, 7, dtype=np.float32)[:, None, None, None]
    weights["matrix"][:, 4] = 0
    make, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [make.make_node("Identity", [name], [f"{name} out"]) for name in weights]
    outputs = [make.make_tensor_value_info(f"{name} out", kind, weights[name].shape) for name in weights]
    stored = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    opset = make.make_opsetid("", 18)
    graph = make.make_graph(nodes, "weights", [], outputs, stored)
    proto = make.make_model(graph, opset_imports=[opset], ir_version=8)
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: SimpleNamespace(model_proto=proto))
    write_onnx(small_vit("official", 0, 32), tmp_path / "model.onnx", dtype)
    found = dict(zip(weights, runtime.InferenceSession(tmp_path / "model.onnx").run(None, {}), strict=True))
    np.testing.assert_array_equal(found["small"], weights["small"])
    largest = {"matrix": np.abs(weights["matrix"]).max(0), "kernel": np.abs(weights["kernel"]).max((1, 2, 3))}
    for name, axis in (("matrix", 1), ("kernel", 0)):
        difference = np.moveaxis(np.abs(found[name] - weights[name]), axis, 0).reshape(len(largest[name]), -1)
        assert (difference.max(1) <= 0.51 * largest[name] / levels).all()
        assert (difference.max(1)[largest[name] > 0] > 0).all()
    assert {tensor.data_type for tensor in proto.graph.initializer} == {
        kind, onnx.TensorProto.FLOAT16 if dtype == "fp16" else onnx.TensorProto.INT8,
    }  # fmt: skip


@pytest.mark.slow
def test_compressed_qkv_of_the_embedded_model_keeps_its_attention(tmp_path, runtime, monkeypatch):
    images = torch.randn(1, 3, 96, 136)
    with torch.no_grad():
        _, expected = plain_outputs(load_model("embedded").backbone, images)
    export, programs = torch.onnx.export, []

    def export_once(*given, **options):
        if not programs:
            programs.append(export(*given, **options).model_proto.SerializeToString())
        return SimpleNamespace(model_proto=sys.modules["onnx"].ModelProto.FromString(programs[0]))

    monkeypatch.setattr(torch.onnx, "export", export_once)
    for dtype, megabytes, error in (("fp16", 6.2, 1e-3), ("int8", 3.5, 1e-2)):
        path = tmp_path / f"{dtype}.onnx"
        dino(["export", "embedded", "--dtype", dtype, "--output", str(path)])
        assert path.stat().st_size < megabytes * 1e6
        found = runtime.InferenceSession(path).run(["queries_keys"], {"images": images.numpy()})[0]
        difference = cls_attention(torch.from_numpy(found)) - cls_attention(expected)
        assert difference.abs().max() < error


def test_qkv_of_a_model_without_cls_is_refused(tmp_path: Path):
    pytest.importorskip("onnxscript", reason="ONNX is optional")
    with pytest.raises(ValueError, match="has no \\[CLS\\] token with learned positions"):
        write_onnx(load_model("random:resnet50").backbone, tmp_path / "model.onnx")
