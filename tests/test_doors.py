"""Each door of CONTRIBUTING.md: the code in its section runs, and what it adds works."""

import copy
import importlib
import json
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import gradio as gr
import numpy as np
import pytest
import torch
from fastapi import FastAPI
from PIL import Image
from pycocotools import mask as coco_mask
from starlette.testclient import TestClient
from torch import Tensor, nn

from app.handlers import objects
from app.limits.bounds import Limits
from app.store.engine import Key, encode
from app.store.models import Models
from dino_model import AttentionPredictor
from dino_model.data.framing import Framing
from dino_model.inference.embedding import read_features
from dino_model.models.catalogue import WeightsError
from dino_model.models.load import load_model
from dino_model.runtime.device import autocast
from dino_model.runtime.errors import SettingError
from segmentation import discovery
from segmentation.commands.discover import Discover
from segmentation.discovery import METHODS as DISCOVERY_METHODS
from segmentation.discovery import Discovery, DiscoveryMethod
from tests.commands import dino
from tests.training.runs import noise, write_rectangles
from training import methods
from training.__main__ import main as train
from training.augmentation.crops import Crops
from training.augmentation.randomness import Randomness
from training.commands import COMMANDS
from training.methods.config import MethodSchedules
from training.methods.dino_config import DINOConfig
from training.methods.method import Batch, Loss, Method
from training.methods.table import METHODS, add_method
from training.optim import create_optimizer, decay_groups
from training.recipes.named_recipes import small_data
from training.recipes.recipe import Plan
from training.run import doctor
from training.run.folder import Run
from training.run.log import metric_names
from training.train import train_step

ROOT = Path(__file__).parents[1]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def door(title: str) -> str:
    """Return the section "Door: TITLE" of CONTRIBUTING.md."""
    return CONTRIBUTING.partition(f"### Door: {title}\n")[2].partition("\n## ")[0].partition("\n### ")[0]


