import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from timm.models.beit import Beit
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from dino_model import engine, graphs
from dino_model.device import has_bf16
from dino_model.engine import OpenVinoEncoder, TorchEncoder, by_engine, create_encoder
from dino_model.predictor import AttentionPredictor
from dino_model.readable import readable
from dino_model.weights import LoadedModel

pytestmark = pytest.mark.openvino
CPU = torch.device("cpu")
SHAPE = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 3, "num_classes": 0}
ANY_SIZE = {"dynamic_img_size": True, "dynamic_img_pad": True}
MODELS = {
    "ViT": (VisionTransformer, ANY_SIZE),
    "DINOv3": (Eva, {"use_rot_pos_emb": True, "rope_type": "dinov3", "num_reg_tokens": 2, **ANY_SIZE}),
}
needs_openvino = pytest.mark.skipif(not graphs.installed(), reason="OpenVINO is not installed")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DINO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "openvino"


def model(name: str = "ViT") -> nn.Module:
    kind, options = MODELS[name]
    torch.manual_seed(0)
    made = kind(**SHAPE | options)
    with torch.no_grad():
        for tensor in made.parameters():
            tensor.add_(0.1 * torch.randn(tensor.shape))
    return made.eval().requires_grad_(False)


def images(batch: int = 1, height: int = 40, width: int = 64) -> torch.Tensor:
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(height))


@needs_openvino
def test_openvino_tells_its_makers_nothing_and_begins_no_process():
    code = """
import multiprocessing, sys, time
multiprocessing.Process.start = lambda process: print("began", process)
import dino_model.graphs, openvino
time.sleep(1)
print([name for name, module in sys.modules.items() if name.startswith("openvino_telemetry") and module])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "[]\n"


@needs_openvino
@pytest.mark.parametrize("name", MODELS)
def test_openvino_gives_the_tokens_of_torch(name: str):
    vit = readable(model(name))
    compiled, plain = OpenVinoEncoder(vit, "fp32"), TorchEncoder(vit, "fp32", CPU)
    expected = plain(images(), "inputs")
    for found, tokens in zip(compiled(images(), "inputs"), expected, strict=True):
        torch.testing.assert_close(found, tokens, atol=1e-4, rtol=0)
    assert len(expected) == 2


@needs_openvino
def test_an_answer_stays_when_the_next_picture_comes():
    compiled = OpenVinoEncoder(readable(model()), "fp32")
    first = compiled(images(), "last")[0]
    kept = first.clone()
    compiled(images() + 1, "last")
    assert torch.equal(first, kept)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shape of the example that each graph was compiled from."""
    shapes: list[tuple[int, ...]] = []
    compiled = graphs.compiled

    def note(module: nn.Module, tokens: torch.Tensor, *rest: object, **options: bool) -> object:
        shapes.append(tuple(tokens.shape))
        return compiled(module, tokens, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(graphs, "compiled", note)
    return shapes


@needs_openvino
def test_one_graph_serves_every_size_and_batch(compilations: list):
    vit = readable(model())
    compiled, plain = OpenVinoEncoder(vit, "fp32"), TorchEncoder(vit, "fp32", CPU)
    for shape in ((1, 40, 64), (1, 64, 24), (3, 32, 32), (1, 8, 8)):
        found, expected = (encoder(images(*shape), "last")[0] for encoder in (compiled, plain))
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    assert len(compilations) == 1


@needs_openvino
def test_a_copy_is_exported_for_other_threads_may_be_running_the_model():
    ran: list[int] = []

    class Blocks(nn.Module):
        def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
            ran.append(id(self))
            return (2 * tokens,)

    blocks = Blocks()
    graph = graphs.compiled(blocks, torch.ones(1, 3, 4), "fp32", any_length=True)
    torch.testing.assert_close(graphs.run(graph, torch.ones(1, 5, 4))[0], 2 * torch.ones(1, 5, 4))
    assert ran
    assert id(blocks) not in ran


@needs_openvino
def test_a_rotary_model_has_a_graph_for_each_grid_and_a_few_of_them_in_memory(
    compilations: list, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine, "GRAPHS_IN_MEMORY", 2)
    vit = readable(model("DINOv3"))
    compiled, plain = OpenVinoEncoder(vit, "fp32"), TorchEncoder(vit, "fp32", CPU)
    for shape in ((1, 40, 64), (2, 64, 40), (1, 32, 32), (2, 32, 32)):  # 5 × 8 patches are not 8 × 5
        found, expected = (encoder(images(*shape), "last")[0] for encoder in (compiled, plain))
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    assert len(compilations) == 3
    assert list(compiled._graphs) == ["last (8, 5)", "last (4, 4)"]


@needs_openvino
def test_graphs_are_kept_on_disk_and_the_waiting_is_told(
    cache: Path, compilations: list, capsys: pytest.CaptureFixture[str]
):
    encoder = OpenVinoEncoder(readable(model()), "fp32")
    assert encoder.compiles((5, 8), "last")
    first = encoder(images(), "last")[0]
    assert not encoder.compiles((8, 5), "last")
    assert "compiling the model with OpenVINO 2" in capsys.readouterr().err
    encoder(images(), "last")
    assert compilations == [(1, 41, 48)]
    assert capsys.readouterr().err == ""
    again = OpenVinoEncoder(readable(model()), "fp32")
    assert not again.compiles((5, 8), "last")
    torch.testing.assert_close(again(images(), "last")[0], first)
    assert len(compilations) == 1, "from disk"
    (blob,) = cache.glob("*.blob")
    changed = bytearray(blob.read_bytes())
    changed[-1000] ^= 0xFF  # somewhere in the weights
    blob.write_bytes(changed)
    third = OpenVinoEncoder(readable(model()), "fp32")
    torch.testing.assert_close(third(images(), "last")[0], first)
    assert len(compilations) == 2
    assert f"{blob} is damaged and deleted: its bytes are not" in capsys.readouterr().err
    other = model()
    other.norm.weight.mul_(2)
    assert OpenVinoEncoder(readable(other), "fp32")._path("last") != third._path("last")


def test_the_graphs_used_longest_ago_leave_the_disk(tmp_path: Path):
    import os

    for age, name in enumerate("abcd"):
        (tmp_path / f"{name}.blob").write_bytes(b"0123456789")
        os.utime(tmp_path / f"{name}.blob", (1000 - age, 1000 - age))
    graphs.make_room(tmp_path, keep=tmp_path / "d.blob", limit=20)
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["a", "d"], "the new one stays, however old"


@needs_openvino
def test_auto_lets_torch_answer_first_and_names_who_answered():
    photo = np.random.default_rng(0).integers(0, 256, (40, 64, 3), dtype=np.uint8)
    loaded = LoadedModel("tiny", model(), (0.5,) * 3, (0.2,) * 3, "made here", None)
    options = {"resize": "native", "precision": "fp32", "device": "cpu"}
    predictor = AttentionPredictor(loaded, engine="auto", **options)
    told = []
    for step in range(engine.WORTH_COMPILING):
        assert predictor.compiles(40, 64) is (step == engine.WORTH_COMPILING - 1)
        predictor.set_image(photo + np.uint8(step))
        told.append(predictor.describe().rsplit(" by ")[1])
        assert predictor.engine == told[-1]
    assert told[:-1] == ["torch"] * (engine.WORTH_COMPILING - 1)
    assert told[-1].startswith("OpenVINO 2")
    plain = AttentionPredictor(loaded, **options)
    plain.set_image(photo + np.uint8(step))
    np.testing.assert_allclose(predictor.cls_attention(), plain.cls_attention(), atol=1e-5)
    np.testing.assert_allclose(predictor.token_features(), plain.token_features(), atol=1e-4)
    other = predictor.at(64)
    other.set_image(photo[:24])
    assert other.engine == told[-1], "what is compiled serves every resolution"
    assert predictor.grid == (5, 8)
    assert plain.computed == "fp32 on cpu by torch"
    assert predictor.computed.startswith("fp32 on cpu by torch or OpenVINO 2"), "a cache tells them apart"
    strict = AttentionPredictor(loaded, engine="openvino", **options)
    assert strict.computed.startswith("fp32 on cpu by OpenVINO 2")


def test_a_missing_openvino_is_told_and_auto_takes_torch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(graphs, "installed", lambda: False)
    with pytest.raises(
        ValueError, match=r"not installed: run `pip .*openvino.txt`, or choose --engine torch"
    ):
        create_encoder("openvino", readable(model()), "fp32", CPU)
    assert create_encoder("auto", readable(model()), "fp32", CPU).name == "torch"


@needs_openvino
def test_what_openvino_cannot_run_is_told_and_never_run_otherwise():
    with pytest.raises(ValueError, match=r"takes fp32 weights here, found torch\.float16"):
        create_encoder("openvino", readable(model().half()), "fp32", CPU)
    with pytest.raises(ValueError, match="runs on the CPU here, found device meta"):
        create_encoder("openvino", readable(model()), "fp32", torch.device("meta"))
    with pytest.raises(ValueError, match="unknown engine"):
        create_encoder("onnx", readable(model()), "fp32", CPU)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"not given a BEiT here.* or choose --engine torch"):
        create_encoder("openvino", readable(Beit(**SHAPE)), "fp32", CPU)
    if not has_bf16(CPU):
        with pytest.raises(ValueError, match="this processor has no bf16"):
            create_encoder("openvino", readable(model()), "bf16", CPU)


