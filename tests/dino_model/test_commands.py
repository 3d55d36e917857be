import json
from pathlib import Path

import pytest
import safetensors
import torch

from dino_model.models.backbones import BackboneConfig, create_backbone
from dino_model.models.catalogue import OFFICIAL
from dino_model.models.checkpoint import write_safetensors
from dino_model.models.load import load_model
from dino_model.runtime.errors import EXPECTED
from tests.commands import dino

SMALL = BackboneConfig("vit_small", patch_size=8, image_size=32, width=24, depth=2, heads=3)

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    """A small model that describes itself."""
    path = tmp_path / "model.safetensors"
    write_safetensors(create_backbone(SMALL), path, config=SMALL, mean=(0.5,) * 3, std=(0.2,) * 3)
    return path


def test_list_command_shows_published_scores(tmp_path: Path, capsys: pytest.CaptureFixture):
    dino(["list", "--json", str(tmp_path / "list.json")])
    printed = capsys.readouterr().out
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in printed.split("\n\n")[0].splitlines()[1:]}
    assert set(OFFICIAL) <= set(rows)
    for name, row in {  # tables 2 and 5 and figure 4 of the paper
        "dino_vits16": "ViT-S/16 21.7 M 74.5 77.0 45.9 61.8",
        "dino_vits8": "ViT-S/8 21.7 M 78.3 79.7 44.7 69.9",
        "dino_vitb16": "ViT-B/16 85.8 M 76.1 78.2 – 62.3",
        "dino_vitb8": "ViT-B/8 85.8 M 77.4 80.1 – 71.4",
        "dino_resnet50": "ResNet-50 23.5 M 67.5 75.3 – –",
    }.items():
        assert rows[name] == f"{row} no"
    table = {row["name"]: row for row in json.loads((tmp_path / "list.json").read_text())}
    assert table["dino_vitb8"]["scores"] == {"knn": 77.4, "linear": 80.1, "voc": None, "davis": 71.4}
    assert table["dino_vitb8"]["parameters"] == 85_807_872


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dino_vits8", ("patches of 8, 12 blocks × 384, 6 heads", "21.7 M", "k-NN 78.3", "https://dl.fbaip")),
        ("dino_resnet50", ("ResNet, features of 2048", "23.5 M", "linear 75.3")),
        ("vit_small_patch14_reg4_dinov2.lvd142m", ("4 registers", "apache-2.0", "huggingface.co/timm/")),
        ("vit_small_patch16_dinov3.lvd1689m", ("ViT (Eva), patches of 16", "maps of [CLS] and of points")),
        ("resnet18.a1_in1k", ("none: the attention of a ResNet cannot be read: expected one of",)),
        ("random:vit_tiny/5", ("patches of 5, 12 blocks × 192, 3 heads", "random weights, seed 0")),
        ("model.safetensors", ("patches of 8, 2 blocks × 24, 3 heads", "source       model.safetensors\n")),
    ],
)
def test_show_command_describes_any_model(name, expected, model_file: Path, monkeypatch, capsys):
    monkeypatch.chdir(model_file.parent)
    dino(["show", name, "--json", "show.json"])
    shown = capsys.readouterr().out
    assert all(words in shown for words in expected), shown
    is_local = name in ("random:vit_tiny/5", "model.safetensors")
    assert json.loads(Path("show.json").read_text())["local"] is is_local


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_export_command_file_describes_itself_and_loads_equal(model_file: Path, tmp_path: Path, dtype: str):
    copy = tmp_path / "out" / "copy.safetensors"
    dino(["export", str(model_file), "--output", str(copy), "--dtype", dtype])
    stored = {"fp32": torch.float32, "fp16": torch.float16}[dtype]
    with safetensors.safe_open(copy, "pt") as file:
        assert file.metadata()["format"] == "dino-attention-lab/1"
        assert file.get_tensor("cls_token").dtype == stored
    first, second = load_model(str(model_file)), load_model(str(copy))
    assert (second.config, second.mean, second.std) == (SMALL, first.mean, first.std)
    for name, tensor in first.backbone.state_dict().items():
        assert torch.equal(second.backbone.state_dict()[name], tensor.to(stored).float())
    assert list(copy.parent.iterdir()) == [copy]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("show nope", "unknown model 'nope'"),
        ("show vit_small_patch16_224.nonsense", "Invalid pretrained tag"),
        ("export model.safetensors --checkpoint-key student --output new.safetensors", "has no student"),
        ("export model.safetensors --output folder --dtype fp16", "cannot write folder with --dtype fp16"),
        ("export model.safetensors --output new.safetensors --dtype int8", r"expected folder \(fp32\)"),
        ("export model.safetensors --output new.pth", r"cannot write new\.pth"),
    ],
)
def test_commands_with_invalid_arguments_print_one_sentence(words, message, model_file: Path, monkeypatch):
    monkeypatch.chdir(model_file.parent)
    with pytest.raises(EXPECTED, match=message) as error:
        dino(words.split())
    assert "\n" not in str(error.value)
    assert list(Path().iterdir()) == [Path("model.safetensors")]
