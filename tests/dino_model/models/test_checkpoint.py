"""Checkpoints as people have them load with the output of the saved model, or say why not."""

import collections
import io
import os
import re
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from dino_model.models.catalogue import WeightsError
from dino_model.models.checkpoint import read_torch
from dino_model.models.families import PUBLISHED, choose_heads
from dino_model.models.load import load_model
from tests.dino_model.models.test_official import dinov2, randomized

SHAPE = {"img_size": 32, "patch_size": 16, "embed_dim": 192, "depth": 3, "num_heads": 3, "num_classes": 0}
State = Mapping[str, Any]


def vit(kind: type[VisionTransformer] = VisionTransformer, **options: Any) -> VisionTransformer:
    model = randomized(kind(**SHAPE | options))
    assert isinstance(model, VisionTransformer)
    return model


def below(prefix: str, tensors: State) -> dict[str, Any]:
    return {prefix + name: value for name, value in tensors.items()}


def zeros(*names: str) -> dict[str, Tensor]:
    return {name: torch.zeros(2) for name in names}


def chunked(tensors: State, is_global: bool) -> dict[str, Any]:
    """Number blocks 0, 1 as chunk 0 and block 2 as chunk 1; DINOv2's numbers within a chunk are global."""
    names = {"blocks.0.": "blocks.0.0.", "blocks.1.": "blocks.0.1."}
    names["blocks.2."] = "blocks.1.2." if is_global else "blocks.1.0."
    renamed = {}
    for name, value in tensors.items():
        old = next((old for old in names if name.startswith(old)), "")
        renamed[names.get(old, "") + name.removeprefix(old)] = value
    return renamed


def compiled_blocks(tensors: State) -> dict[str, Any]:
    return {name.replace("blocks.1.", "blocks.1._orig_mod."): value for name, value in tensors.items()}


OTHER = {"cls_token": torch.zeros(1, 1, 192), "patch_embed.proj.weight": torch.zeros(192, 3, 16, 16)}
NESTED: dict[str, Callable[[State], State]] = {
    "DINOv2 training, dotted in one dictionary": lambda t: {
        "model": below("teacher.backbone.", t) | below("student.backbone.", OTHER) | zeros("dino_loss.center")
    },
    "DINOv2 block chunks": lambda t: {"teacher": below("backbone.", chunked(t, True))},
    "block chunks that restart": lambda t: {"teacher": below("backbone.", chunked(t, False))},
    "compiled blocks": compiled_blocks,
    "Lightning, student and teacher": lambda t: {
        "epoch": 3,
        "state_dict": below("teacher_backbone.", t)
        | below("student_backbone.", OTHER)
        | zeros("teacher_head.layers.0.weight", "student_head.layers.0.weight"),
        "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(3)}}}],
    },
    "MoCo-v3": lambda t: {
        "arch": "vit_small",
        "state_dict": below("module.base_encoder.", t | zeros("head.0.weight"))
        | below("module.momentum_encoder.", OTHER)
        | zeros("module.predictor.0.weight"),
    },
    "DeiT training with EMA": lambda t: {"model": OTHER, "model_ema": t | zeros("head.weight", "head.bias")},
    "DDP in Lightning in EMA": lambda t: {"ema": {"state_dict": below("model.module.net.", t)}},
    "encoder": lambda t: {"net": below("encoder.", t) | zeros("decoder.weight", "projector.0.weight")},
    "I-JEPA": lambda t: {"encoder": below("module.", OTHER), "target_encoder": below("module.", t)},
    "MAE with decoder": lambda t: {
        "model": t
        | {"mask_token": torch.zeros(1, 1, 512), "decoder_pos_embed": torch.zeros(1, 5, 512)}
        | zeros("decoder_embed.weight", "decoder_blocks.0.norm1.weight", "decoder_pred.bias")
    },
    "state dicts in a list": lambda t: {"models": [t]},
    "FSDP around backbone and blocks": lambda t: below(
        "_fsdp_wrapped_module.backbone._fsdp_wrapped_module.", t
    ),
    "half precision": lambda t: {name: value.half() for name, value in t.items()},
    "beside a path": lambda t: {"model": t, "args": {"output": Path("runs/a"), "rate": np.float32(0.1)}},
}


@pytest.mark.parametrize("form", NESTED)
def test_nested_and_wrapped_checkpoints_give_the_output_of_their_model(tmp_path: Path, form: str):
    model = vit()
    torch.save(NESTED[form](model.state_dict()), tmp_path / "model.pth")
    loaded = load_model(str(tmp_path / "model.pth"))
    assert_output_of(loaded.backbone, model, half=form == "half precision")
    assert "heads" in loaded.source


