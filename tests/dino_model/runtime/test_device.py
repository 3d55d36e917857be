from pathlib import Path

import pytest
import torch

from dino_model.runtime.device import choose_device, choose_precision, set_tensor_float32

CPU = torch.device("cpu")


def test_choose_device_auto_takes_first_available(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for has_mps, expected in ((False, "cpu"), (True, "mps")):
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda has_mps=has_mps: has_mps)
        assert choose_device("auto").type == expected
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto").type == "cuda"
    assert choose_device("cpu") == CPU


@pytest.mark.parametrize(
    ("name", "has_cuda"), [("cuda", False), ("abacus", False), ("cuda:2", True), ("abacus", True)]
)
def test_choose_device_unavailable_raises(name: str, has_cuda: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match=f"'{name}' is not available .*: choose 'auto' or one of .*cpu"):
        choose_device(name)
    assert not has_cuda or choose_device("cuda:1").index == 1


@pytest.mark.parametrize(
    ("flags", "precision"),
    [("fpu sse avx512f avx512_bf16", "bf16"), ("fpu amx_bf16", "bf16"), ("fpu avx2 avx512f", "fp32")],
)
def test_choose_precision_auto_follows_the_processor(flags: str, precision: str, monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda _: f"processor\t: 0\nflags\t\t: {flags}\n")
    assert choose_precision("auto", CPU) == precision
    assert choose_precision("fp32", CPU) == "fp32"
    assert choose_precision("bf16", CPU) == "bf16"


@pytest.mark.parametrize(  # P40, V100, T4, A100
    ("capability", "precision"), [((6, 1), "fp32"), ((7, 0), "fp16"), ((7, 5), "fp16"), ((8, 0), "bf16")]
)
def test_choose_precision_auto_on_cuda_follows_tensor_cores(capability, precision, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert choose_precision("auto", torch.device("cuda")) == precision


@pytest.mark.parametrize(("version", "precision"), [((13, 6), "fp16"), ((14, 0), "bf16")])
def test_choose_precision_auto_on_mps_is_bf16_from_macos_14_on(version, precision, monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda *least: version >= least)
    assert choose_precision("auto", torch.device("mps")) == precision


def test_set_tensor_float32_follows_the_precision():
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    try:
        for precision, allowed in (("bf16", True), ("fp32", False)):
            set_tensor_float32(precision)
            assert (matmul.allow_tf32, cudnn.allow_tf32) == (allowed, allowed)
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
