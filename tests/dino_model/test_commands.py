import json
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch

from dino_model import commands
from dino_model.backbones import BackboneConfig, create_backbone
from dino_model.checkpoints import write_safetensors
from dino_model.errors import EXPECTED
from dino_model.published import OFFICIAL
from dino_model.weights import load_model

ROOT = Path(__file__).parents[2]
SMALL = BackboneConfig("vit_small", patch_size=8, image_size=32, width=24, depth=2, heads=3)


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DINO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    monkeypatch.setattr("socket.getaddrinfo", lambda *_: pytest.fail("touched the network"))


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    """A small model that describes itself."""
    path = tmp_path / "model.safetensors"
    write_safetensors(create_backbone(SMALL), path, config=SMALL, mean=(0.5,) * 3, std=(0.2,) * 3)
    return path


def sentence(arguments: list[Any]) -> str:
    """The one-sentence message of a failing command."""
    with pytest.raises(EXPECTED) as error:
        commands.main([str(argument) for argument in arguments])
    assert "\n" not in str(error.value)
    return str(error.value)


def test_list_command_shows_published_scores(tmp_path: Path, capsys: pytest.CaptureFixture):
    commands.main(["list", "--json", str(tmp_path / "list.json")])
    printed = capsys.readouterr().out
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in printed.split("\n\n")[0].splitlines()[1:]}
    assert set(OFFICIAL) <= set(rows)
    assert rows["dino_vits16"] == "ViT-S/16 21.7 M 74.5 77.0 45.9 61.8 no"
    assert rows["dino_resnet50"].endswith("67.5 75.3 – – no")
    table = {row["name"]: row for row in json.loads((tmp_path / "list.json").read_text())}
    assert table["dino_vitb8"]["scores"] == {"knn": 77.4, "linear": 80.1, "voc": None, "davis": 71.4}
    assert table["dino_vitb8"]["parameters"] == 85_807_872
    assert max(map(len, printed.splitlines())) <= 110


def test_show_command_downloads_nothing(model_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    vits8 = (
        "patches of 8, 12 blocks × 384, 6 heads",
        "21.7 M",
        "k-NN 78.3",
        OFFICIAL["dino_vits8"].file.address,
    )
    for name, expected in {
        "dino_vits8": vits8,
        "dino_resnet50": ("ResNet, features of 2048", "23.5 M", "linear 75.3"),
        "vit_small_patch14_reg4_dinov2.lvd142m": ("4 registers", "apache-2.0", "huggingface.co/timm/"),
        "vit_small_patch16_dinov3.lvd1689m": ("ViT (Eva), patches of 16", "maps of [CLS] and of points"),
        "resnet18.a1_in1k": ("none: the attention of a ResNet cannot be read: expected one of",),
        "random:vit_tiny/5": ("patches of 5, 12 blocks × 192, 3 heads", "random weights, seed 0"),
        str(model_file): ("patches of 8, 2 blocks × 24, 3 heads", "source       model.safetensors\n"),
    }.items():
        commands.main(["show", name, "--json", str(tmp_path / "show.json")])
        shown = capsys.readouterr().out
        assert all(words in shown for words in expected), shown
    assert json.loads((tmp_path / "show.json").read_text())["local"] is True


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_export_command_file_describes_itself_and_loads_equal(model_file: Path, tmp_path: Path, dtype: str):
    copy = tmp_path / "out" / "copy.safetensors"
    commands.main(["export", str(model_file), "--output", str(copy), "--dtype", dtype])
    stored = {"fp32": torch.float32, "fp16": torch.float16}[dtype]
    with safetensors.safe_open(copy, "pt") as file:
        assert file.metadata()["format"] == "dino-attention-lab/1"
        assert file.get_tensor("cls_token").dtype == stored
    first, second = load_model(str(model_file)), load_model(str(copy))
    assert (second.config, second.mean, second.std) == (SMALL, first.mean, first.std)
    for name, tensor in first.backbone.state_dict().items():
        assert torch.equal(second.backbone.state_dict()[name], tensor.to(stored).float())
    assert list(copy.parent.iterdir()) == [copy]


def test_commands_with_invalid_arguments_print_one_sentence(model_file: Path, tmp_path: Path):
    output = ["--output", tmp_path / "out.safetensors"]
    assert "unknown model 'nope'" in sentence(["show", "nope"])
    assert "has no student" in sentence(["export", model_file, "--checkpoint-key", "student", *output])
    assert "leave --dtype out" in sentence(
        ["export", model_file, "--format", "transformers", "--dtype", "fp16", *output]
    )
    assert "Invalid pretrained tag" in sentence(["show", "vit_small_patch16_224.nonsense"])
    assert not (tmp_path / "out.safetensors").exists()