@torch.no_grad()
def assert_output_of(found: nn.Module, expected: nn.Module, half: bool) -> None:
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    tolerance = 0.05 if half else 1e-5
    torch.testing.assert_close(found(images), expected(images), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (VisionTransformer, {"reg_tokens": 4, "init_values": 0.5}),
        (VisionTransformer, {"reg_tokens": 4, "no_embed_class": True}),
        (VisionTransformer, {"no_embed_class": True}),
        (VisionTransformer, {"global_pool": "avg"}),  # fc_norm
        (VisionTransformer, {"global_pool": "avg", "fc_norm": False, "class_token": False}),
        (VisionTransformer, {"qkv_bias": False, "mlp_ratio": 3}),
        (VisionTransformer, {"qk_norm": True}),
        (VisionTransformer, {"in_chans": 4}),
        (VisionTransformerDistilled, {}),
    ],
)
def test_timm_and_deit_names_give_the_output_of_their_model(tmp_path: Path, kind: Any, options: Any):
    model = vit(kind, **options)
    torch.save({"model": model.state_dict() | zeros("head.weight", "head_dist.bias")}, tmp_path / "model.pth")
    loaded = load_model(str(tmp_path / "model.pth")).backbone
    images = torch.randn(2, options.get("in_chans", 3), 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(loaded(images), model(images), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("registers", "gated"), [(4, False), (0, True)])
def test_dinov2_training_file_gives_its_teacher(tmp_path: Path, registers: int, gated: bool):
    model, tensors = dinov2(registers, gated)
    names = {"blocks.0.": "blocks.0.0.", "blocks.1.": "blocks.1.1."}
    for old, new in names.items():
        tensors = {name.replace(old, new): value for name, value in tensors.items()}
    file = {"model": below("teacher.backbone.", tensors) | below("student.backbone.", OTHER)}
    torch.save(file, tmp_path / "model_0.rank_0.pth")
    loaded = load_model(str(tmp_path / "model_0.rank_0.pth"))
    with torch.no_grad():
        images = torch.randn(1, 3, 56, 56)
        torch.testing.assert_close(loaded.backbone(images), model(images), atol=1e-4, rtol=1e-4)
    assert loaded.source.startswith("teacher of model_0.rank_0.pth, 3 heads assumed")


@pytest.mark.parametrize(
    ("names", "width", "heads", "words"),
    [
        (["module.base_encoder.cls_token"], 384, 12, "as in MoCo-v3"),
        (["module.momentum_encoder.cls_token"], 768, 12, "as in MoCo-v3"),
        (["teacher.backbone.cls_token"], 384, 6, "as in DINO"),
        (["cls_token"], 384, 6, "assumed from the width 384"),
        (["model.decoder_embed.weight"], 1280, 16, "as in MAE"),
        (["storage_tokens"], 1280, 20, "as in DINOv3"),
        (["target_encoder.module.pos_embed"], 1280, 16, "as in I-JEPA"),
        (["blocks.0.ls1.gamma"], 1536, 24, "as in DINOv2"),
    ],
)
def test_heads_follow_from_the_family_and_width(names: list[str], width: int, heads: int, words: str):
    tensors = {"patch_embed.proj.weight": torch.zeros(width, 3, 1, 1)}
    found, origin = choose_heads(tensors, names, "file")
    assert (found, words in origin) == (heads, True)


@pytest.mark.parametrize(
    ("width", "heads", "message"),
    [
        (1280, None, "published models of this width have 16 or 20. Pass --heads N"),
        (128, None, "no published model has this width. Pass --heads N"),
        (384, 7, "a width of 384, which cannot be split over --heads 7"),
        (384, 0, "cannot be split over --heads 0"),
    ],
)
def test_heads_that_do_not_follow_are_refused(width: int, heads: int | None, message: str):
    with pytest.raises(WeightsError, match=message):
        choose_heads({"patch_embed.proj.weight": torch.zeros(width, 3, 1, 1)}, [], "file", heads)


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("MAE", "vit_base_patch16_224.mae vit_large_patch16_224.mae vit_huge_patch14_224.mae"),
        (
            "DINOv3",
            "vit_small_patch16_dinov3 vit_base_patch16_dinov3 vit_large_patch16_dinov3"
            " vit_huge_plus_patch16_dinov3 vit_7b_patch16_dinov3",
        ),
        ("DINOv2", " ".join(f"vit_{size}_patch14_dinov2" for size in ("small", "base", "large", "giant"))),
        ("DeiT", " ".join(f"deit_{size}_distilled_patch16_224" for size in ("tiny", "small", "base"))),
        (
            "I-JEPA",
            "vit_base_patch16_224 vit_large_patch16_224 vit_huge_patch14_gap_224 vit_giant_patch16_gap_224",
        ),
        (
            "timm",
            "vit_tiny_patch16_224 vit_small_patch16_224 vit_medium_patch16_gap_256 vit_base_patch16_224"
            " vit_large_patch16_224 vit_huge_patch14_224",
        ),
        ("DINO", "deit_tiny_patch16_224 vit_small_patch16_224.dino vit_base_patch16_224.dino"),
    ],
)
def test_heads_of_a_family_are_those_of_its_models(title: str, names: str):
    with torch.device("meta"):
        models = [timm.create_model(name, depth=1, num_classes=0) for name in names.split()]
    (family,) = (family for family in PUBLISHED if family.title == title)
    assert dict(family.heads) == {model.embed_dim: model.blocks[0].attn.num_heads for model in models}


