"""Fine-tuning: its rates, one folder learnt, what is written, and going on after an interruption."""

import json
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from dino_model.errors import SettingError
from dino_model.weights import load_model
from tests.training.evaluation.pictures import evaluate, write_pictures
from training.evaluation import finetune as protocol
from training.evaluation.datasets import Cifar, LabeledImages, open_dataset
from training.evaluation.finetune import RECIPES, FinetuneRecipe, learning_rate, output_file
from training.evaluation.options import Finetune


def test_learning_rate_warms_up_and_falls_to_zero():
    recipe = FinetuneRecipe(epochs=100, rate=1.0, warmup=5)
    assert [learning_rate(recipe, epoch) for epoch in (0, 2.5, 5, 100)] == [0, 0.5, 1, 0]
    assert learning_rate(recipe, 52.5) == pytest.approx(0.5)
    assert RECIPES["cifar10"].rate == 7.5e-6


def run(*words: object) -> None:
    evaluate("finetune", *words)


def test_finetune_after_interruption_gives_same_weights(tmp_path: Path, monkeypatch, capsys):
    shapes = write_pictures(tmp_path / "shapes", {"a": 10, "b": 10})
    words = ("--data", shapes, "--model", "random:embedded", "--size", "32", "--epochs", "3", "--batch", "8")
    figures = tmp_path / "out.json"
    run(*words, "--output", tmp_path / "one", "--rate", "0.001", "--json", figures)
    written = tmp_path / "one" / "random_embedded-on-shapes.safetensors"
    assert [file.name for file in written.parent.iterdir()] == [written.name]
    changed = load_model(str(written)).backbone.state_dict()
    before = load_model("random:embedded").backbone.state_dict()
    assert not torch.equal(changed["blocks.0.attn.qkv.weight"], before["blocks.0.attn.qkv.weight"])
    assert json.loads(figures.read_text())["results"][0]["network"] == str(written)

    epochs, train = [], protocol.train_epoch

    def interrupted(*given):
        epochs.append(given[5])
        if len(epochs) == 2:
            raise KeyboardInterrupt
        return train(*given)

    monkeypatch.setattr(protocol, "train_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(*words, "--output", tmp_path / "two", "--rate", "0.001")
    run(*words, "--output", tmp_path / "two", "--rate", "0.002")  # another recipe begins anew
    run(*words, "--output", tmp_path / "two", "--rate", "0.001")
    assert epochs == [0, 1, *(0, 1, 2), *(1, 2)]
    again = load_model(str(tmp_path / "two" / written.name)).backbone.state_dict()
    for name, tensor in changed.items():
        torch.testing.assert_close(again[name], tensor, rtol=0, atol=1e-4)


def test_finetune_in_bf16_changes_weights_as_in_fp32(tmp_path: Path):
    """One epoch of twelve steps: with casts kept from the first step, later steps train on stale weights."""
    shapes = write_pictures(tmp_path / "shapes", {"a": 30, "b": 30})
    words = ("--data", shapes, "--model", "random:embedded", "--size", "32", "--device", "cpu")
    words += ("--epochs", "1", "--batch", "4", "--rate", "0.001")
    before = load_model("random:embedded").backbone.state_dict()
    steps = {}
    for precision in ("fp32", "bf16"):
        run(*words, "--precision", precision, "--output", tmp_path / precision)
        (written,) = (tmp_path / precision).iterdir()
        after = load_model(str(written)).backbone.state_dict()
        steps[precision] = torch.cat([(after[name] - tensor).flatten() for name, tensor in before.items()])
    assert torch.cosine_similarity(steps["fp32"], steps["bf16"], dim=0) > 0.9


def test_open_dataset_reads_cifar_and_names_missing_files(tmp_path: Path, monkeypatch):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    random = np.random.default_rng(0)
    for name in (
        "data_batch_1",
        "data_batch_2",
        "data_batch_3",
        "data_batch_4",
        "data_batch_5",
        "test_batch",
    ):
        batch = {"data": random.integers(0, 256, (4, 3072), np.uint8), "labels": [0, 1, 2, 3]}
        (folder / name).write_bytes(pickle.dumps(batch))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    with pytest.raises(ValueError, match=r"cifar10 is not complete in .*: expected there cifar-10-batches"):
        open_dataset("cifar10", tmp_path)  # of other bytes than the published
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    train, test = open_dataset("cifar10", tmp_path)
    assert isinstance(train, Cifar)
    assert (len(train), len(test), train.read(0).shape) == (20, 4, (32, 32, 3))
    assert test.labels == [0, 1, 2, 3]


def write_picture(file: Path, shade: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((20, 26, 3), shade, np.uint8)).save(file, quality=95)


def flowers(root: Path) -> Path:
    """Six flowers of three species; the first two train, the third and fourth validate, the others test."""
    folder = root / "flowers-102"
    for number in range(1, 7):
        write_picture(folder / f"jpg/image_{number:05d}.jpg", 40 * number)
    savemat(folder / "setid.mat", {"trnid": [[1, 2]], "valid": [[3, 4]], "tstid": [[5, 6]]})
    savemat(folder / "imagelabels.mat", {"labels": [[1, 2, 3, 1, 2, 3]]})
    return folder


def cars(root: Path) -> Path:
    folder = root / "stanford_cars"
    (folder / "devkit").mkdir(parents=True)
    tables = {"cars_train": "devkit/cars_train_annos.mat", "cars_test": "cars_test_annos_withlabels.mat"}
    for part, table in tables.items():
        kinds = [("fname", "O"), ("class", "O")]
        rows = np.array([[("00001.jpg", 2), ("00002.jpg", 1)]], dtype=kinds)
        savemat(folder / table, {"annotations": rows})
        for number in (1, 2):
            write_picture(folder / part / f"{number:05d}.jpg", 60 * number)
    return folder


def inaturalist(root: Path, folder: str = "2018") -> Path:
    """Four pictures as the publisher's tables name them, in the folder that torchvision gives them."""
    for part, numbers in {"train": (1, 2, 3), "val": (4,)}.items():
        files = [f"Plantae/{number % 2}/{number}.jpg" for number in numbers]
        for number, name in zip(numbers, files, strict=True):
            write_picture(root / folder / name, 50 * number)
        pictures = [
            {"id": number, "file_name": f"train_val2018/{name}"}
            for number, name in zip(numbers, files, strict=True)
        ]
        named = [{"id": 9 - n, "image_id": n, "category_id": n % 2} for n in reversed(numbers)]
        told = {"images": pictures, "annotations": named}
        (root / f"{part}2018.json").write_text(json.dumps(told))
    return root / folder


def shades(pictures: LabeledImages) -> list[int]:
    return [int(pictures.read(index).mean().round()) for index in range(len(pictures))]


@pytest.mark.parametrize(
    ("name", "write", "learnt", "tested"),
    [
        ("flowers", flowers, [(40, 0), (80, 1), (120, 2), (160, 0)], [(200, 1), (240, 2)]),
        ("cars", cars, [(60, 1), (120, 0)], [(60, 1), (120, 0)]),
        ("inat18", inaturalist, [(50, 1), (100, 0), (150, 1)], [(200, 0)]),
        ("inat18", partial(inaturalist, folder="train_val2018"), [(50, 1), (100, 0), (150, 1)], [(200, 0)]),
    ],
)
def test_open_dataset_reads_published_layouts(tmp_path: Path, name, write, learnt, tested):
    folder = write(tmp_path)
    train, test = open_dataset(name, tmp_path)
    assert list(zip(shades(train), train.labels or (), strict=True)) == learnt
    assert list(zip(shades(test), test.labels or (), strict=True)) == tested
    next(folder.rglob("*.jpg")).unlink()
    with pytest.raises(ValueError, match=rf"{name} is not complete in .*\.jpg.*: expected there"):
        open_dataset(name, tmp_path)


def test_finetune_of_collection_uses_its_recipe(tmp_path: Path, capsys):
    inaturalist(tmp_path)
    words = ("--data", tmp_path, "--collection", "inat18", "--model", "random:embedded", "--size", "32")
    run(*words, "--epochs", "1", "--batch", "2", "--output", tmp_path / "out")
    shown = capsys.readouterr().out
    assert "rate 0.0001" in shown
    assert "inat18: 1 test images, 3 training images" in shown
    assert (tmp_path / "out" / "random_embedded-on-inat18.safetensors").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--batch", "1"), "--batch is 1, expected at least 2"),
        (("--epochs", "0"), "--epochs is 0"),
        (("--rate", "0"), "--rate is 0"),
        (("--precision", "fp16"), "no loss scaling for fp16"),
    ],
)
def test_finetune_with_invalid_option_is_refused_before_data_is_read(words, message: str, tmp_path: Path):
    with pytest.raises(SettingError, match=message):
        run("--data", tmp_path / "nothing", "--output", tmp_path / "out", *words)


def test_output_file_keeps_dots_of_names(tmp_path: Path):
    tuning = Finetune(data=tmp_path / "shapes", output=tmp_path)
    names = [output_file(tuning, name).name for name in ("runs/a.lr1", "runs/a.lr2", "b.pth")]
    assert names == [f"{stem}-on-shapes.safetensors" for stem in ("runs_a.lr1", "runs_a.lr2", "b")]