@needs_openvino
def test_a_graph_that_openvino_refuses_ends_in_one_sentence_and_auto_says_that_torch_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("\nno such operation:\n  roll")

    monkeypatch.setattr(graphs, "compiled", refuse)
    told = r"OpenVINO refuses this model \(… no such operation: roll\): choose --engine torch"
    with pytest.raises(ValueError, match=told):
        OpenVinoEncoder(readable(model()), "fp32")(images(), "last")
    vit = readable(model())
    lenient = OpenVinoEncoder(vit, "fp32", worth=2)
    expected = TorchEncoder(vit, "fp32", CPU)(images(), "last")[0]
    for _ in range(3):
        assert torch.equal(lenient(images(), "last")[0], expected)
        assert lenient.name == "torch"
    assert capsys.readouterr().err.count("torch answers instead") == 1


@needs_openvino
def test_a_backbone_answers_by_its_blocks_engine_with_the_same_feature():
    plain = model()
    found = by_engine(plain, "openvino", "fp32", CPU)
    with torch.no_grad():
        torch.testing.assert_close(found(images()), plain(images()), atol=1e-4, rtol=0)
    assert by_engine(plain, "torch", "fp32", CPU) is plain
    resnet = nn.Conv2d(3, 4, 3)
    assert by_engine(resnet, "auto", "fp32", CPU) is resnet
    with pytest.raises(ValueError, match="cannot be read"):
        by_engine(resnet, "openvino", "fp32", CPU)


def test_openvino_is_imported_only_when_it_runs():
    code = "import sys, dino_model.predictor; sys.exit('openvino' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
