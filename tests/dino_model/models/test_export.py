"""ONNX files compared with the model that they were written from."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

from dino_model.models.attention import readable
from dino_model.models.configs import PositionMode
from dino_model.models.export import write_onnx
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


def small_vit(size: int | tuple[int, int], **options) -> VisionTransformer:
    torch.manual_seed(0)
    return VisionTransformer(size, 8, embed_dim=24, depth=2, num_heads=2, num_classes=0, **options).eval()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "registers", "learned"), [("official", 0, 32), ("size", 0, (32, 48)), ("antialias", 2, 32)]
)
def test_qkv_of_any_size_equals_the_model(tmp_path: Path, runtime, mode: PositionMode, registers, learned):
    vit = small_vit(learned, reg_tokens=registers, no_embed_class=registers > 0)
    torch.nn.init.normal_(vit.pos_embed)
    install(vit, mode)
    write_onnx(vit, tmp_path / "vit.onnx")
    session = runtime.InferenceSession(tmp_path / "vit.onnx")
    for size in ((32, 32), (16, 48), (64, 40), (32, 24)):
        images = torch.randn(1, 3, *size)
        with torch.no_grad():
            tokens, expected = plain_outputs(vit, images)
        cls, patches, found = session.run(None, {"images": images.numpy()})
        np.testing.assert_allclose(cls, tokens[:1], atol=1e-4)
        np.testing.assert_allclose(patches[0], tokens[1 + registers :], atol=1e-4)
        np.testing.assert_allclose(found, expected, atol=1e-4)


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