def test_heads_and_prefix_of_the_user_are_taken(tmp_path: Path):
    model, path = vit(num_heads=6, embed_dim=96), str(tmp_path / "model.pth")
    torch.save({"a": below("b.c.", model.state_dict()), "vision": below("c.", OTHER)}, path)
    with pytest.raises(
        WeightsError, match=r"model.pth holds several networks: choose one of a.b, vision with"
    ):
        load_model(path, heads=6)
    with pytest.raises(WeightsError, match=r"no tensor begins with 'a.d': found a.b.c.cls_token"):
        load_model(path, heads=6, checkpoint_prefix="a.d")
    with pytest.raises(WeightsError, match="no published model has this width"):
        load_model(path, checkpoint_prefix="a.b.c")
    for options in ({"checkpoint_prefix": "a.b.c."}, {"checkpoint_key": "a.b"}):
        loaded = load_model(path, heads=6, **options)
        assert loaded.backbone.blocks[0].attn.num_heads == 6
        assert "without" not in loaded.source
        assert_output_of(loaded.backbone, model, half=False)


@pytest.mark.parametrize("archive", [False, True])
def test_harmless_values_of_a_pickle_are_read(tmp_path: Path, archive: bool):
    values = torch.arange(4.0)
    content = {
        "a": {"weight": values, "a": values[1:], "half": values.half()},
        "numbers": [1, 70_000, 2**70, -2.5, None, True, (), (1,), (1, 2, 3, 4), "weight", "caf\udce9", "a"],
        "more": [
            np.float64(2.5),
            np.arange(3),
            Namespace(lr=0.1),
            collections.defaultdict(int, {"k": 2}),
        ],
    }
    file = tmp_path / "model.pth"
    torch.save(content, file, _use_new_zipfile_serialization=archive)
    found = read_torch(file)
    assert found["numbers"] == content["numbers"]
    assert (found["more"][0], found["more"][1].tolist(), *found["more"][2:4]) == (
        2.5,
        [0, 1, 2],
        Namespace(lr=0.1),
        {"k": 2},
    )
    assert all(torch.equal(found["a"][name], tensor) for name, tensor in content["a"].items())


@pytest.mark.parametrize(
    ("protocol", "found"), [(2, r"posix\.mkdir, which could run code"), (5, "protocol 4 or 5")]
)
def test_code_and_other_protocols_in_a_pickle_are_refused(tmp_path: Path, protocol: int, found: str):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    torch.save({"a": torch.ones(1), "bomb": Bomb()}, tmp_path / "model.pth", pickle_protocol=protocol)
    with pytest.raises(
        WeightsError, match=rf"model\.pth is refused: it holds .*{found}.*save its state_dict"
    ):
        load_model(str(tmp_path / "model.pth"))
    assert not (tmp_path / "executed").exists()


def test_dropped_tensors_and_other_networks_are_named(tmp_path: Path):
    state = vit().state_dict()
    torch.save({"model": OTHER, "model_ema": state | zeros("head.weight", "head.bias")}, tmp_path / "a.pth")
    words = "model_ema of a.pth, 3 heads assumed from the width 192, --heads chooses others, "
    words += "without 2 tensors of head (not used: model)"
    assert load_model(str(tmp_path / "a.pth")).source == words
    lightning = below("teacher_backbone.", state) | zeros("teacher_head.weight", "student_head.weight")
    torch.save({"state_dict": lightning, "optimizer": zeros("momentum")}, tmp_path / "b.ckpt")
    words = "teacher of b.ckpt, 3 heads as in DINO, without 2 tensors of student_head, teacher_head"
    assert load_model(str(tmp_path / "b.ckpt")).source == words


@pytest.mark.parametrize("option", [{"heads": 2}, {"checkpoint_prefix": "backbone"}])
@pytest.mark.parametrize("name", ["embedded", "random:vit_tiny/16"])
def test_options_of_bare_checkpoints_are_refused_for_models_that_describe_themselves(name: str, option: Any):
    with pytest.raises(WeightsError, match=r"heads is 2: pass --heads|describes itself: leave --"):
        load_model(name, **option)


def cut_in_the_middle() -> bytes:
    content = io.BytesIO()
    torch.save(OTHER, content)
    return content.getvalue()[:5000]


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
        cut_in_the_middle(),
    ],
)
def test_foreign_file_is_refused_with_its_first_bytes(tmp_path: Path, content: bytes, suffix: str):
    file = tmp_path / f"model{suffix}"
    file.write_bytes(content)
    start = f"begins with {content[:4]!r}" if content else "it is empty"
    with pytest.raises(WeightsError, match=rf"model\{suffix} is no readable .*{re.escape(start)}"):
        load_model(str(file))


def test_file_is_read_by_its_content_under_the_suffix_of_another_kind(tmp_path: Path):
    model = vit()
    torch.save(model.state_dict(), tmp_path / "a.safetensors")
    safetensors.torch.save_file(model.state_dict(), tmp_path / "b.pth")
    for name in ("a.safetensors", "b.pth"):
        assert_output_of(load_model(str(tmp_path / name)).backbone, model, half=False)
