"""Class maps: layout, files and command."""

import csv
import io
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from dino_model.data.collection import open_images
from dino_model.data.framing import Framing
from dino_model.inference.class_map import files, layout
from dino_model.inference.class_map.layout import (
    ClassMap,
    Origin,
    Protocol,
    draw,
    nearest_classes,
    neighbor_overlap,
    place,
    plane,
)
from dino_model.inference.class_map.names import TABLES, describe
from dino_model.inference.features import FeatureExtractor
from dino_model.models.load import load_model
from tests.commands import dino
from tests.training.ranks import Group
from tests.training.runs import write_rectangles


def some_map(classes: int = 12) -> ClassMap:
    """Three images of each class, drawn at random around its own point."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), 3)
    features = 5 * rng.normal(size=(classes, 6))[labels] + rng.normal(size=(3 * classes, 6))
    origin = Origin("a model", "its weights", "its output", "images", Framing(32, (0.5,) * 3, (0.2,) * 3))
    return draw(torch.tensor(features), [f"class {i:02}" for i in labels], Protocol(iterations=250), origin)


def test_nearest_classes_equal_the_formula():
    vectors = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    vectors[4] = 0  # at distance 1 from all
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    far = 1 - units @ units.T
    np.fill_diagonal(far, np.inf)
    for row, found in enumerate(nearest_classes(torch.from_numpy(vectors), 5)):
        np.testing.assert_allclose([each for _, each in found], np.sort(far[row])[:5], atol=1e-5)
        if row != 4:
            assert [index for index, _ in found] == np.argsort(far[row])[:5].tolist()
            assert all(each == round(each, 5) for _, each in found)
    assert all(len(found) == 8 for found in nearest_classes(torch.from_numpy(vectors), 10))


def test_plane_with_equal_seed_is_equal_and_keeps_clusters():
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(3), 10)
    vectors = torch.from_numpy(20 * rng.normal(size=(3, 40))[cluster] + rng.normal(size=(30, 40))).float()
    protocol = Protocol(iterations=500).fit_to(*vectors.shape)
    points = plane(vectors, protocol)
    gaps = torch.cdist(points, points).fill_diagonal_(torch.inf)
    assert (cluster[gaps.argmin(dim=1)] == cluster).all()
    assert torch.equal(points, plane(vectors, protocol))


def test_protocol_has_the_values_of_the_documents_and_is_limited_by_few_classes():
    assert Protocol().fit_to(1000, 384) == Protocol(30, 20.0, 200.0, 5000, 0)
    assert Protocol().fit_to(7, 4) == Protocol(4, 2.0, 200.0, 5000, 0)
    assert Protocol().fit_to(3, 384) == Protocol(3, 1.0, 200.0, 5000, 0)


def test_overlap_is_the_share_of_common_neighbors_among_half_of_the_others_or_ten():
    rng = np.random.default_rng(0)
    for classes, count in ((9, 4), (30, 10)):
        vectors, points = (torch.from_numpy(rng.normal(size=(classes, width))) for width in (5, 2))
        units = vectors / vectors.norm(dim=1, keepdim=True)
        near, on_map = (
            far.fill_diagonal_(torch.inf).topk(count, largest=False).indices.tolist()
            for far in (1 - units @ units.T, torch.cdist(points, points))
        )
        shares = [len({*a} & {*b}) / count for a, b in zip(near, on_map, strict=True)]
        found = neighbor_overlap(vectors, points)
        assert (found.num_neighbors, found.chance) == (count, count / (classes - 1))
        assert found.share == pytest.approx(np.mean(shares))


def test_map_needs_three_classes_with_means_that_float16_holds():
    layout.check_classes("abc")
    with pytest.raises(ValueError, match="found 2 classes, expected at least 3"):
        layout.check_classes("aba")
    means = np.repeat([1.0, 2, 70_000], 2)[:, None] + np.zeros((6, 4))
    with pytest.raises(ValueError, match="features are not finite in float16"):
        draw(torch.tensor(means), list("aabbcc"), Protocol(), some_map(3).origin)


def test_place_gives_weighted_mean_of_nearest_classes():
    drawn = some_map()
    found = place(torch.from_numpy(drawn.features[4]), drawn)
    assert found.neighbors[0] == (4, pytest.approx(0, abs=1e-6))
    near = [drawn.classes[index] for index, _ in found.neighbors]
    assert len({point.key for point in near}) == 10
    between = torch.from_numpy(drawn.features[4].astype(np.float32) + drawn.features[7].astype(np.float32))
    for found in (place(torch.from_numpy(drawn.features[4]), drawn), place(between, drawn)):
        weights = np.array([max(distance, 0.001) ** -2 for _, distance in found.neighbors])
        places = np.array([(drawn.classes[index].x, drawn.classes[index].y) for index, _ in found.neighbors])
        assert (found.x, found.y) == pytest.approx(tuple(weights @ places / weights.sum()), rel=1e-6)
        assert all(distance == round(distance, 5) for _, distance in found.neighbors)


def test_figure_has_each_class_in_the_color_of_its_group_and_is_larger_for_many(monkeypatch):
    figures: list[Figure] = []
    monkeypatch.setattr(FigureCanvasAgg, "print_png", lambda self, stream: figures.append(self.figure))
    drawn = some_map(4)
    for count, size in ((300, [13, 12]), (301, [24, 22])):
        group, color = files.GROUPS[count - 299], files.COLORS[count - 299]
        points = [replace(drawn.classes[0], group=group, x=float(i), y=i / 2) for i in range(count)]
        files.draw_figure(replace(drawn, classes=tuple(points)))
        (axes,) = figures[-1].axes
        (dots,) = axes.collections
        assert figures[-1].get_size_inches().tolist() == size
        np.testing.assert_allclose(dots.get_offsets(), [(point.x, point.y) for point in points])
        assert to_hex(dots.get_facecolors()[0]) == color
        texts = {(text.get_text(), text.get_color(), text.get_position(), text.xy) for text in axes.texts}
        assert texts == {("class 00", color, (4, 3), (point.x, point.y)) for point in points}


def test_map_written_reads_back_equal(tmp_path: Path):
    written = some_map()
    files.write(tmp_path, files.render(written))
    read = files.read(tmp_path)
    np.testing.assert_array_equal(read.features, written.features)
    assert {**vars(read), "features": None} == {**vars(written), "features": None}


def test_thumbnails_are_centers_of_images_in_rows_of_sixteen():
    images = [np.full((40, 90, 3), 10 * number, np.uint8) for number in range(20)]
    images[17][:, :25] = images[17][:, 65:] = 255  # the sides that are cut off
    sheet = np.asarray(Image.open(io.BytesIO(files.thumbnails(images))))
    assert sheet.shape == (2 * 64, 16 * 64, 3)
    for number in range(20):
        tile = sheet[64 * (number // 16) :, 64 * (number % 16) :][:64, :64]
        assert np.abs(tile[8:-8, 8:-8].astype(int) - 10 * number).max() <= 2


@pytest.mark.parametrize(
    "change",
    [
        lambda content: "{",
        lambda content: json.dumps(content | {"format": "another"}),
        lambda content: json.dumps(content | {"classes": content["classes"][1:]}),
        lambda content: json.dumps(content | {"features": "not base64 !"}),
        lambda content: json.dumps({key: value for key, value in content.items() if key != "origin"}),
        lambda content: json.dumps(content).replace('"neighbors": [[', '"neighbors": [[4, 0], ['),
        lambda content: json.dumps(content).replace('"neighbors": [[', '"neighbors": [[-1, 0], ['),
        lambda content: json.dumps(
            content | {"classes": [one | {"y": np.nan} for one in content["classes"]]}
        ),
    ],
)
def test_read_damaged_map_is_refused(tmp_path: Path, change):
    files.write(tmp_path, files.render(some_map(4)))
    file = tmp_path / "map.json"
    file.write_text(change(json.loads(file.read_text())))
    with pytest.raises(ValueError, match=r"map\.json is no class map of this program"):
        files.read(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five classes of four images, but one of one; a broken image; a folder that is no class."""
    classes = {"a": 4, "b": 4, "c": 4, "d": 4, "alone": 1, "BACKGROUND_Google": 2}
    folder = write_rectangles(tmp_path / "data", classes)
    (folder / "a" / "broken.png").write_bytes(b"no image")
    return folder


