"""Features of a collection in one file."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dino_model.data.collection import open_images
from dino_model.inference import features
from dino_model.inference.embedding import FeatureTable, read_features, write_features
from dino_model.models.attention import readable
from dino_model.models.load import load_model
from tests.commands import dino as main
from tests.dino_model.inference.test_features import official_view
from tests.training.ranks import Group

CPU = ("--device", "cpu", "--precision", "fp32", "--size", "32")


@pytest.fixture
def folder(tmp_path: Path, data_root: Path) -> Path:
    """Six real images of two classes, and a broken one."""
    tar = open_images(data_root / "caltech101_112px.tar")
    for index in (600, 601, 602, 5000, 5001, 5002):
        file = tmp_path / "data" / tar.names[index]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(tar.read_bytes(index))
    (file.parent / "zz.png").write_bytes(b"no image")
    return tmp_path / "data"


@torch.no_grad()
def expected_tokens(folder: Path) -> np.ndarray:
    """All tokens of the last two layers, computed image by image: [images, layers, tokens, width]."""
    model, rows = load_model("embedded"), []
    vit, view = readable(model.backbone), official_view(32, 32, (model.mean, model.std))
    for file in sorted(folder.rglob("*.jpg")):
        pixels = view(Image.open(file).convert("RGB"))[None]
        last = vit.calls(pixels)[-1]
        rows.append(torch.cat([vit.norm(tokens) for tokens in (last.args[0], last())]))
    return torch.stack(rows).numpy()


@pytest.mark.parametrize(
    ("tokens", "layers"), [("output", 1), ("cls", 2), ("mean", 1), ("patches", 1), ("all", 2)]
)
def test_embed_command_writes_the_tokens_of_real_images(folder: Path, tmp_path: Path, tokens, layers, capsys):
    output = tmp_path / "features.npz"
    options = ["--tokens", tokens, "--layers", str(layers), "--batch-size", "4"]
    main(["embed", "--data", str(folder), "--output", str(output), *options, *CPU])
    table, expected = read_features(output), expected_tokens(folder)[:, -layers:]
    chosen = {"mean": expected[:, :, 1:].mean(2), "patches": expected[:, :, 1:]}
    chosen |= dict.fromkeys(("output", "cls"), expected[:, :, 0])
    joined = np.concatenate(list(np.moveaxis(chosen.get(tokens, expected), 1, 0)), axis=-1)
    np.testing.assert_allclose(table.features, joined, atol=2e-4)
    assert table.names == [file.relative_to(folder).as_posix() for file in sorted(folder.rglob("*.jpg"))]
    assert table.labels == [name.split("/")[0] for name in table.names]
    assert (table.metadata["model"], table.metadata["tokens"]) == ("embedded", tokens)
    assert "left out (1)" in capsys.readouterr().out
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["data", "features.npz", "features.provenance.json"]
    assert "class: path of the folders" in json.loads(files[-1].read_text())["reading"]


@pytest.mark.slow
def test_embed_by_two_processes_writes_same_features(folder: Path, tmp_path: Path):
    words = ["embed", "--data", str(folder), *CPU, "--batch-size", "1", "--output"]
    main([*words, str(tmp_path / "one.npz")])
    group = Group(tmp_path / "group", *[(main, [*words, str(tmp_path / "two.npz")])] * 2)
    assert group.codes() == [0, 0], group.printed(0)
    one, two = (read_features(tmp_path / f"{name}.npz") for name in ("one", "two"))
    np.testing.assert_array_equal(two.features, one.features)
    assert (two.names, two.labels) == (one.names, one.labels)
    assert [group.printed(rank).count("6 images, [CLS]") for rank in (0, 1)] == [1, 0]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".csv"])
@pytest.mark.parametrize("labels", [None, ["a", "", "é"]])
def test_features_written_read_back_equal(tmp_path: Path, suffix: str, labels: list[str] | None):
    shape = (3, 4) if suffix == ".csv" else (3, 2, 4)
    values = np.random.default_rng(0).normal(size=(5, *shape[1:])).astype(np.float32)
    written = FeatureTable(values, ["x/1.png", "NA", "a,b.png"], labels, {"model": "m"})
    write_features(tmp_path / f"file{suffix}", written, np.array([4, 0, 2]))
    file, expected = tmp_path / f"file{suffix}", values[[4, 0, 2]]
    if suffix == ".csv":
        _, *rows = csv.reader(file.read_text(encoding="utf-8").splitlines())
        assert [row[:2] for row in rows] == [
            list(pair) for pair in zip(written.names, labels or [""] * 3, strict=True)
        ]
        np.testing.assert_array_equal(np.array([row[2:] for row in rows], np.float32), expected)
        return
    found = read_features(file)
    np.testing.assert_array_equal(found.features, expected)
    assert (found.names, found.labels, found.metadata) == (written.names, labels, {"model": "m"})


def test_embed_interrupted_continues_when_repeated(folder: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(features, "IMAGES_AT_ONCE", 2)
    computed: list[int] = []
    plain = features.FeatureType.compute

    def compute(self, backbone, images):
        if len(computed) == 4:
            raise KeyboardInterrupt
        computed.extend([1] * len(images))
        return plain(self, backbone, images)

    command = ["embed", "--data", str(folder), "--output", str(tmp_path / "f.safetensors"), *CPU]
    monkeypatch.setattr(features.FeatureType, "compute", compute)
    with pytest.raises(KeyboardInterrupt):
        main(command)
    assert not (tmp_path / "f.safetensors").exists()
    computed.clear()
    main(command)
    assert len(computed) == 2
    assert len(read_features(tmp_path / "f.safetensors").names) == 6


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ("f.txt", "", r"suffix '\.txt', expected one of \.npz"),
        ("f.csv", "--tokens all", r"one vector per image, no all: choose \.npz"),
        ("f.npz", "--layers 2", "one vector of its last layer: choose the tokens cls or mean"),
        ("f.npz", "--model random:resnet50 --tokens mean", r"blocks of a ResNet have no \[CLS\]"),
    ],
)
def test_embed_of_what_cannot_be_written_names_the_reason(folder, tmp_path, file, options, message):
    words = ["--data", str(folder), "--output", str(tmp_path / file), *options.split()]
    with pytest.raises(ValueError, match=message):
        main(["embed", *words, *CPU])


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_read_features_of_another_file_is_refused(tmp_path: Path, suffix: str):
    (tmp_path / f"other{suffix}").write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"is no \.npz or \.safetensors file"):
        read_features(tmp_path / f"other{suffix}")
