"""`python -m segmentation attention`: what it writes, and what it says when it cannot."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO
from skimage import data

from dino_model.predictor import AttentionPredictor
from segmentation.__main__ import main
from segmentation.commands.attention import Attention
from segmentation.masks import enlarge, keep_mass_of_maps

MODEL = "random:vit_tiny/16"


@pytest.fixture
def photo(tmp_path) -> Path:
    path = tmp_path / "cat.png"
    Image.fromarray(data.cat()[:200, :260]).save(path)
    return path


def run(photo: Path, output: Path, **options) -> Path:
    Attention(photos=(photo,), output=output, model=MODEL, size=64, precision="fp32", **options).run()
    return output / photo.stem


def test_maps_and_masks_are_those_of_the_predictor(photo, tmp_path):
    folder = run(photo, tmp_path / "out", point="50,120", mass=0.7)
    predictor = AttentionPredictor(MODEL, size=64, precision="fp32")
    predictor.set_image(data.cat()[:200, :260])
    with np.load(folder / "attention.npz", allow_pickle=False) as arrays:
        attention, mask = arrays["attention"], arrays["mask"]
        assert attention.dtype == np.float32
        assert mask.dtype == bool
        assert attention.shape == (3, *arrays["grid"]) == mask.shape
        assert str(arrays["model"]) == MODEL
        np.testing.assert_allclose(attention, predictor.cls_attention(), atol=1e-6)
        np.testing.assert_allclose(arrays["point_attention"], predictor.point_attention(50, 120), atol=1e-6)
    np.testing.assert_array_equal(mask, keep_mass_of_maps(attention, 0.7))


def test_every_picture_has_the_size_of_the_photograph(photo, tmp_path):
    folder = run(photo, tmp_path / "out", point="0,0")
    for head in range(3):
        for kind in ("attention", "mask", "overlay", "point"):
            with Image.open(folder / f"{kind}_head_{head}.png") as picture:
                assert picture.size == (260, 200)
    assert {"overview.png", "heads.png", "point_heads.png"} <= {path.name for path in folder.iterdir()}


def test_mask_files_agree_with_each_other(photo, tmp_path):
    folder = run(photo, tmp_path / "out")
    with np.load(folder / "attention.npz") as arrays:
        masks = enlarge(arrays["mask"], (200, 260))
    loaded = COCO(str(folder / "masks_images.json")).loadRes(str(folder / "masks.json"))
    for head, annotation in enumerate(loaded.loadAnns(loaded.getAnnIds())):
        assert loaded.loadCats(annotation["category_id"])[0]["name"] == f"head {head}"
        np.testing.assert_array_equal(loaded.annToMask(annotation).astype(bool), masks[head])
        with Image.open(folder / f"mask_head_{head}.png") as picture:
            np.testing.assert_array_equal(np.array(picture), masks[head])


def test_a_second_run_leaves_nothing_of_the_first(photo, tmp_path):
    folder = run(photo, tmp_path / "out", point="3,3")
    (folder / "notes.txt").write_text("mine")
    run(photo, tmp_path / "out")
    names = {path.name for path in folder.iterdir()}
    assert not any(name.startswith("point") for name in names)
    assert "notes.txt" in names


def test_photographs_of_one_name_get_folders_of_their_own(photo, tmp_path):
    other = photo.with_suffix(".bmp")
    Image.open(photo).save(other)
    Attention(photos=(photo, other), output=tmp_path / "out", model=MODEL, size=32).run()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"cat_png", "cat_bmp"}
    with pytest.raises(ValueError, match="several photographs would write"):
        Attention(photos=(photo, photo), output=tmp_path / "out", model=MODEL).run()


@pytest.mark.parametrize("point", ["5", "a,b", "1,2,3", "1.5,2"])
def test_a_point_that_is_none_is_quoted(photo, tmp_path, point):
    with pytest.raises(ValueError, match="expected two whole numbers Y,X"):
        run(photo, tmp_path / "out", point=point)


def test_wrong_input_at_the_command_line_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    arguments = ["attention", str(tmp_path / "broken.jpg"), "--output", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", ["segmentation", *arguments])
    with pytest.raises(
        SystemExit, match=r"^error: left out 1 of 1 photographs: [^\n]*broken\.jpg is not a picture[^\n]*$"
    ):
        main()
    assert not (tmp_path / "out").exists()


def test_photographs_are_written_one_by_one_and_a_broken_one_is_named(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a", "c"):
        Image.fromarray(rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(tmp_path / f"{name}.png")
    (tmp_path / "b.png").write_bytes(b"no picture")
    photos = tuple(tmp_path / f"{name}.png" for name in "abc")
    with pytest.raises(ValueError, match=r"left out 1 of 3 photographs: .*b\.png is not a picture"):
        Attention(photos=photos, output=tmp_path / "out", model=MODEL, size=32).run()
    assert {folder.name for folder in (tmp_path / "out").iterdir()} == {"a", "c"}


def test_maps_are_thresholded_once(tmp_path, monkeypatch):
    Image.fromarray(np.zeros((40, 50, 3), np.uint8)).save(tmp_path / "a.png")
    seen = []
    for module in ("segmentation.commands.attention", "segmentation.render"):
        monkeypatch.setattr(
            f"{module}.keep_mass_of_maps",
            lambda maps, mass: seen.append(maps) or keep_mass_of_maps(maps, mass),
        )
    photo = (tmp_path / "a.png",)
    Attention(photos=photo, output=tmp_path / "out", model=MODEL, size=32, point="3,4").run()
    assert len(seen) == 2  # of [CLS], and of the point