def run(data: Path, output: Path, *further: str) -> None:
    model = ["--model", "random:vit_tiny/16", "--precision", "fp32", "--device", "cpu"]
    places = ["--data", str(data), "--output", str(output)]
    dino(["class-map", *places, *model, "--size", "32", "--iterations", "250", *further])


def test_class_map_command_draws_a_folder(folder: Path, tmp_path: Path, capsys):
    folder = folder.rename(folder.with_name(os.fsdecode(b"imag\xe9s")))
    run(folder, tmp_path / "map")
    printed = capsys.readouterr()
    assert "5 classes, 17 images" in printed.out
    assert "in 5 classes (a, alone, b, c, d)" in printed.out
    assert "2 images without a class left out: BACKGROUND_Google/000.png" in printed.out
    assert "t-SNE of 5 classes: about 0 s on one core" in printed.out
    assert layout.tsne_seconds(1024, 5000) == pytest.approx(25.6)
    assert "perplexity 1.33333" in printed.out
    assert "(chance 50.0 %)" in printed.out
    assert "left out (1): a/broken.png is not an image" in printed.err
    drawn = files.read(tmp_path / "map")
    found = {point.key: point.num_images for point in drawn.classes}
    assert found == {"a": 4, "alone": 1, "b": 4, "c": 4, "d": 4}
    assert all(len(point.neighbors) == 4 for point in drawn.classes)
    model = load_model("random:vit_tiny/16")
    extractor = FeatureExtractor(model, Framing(32, model.mean, model.std), precision="fp32", device="cpu")
    mean = extractor.extract(open_images(folder / "a")).features.mean(dim=0)
    np.testing.assert_allclose(drawn.features[0], mean, atol=2e-3)
    assert Image.open(tmp_path / "map" / "map.png").width > 1000