def door_code(title: str) -> str:
    """Return the code of a section "Door: TITLE" of CONTRIBUTING.md."""
    return "\n".join(re.findall(r"```python\n(.*?)```", door(title), re.DOTALL))


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", CONTRIBUTING, re.DOTALL))
def test_code_of_doors_passes_the_linter_when_it_is_copied(code):
    words = [sys.executable, "-m", "ruff", "check", "--quiet", "--stdin-filename", "training/copied.py", "-"]
    checked = subprocess.run(words, input=code, text=True, capture_output=True, cwd=ROOT, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def import_door(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, title: str) -> None:
    """Write a door's code as a module and import it."""
    (folder / f"{name}.py").write_text(door_code(title))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setitem(sys.modules, name, ModuleType(name))  # the end of the test removes the module
    del sys.modules[name]
    importlib.import_module(name)


SMALL = "--width 24 --depth 1 --heads 3 --hidden 16 --prototypes 16 --hidden-predictor 8 --epochs 1"
SMALL += " --workers 0 --device cpu --precision fp32 --warmup-epochs 0"


def import_method(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Add the two files of the door and its entry; the end of the test removes it from the table."""
    config, algorithm = re.findall(r"```python\n(.*?)```", door("a pretraining method"), re.DOTALL)
    (folder / "simsiam_config.py").write_text(config)
    (folder / "simsiam.py").write_text(algorithm)
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(folder)])
    for name in ("simsiam_config", "simsiam"):
        monkeypatch.setitem(sys.modules, f"training.methods.{name}", ModuleType(name))
        del sys.modules[f"training.methods.{name}"]
    monkeypatch.setitem(METHODS, "simsiam", DINOConfig)
    del METHODS["simsiam"]
    add_method(importlib.import_module("training.methods.simsiam_config").SimSiamConfig)


def test_door_method_trains_resumes_and_loads_by_its_own_options_and_recipes(monkeypatch, tmp_path, capsys):
    images, run = noise(tmp_path / "images", 10, 2, 40, 48), tmp_path / "run"
    import_method(monkeypatch, tmp_path)

    def pretrain(words: str) -> int:
        return train(["pretrain", *words.split(), "--data", str(images), "--output", str(run)])

    assert pretrain(f"--method simsiam --recipe small-data {SMALL}") == 0
    assert "method simsiam, recipe small-data" in capsys.readouterr().out
    config, lines = Run(run).config(), Run(run).lines()
    assert (config["method"], config["recipe"]["crops"]["local_crops"]) == ("simsiam", 0)
    assert [line["step"] for line in lines] == [
        0,
        1,
    ]  # batches of 4: the recipe's, not that of another method
    assert 0 < lines[0]["spread"] <= 1
    assert metric_names(lines) == ["spread"]
    assert pretrain("--resume --epochs 2") == 0
    assert len(Run(run).lines()) == 4
    assert load_model(str(run)).backbone.num_features == 24
    settings = doctor.run_settings(config)  # advice of no other method
    assert (settings.remedy, settings.rank_remedy) == ("lower --lr", "lower --lr or --weight-decay-end")
    capsys.readouterr()
    with pytest.raises(SystemExit, match="0"):
        train(["pretrain", "--method", "simsiam", "--recipe", "simsiam-paper", "--help"])
    text = capsys.readouterr().out
    assert "--hidden-predictor INT" in text
    assert "--method {dino," in text
    assert "simsiam}" in text.replace("\n", "")


def test_method_without_a_recipe_is_an_error_not_another_method(monkeypatch, tmp_path, capsys):
    import_method(monkeypatch, tmp_path)
    words = ["pretrain", "--data", str(tmp_path), "--output", str(tmp_path / "run"), "--method", "simsiam"]
    monkeypatch.setattr(METHODS["simsiam"], "small_data", None)
    assert train([*words, "--recipe", "small-data"]) == 1
    assert "simsiam has no recipe 'small-data': choose simsiam-paper" in capsys.readouterr().err
    monkeypatch.setattr(METHODS["simsiam"], "recipes", {})
    assert train(words) == 1
    assert "SimSiamConfig has no recipe" in capsys.readouterr().err


def test_method_whose_module_does_not_exist_is_named(monkeypatch, tmp_path, capsys):
    images = noise(tmp_path / "images", 10, 2, 40, 48)
    import_method(monkeypatch, tmp_path)
    monkeypatch.setattr(METHODS["simsiam"], "implementation", "simsiam_:SimSiam")
    words = f"pretrain --method simsiam --recipe small-data {SMALL} --output {tmp_path / 'run'}"
    assert train([*words.split(), "--data", str(images)]) == 1
    assert "no module simsiam_, the implementation of simsiam" in capsys.readouterr().err
    (tmp_path / "simsiam_needs.py").write_text("import an_absent_package")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(METHODS["simsiam"], "implementation", "simsiam_needs:SimSiam")
    with pytest.raises(ModuleNotFoundError, match="an_absent_package"):
        train([*words.split(), "--overwrite", "--data", str(images)])


def test_crops_that_a_method_does_not_read_are_refused(monkeypatch, tmp_path, capsys):
    images = noise(tmp_path / "images", 10, 2, 40, 48)
    import_method(monkeypatch, tmp_path)
    words = (
        f"pretrain --method simsiam --recipe small-data {SMALL} --output {tmp_path / 'run'} --data {images}"
    )
    for crops, error in (
        ("--local-crops 2 --local-size 16", "--local-crops is 2, but simsiam reads none"),
        ("--global-crops 3", "--global-crops is 3, but simsiam reads 2 of an image"),
    ):
        assert train([*words.split(), *crops.split()]) == 1
        assert error in capsys.readouterr().err


@pytest.mark.parametrize(
    ("recipe", "error"),
    [
        ({"method": {"name": "byol"}}, "unknown setting 'name' of SimSiamConfig"),
        ({"method": {"hidden_predictor": 8.5}}, "hidden_predictor of SimSiamConfig is 8.5, expected int"),
        ({"method": {"hidden_predictor": True}}, "hidden_predictor of SimSiamConfig is True, expected int"),
        ({"method": {"head": {"batch_norm": "no"}}}, "batch_norm of HeadConfig is 'no', expected bool"),
        ({"method": {"head": {"activation": "silu"}}}, "is 'silu', expected gelu or relu"),
        ({"epoch": 5}, "unknown setting 'epoch' of Recipe"),
        ({"crops": {"global_scale": [0.5, "a"]}}, r"is \(0.5, 'a'\), expected tuple\[float"),
        ({"crops": {"global_scale": 0.5}}, r"is 0.5, expected tuple\[float"),
    ],
)
def test_recipes_with_an_entry_that_would_be_left_out_or_mean_another_are_refused(
    monkeypatch, tmp_path, recipe, error
):
    import_method(monkeypatch, tmp_path)
    monkeypatch.setattr(METHODS["simsiam"], "small_data", {"batch_size": 4} | recipe)
    with pytest.raises(SettingError, match=error):
        small_data("simsiam", 100, 64)


@pytest.mark.parametrize(
    ("names", "error"),
    [
        ({"name": "new"}, "Mine has no implementation of its own"),
        ({"implementation": "new:New"}, "Mine has no name of its own"),
        ({"name": "new", "implementation": "new:New"}, "Mine is no dataclass: its options would be left out"),
    ],
)
def test_method_that_would_be_another_is_refused(names, error):
    with pytest.raises(ValueError, match=error):
        add_method(type("Mine", (DINOConfig,), names))
    with pytest.raises(ValueError, match="DINOConfig and AblationsConfig have one name, 'dino'"):
        add_method(DINOConfig)


def test_loss_in_reduced_precision_and_metrics_of_the_loop_are_refused():
    images = torch.ones(1, 2, 3)
    batch = Batch(Crops(images, images[:0]), None, Randomness(0, 0, 0, 2))

    class Mine(Method):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1)

        @classmethod
        def from_config(cls, config, context):
            raise NotImplementedError

        def forward(self, batch, step):
            return Loss(self.layer(batch.crops.views).mean(), logs, {})

    logs: dict[str, Tensor] = {}
    method, plan = Mine(), Plan(np.ones(1), np.ones(1), 0.0, MethodSchedules(), 1)
    optimizer = create_optimizer("sgd", decay_groups(method), images.device)
    with pytest.raises(SettingError, match=r"the loss of Mine is torch.bfloat16, expected torch.float32"):
        train_step(method, optimizer, batch, 0, plan, autocast("bf16", images.device))
    train_step(method, optimizer, batch, 0, plan, autocast("fp32", images.device))
    logs["loss"] = torch.zeros(())
    with pytest.raises(SettingError, match="Mine logs 'loss', which the loop logs, too: rename it"):
        train_step(method, optimizer, batch, 0, plan, autocast("fp32", images.device))


def test_door_evaluation_protocol_is_a_command_with_a_score(monkeypatch, tmp_path, capsys):
    images = write_rectangles(tmp_path / "images", {"narrow": 10, "wide": 10})
    monkeypatch.setitem(COMMANDS, "evaluate nearest-mean", "")
    import_door(monkeypatch, tmp_path, "nearest_mean", "an evaluation protocol")
    words = ["evaluate", "nearest-mean", "--model", "pixels", "--size", "24", "--device", "cpu"]
    assert train([*words, "--data", str(images), "--json", str(tmp_path / "score.json")]) == 0
    (result,) = json.loads((tmp_path / "score.json").read_text())["results"]
    assert result["metrics"]["top1"] == 100
    assert "top-1 100.0 %" in capsys.readouterr().out
    assert train(["evaluate", "--help"]) == 0
    assert "nearest-mean" in capsys.readouterr().out
    assert train(["evaluate", "nearest-means"]) == 2
    assert capsys.readouterr().err.startswith("unknown command 'evaluate nearest-means'")


def import_model(monkeypatch: pytest.MonkeyPatch, folder: Path) -> nn.Module:
    """Import the door of a model as `my_vit`; return the module that the class creates."""
    import_door(monkeypatch, folder, "my_vit", "a model")
    own = sys.modules["my_vit"].MyViT
    module = own()
    monkeypatch.setattr(sys.modules["my_vit"], "MyViT", lambda: copy.deepcopy(module))
    return module


@torch.no_grad()
def test_door_model_computes_the_attention_of_its_blocks(monkeypatch, tmp_path):
    import_model(monkeypatch, tmp_path)
    predictor = AttentionPredictor("my_vit:MyViT", size=64, precision="fp32", device="cpu")
    predictor.set_image(np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8))
    tokens = predictor._encoding.tokens[1]
    attention = predictor.model.backbone.blocks[1].self_attn
    _, expected = attention(tokens, tokens, tokens, average_attn_weights=False)
    for found, token in ((predictor.cls_attention(1), 0), (predictor.point_attention(0, 8, block=1), 2)):
        np.testing.assert_allclose(found.reshape(2, -1), expected[0, :, token, 1:], atol=1e-5)
    assert predictor.token_features().shape == (8, 12, 32)


def test_door_model_is_a_model_of_every_command_and_of_the_page(monkeypatch, tmp_path, capsys):
    module = import_model(monkeypatch, tmp_path)
    images = write_rectangles(tmp_path / "images", {"narrow": 10, "wide": 10, "tall": 10})
    features, index, head = (tmp_path / f"{name}.safetensors" for name in ("features", "index", "head"))
    query = next(images.glob("narrow/*"))
    compute = "--device cpu --precision fp32"
    own = f"--model my_vit:MyViT {compute} --size 24"
    dino(["show", "my_vit:MyViT"])
    dino(f"embed --data {images} --output {features} {own}".split())
    dino(f"index {images} --output {index} {own}".split())
    sheet = f"--output {tmp_path / 'sheet.png'} {compute}"
    dino(f"search {query} --index {index} --model my_vit:MyViT {sheet}".split())
    assert train(f"evaluate knn --data {images} --k 3 {own}".split()) == 0
    linear = f"--epochs 1 --features 1 2+average --save-head {head}"
    assert train(f"evaluate linear --data {images} {linear} {own}".split()) == 0
    table = f"--output {tmp_path / 'predicted.csv'} {compute}"
    dino(f"predict {images} --head {head} --model my_vit:MyViT {table}".split())
    dino(f"class-map --data {images} --output {tmp_path / 'map'} --iterations 250 {own}".split())
    shown = capsys.readouterr().out
    assert shown.count("[CLS] after the final norm") >= 4
    with torch.no_grad():
        crop = Framing(24, (0.5,) * 3, (0.5,) * 3).crop(np.asarray(Image.open(query)))
        tokens = module.embed(crop[None] / 127.5 - 1)
        for block in module.blocks.eval():
            tokens = block(tokens)
        expected = module.norm(tokens)[0, 0]
    stored = read_features(features)
    found = stored.features[stored.names.index(f"narrow/{query.name}")]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    for words in (f"search {query} --index {index} {sheet}", f"predict {images} --head {head} {table}"):
        with pytest.raises(WeightsError, match="names own code, which runs only if you name it"):
            dino([*words.split(), "--overwrite"] if "predict" in words else words.split())
    run = f"--data {images} --output {tmp_path / 'run'} --epochs 1 --workers 0 {compute}"
    capsys.readouterr()
    assert train(f"pretrain --recipe small-data --init-backbone my_vit:MyViT {run}".split()) == 1
    assert (
        "my_vit:MyViT is a MyViT, expected a VisionTransformer with 1 prefix token" in capsys.readouterr().err
    )
    models = Models("my_vit:MyViT", device="cpu")
    predictor = models.ready(models.first)
    image = np.zeros((64, 96, 3), np.uint8)
    encoding = encode(Key("an image", "my_vit:MyViT", 64), predictor, image, Limits())
    assert encoding.predictor.cls_attention().shape == (2, 8, 12)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("no_such_vit:MyViT", "there is no Python module 'no_such_vit': run the command in its folder"),
        ("my_vit:Other", "the Python module 'my_vit' has no function or class 'Other'"),
        ("models/my_vit.py:MyViT", "names a file, expected MODULE:NAME, such as my_vit:MyViT"),
        ("damaged:MyViT", "'damaged' cannot be imported: ModuleNotFoundError: No module named 'absent'"),
        ("my_vit:linear", "the attention of a Linear cannot be read: expected one of timm's"),
        ("my_vit:dict", "my_vit:dict returned a dict, expected a torch.nn.Module"),
    ],
)
def test_own_code_that_is_no_model_is_refused(monkeypatch, tmp_path, name, error):
    import_model(monkeypatch, tmp_path)
    (tmp_path / "damaged.py").write_text("import absent")
    monkeypatch.setattr(sys.modules["my_vit"], "dict", dict, raising=False)
    monkeypatch.setattr(sys.modules["my_vit"], "linear", lambda: nn.Linear(2, 2), raising=False)
    with pytest.raises(ValueError, match=error):
        load_model(name)


def test_door_tab_is_on_the_page_and_reads_the_image_of_the_header(monkeypatch):
    from app.layout import build
    from app.tabs import TABS
    from tests.app.conftest import small_backend

    module = ModuleType("size")
    exec(door_code("a tab"), vars(module))
    monkeypatch.setitem(TABS, "size", module)
    demo = build(small_backend())
    client = TestClient(gr.mount_gradio_app(FastAPI(), demo, path="/page"))
    config: dict[str, Any] = client.get("/page/config").json()
    (tab,) = (one for one in config["components"] if one["props"].get("label") == "Size")
    scripts = [event["js"] for event in config["dependencies"] if [tab["id"], "select"] in event["targets"]]
    assert [script for script in scripts if "tab('size', [\"image\"])" in script]
    (image,) = (one for one in config["components"] if one["props"].get("elem_id") == "image")
    *_, event = (one for one in config["dependencies"] if one["targets"] == [[image["id"], "change"]])
    body = {"data": ["kitten"], "fn_index": event["id"], "session_hash": "toy"}
    answer = client.post("/page/gradio_api/run/predict", json=body).json()
    assert re.fullmatch(r"\d+ × \d+ pixels", answer["data"][0])


def test_door_discovery_method_serves_command_and_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(DISCOVERY_METHODS, "longest", DISCOVERY_METHODS["lost"])
    import_door(monkeypatch, tmp_path, "longest_keys", "a discovery method")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)).save(tmp_path / "a.png")
    options = {"inputs": (tmp_path / "a.png",), "model": "random:vit_tiny/16", "size": 64}
    Discover(**options, output=tmp_path / "out", methods=("longest", "lost"), count=2).run()
    records = json.loads((tmp_path / "out" / "longest.json").read_text())
    assert [coco_mask.area(record["segmentation"]) for record in records] == [256, 256]  # of a patch each
    assert {"key": "longest", "label": "Longest keys"}.items() <= objects.method_choices()[-1].items()
    assert objects.ObjectSettings.of({"method": "longest"}).method == "longest"
    monkeypatch.setitem(DISCOVERY_METHODS, "click", DISCOVERY_METHODS["lost"])
    with pytest.raises(ValueError, match="named 'click', as the page's own: choose another name"):
        objects.method_choices()
    with pytest.raises(
        ValueError, match=r"Unknown discovery method 'longer'\. Available: attention, .*, longest"
    ):
        Discover(**options, output=tmp_path / "no", methods=("longer",)).run()


def count_masks(count, keys):
    return [Discovery(keys[..., 0] > -1, (0, 0))] * count


@pytest.mark.parametrize(
    ("find", "count", "error"),
    [
        (count_masks, 2, None),  # arguments go by their names, in any order
        (count_masks, 254, None),
        (count_masks, 255, "new found 255 objects, expected at most 254"),
        (lambda key: [], 2, "method New has an argument 'key': choose among keys, attention, mass, count"),
        (lambda keys: [Discovery(keys[..., 0], (0, 0))], 2, r"returned a float64 mask of \(2, 3\)"),
        (lambda keys: [Discovery(keys[0, :, 0] > 0, (0, 0))], 2, r"a bool mask of \(3,\), expected"),
        (lambda keys: Discovery(keys[..., 0] > 0, (0, 0)), 2, "new returned a Discovery, expected a list of"),
        (lambda keys: [keys[..., 0] > 0], 2, "new returned a ndarray, expected a list of Discovery"),
        (lambda keys: [Discovery(keys[..., 0] > 0, (2, 0))], 2, "the seed 2, 0, outside of its mask"),
        (lambda keys, count: [Discovery(keys[..., 0] > 0, (0, 0))] * 3, 2, "3 objects, expected at most 2"),
    ],
)
def test_discovery_method_gets_what_its_arguments_name_and_must_return_masks_of_the_grid(
    monkeypatch, find, count, error
):
    monkeypatch.setitem(DISCOVERY_METHODS, "new", DiscoveryMethod(find, "New", "New."))
    inputs = {"keys": np.ones((2, 3, 4)), "mass": 0.6, "count": count}
    with pytest.raises(ValueError, match=error) if error else nullcontext():
        assert len(discovery.find_objects("new", inputs)) == count