@pytest.mark.slow
def test_class_map_by_two_processes_is_that_of_one(folder: Path, tmp_path: Path):
    words = ["class-map", "--data", str(folder), "--batch-size", "1", "--size", "32", "--iterations", "250"]
    words += ["--precision", "fp32", "--device", "cpu", "--output"]
    one, two = tmp_path / "one", tmp_path / "two"
    assert dino([*words, str(one)]) == 0
    group = Group(tmp_path / "group", *[(dino, [*words, str(two)])] * 2)
    assert group.codes() == [0, 0], group.printed(0)
    assert (two / files.JSON).read_bytes() == (one / files.JSON).read_bytes()


def test_write_interrupted_keeps_the_former_map(folder: Path, tmp_path: Path, monkeypatch):
    run(folder, tmp_path / "map")
    before = (tmp_path / "map" / "map.json").read_bytes()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "draw_figure", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(folder, tmp_path / "map", "--seed", "1", "--overwrite")
    assert (tmp_path / "map" / "map.json").read_bytes() == before
    found = sorted(file.name for file in (tmp_path / "map").iterdir())
    assert found == ["map.json", "map.png", "provenance.json", "thumbnails.jpg"]


def test_known_classes_have_names_and_groups():
    expected = {
        "n01440764": ("tench", "fish, reptile, amphibian"),
        "n02099601": ("golden retriever", "dog"),
        "n07753592": ("banana", "food"),
        "n00000001": ("n00000001", "other"),
    }
    assert dict(zip(expected, describe(list(expected)), strict=True)) == expected
    assert describe(["anchor", "ant"]) == (("anchor", "tool, device"), ("ant", "invertebrate"))
    with (TABLES / "caltech101.csv").open(encoding="utf-8") as file:
        rows = [tuple(row.values()) for row in csv.DictReader(file)]
    assert describe([key for key, *_ in rows]) == tuple((name, group) for _, name, group in rows)
    assert describe(["n01440764", "mine"]) == (("n01440764", "other"), ("mine", "other"))
    assert describe(["ant", "mine"]) == (("ant", "other"), ("mine", "other"))
