"""The command `attention`: results, and unusable images."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from skimage import data

from dino_model.inference.predictor import AttentionPredictor
from dino_model.inference.tiles import TiledPredictor
from dino_model.runtime.errors import SettingError
from segmentation import drawing
from segmentation.commands import common
from segmentation.commands.attention import Attention
from segmentation.masks import enlarge, keep_mass_of_maps
from tests.segmentation.coco import load_results

MODEL = "random:vit_tiny/16"


@pytest.fixture
def photo(tmp_path) -> Path:
    path = tmp_path / "cat.png"
    Image.fromarray(data.cat()[:200, :260]).save(path)
    return path


def read(path: Path) -> np.ndarray:
    return np.array(Image.open(path))


def test_attention_writes_maps_of_predictor_and_masks_that_agree(photo, tmp_path):
    folder, options = tmp_path / "out" / "cat", {"size": 64, "precision": "fp32", "mass": 0.7}
    Attention(inputs=(photo,), output=folder.parent, model=MODEL, point="50,120", **options).run()
    predictor = AttentionPredictor(MODEL, size=64, precision="fp32")
    predictor.set_image(data.cat()[:200, :260])
    with np.load(folder / "attention.npz", allow_pickle=False) as arrays:
        attention, mask = arrays["attention"], arrays["mask"]
        assert attention.shape == (3, *arrays["grid"])
        assert str(arrays["model"]) == MODEL
        np.testing.assert_allclose(attention, predictor.cls_attention(), atol=1e-6)
        np.testing.assert_allclose(arrays["point_attention"], predictor.point_attention(50, 120), atol=1e-6)
    np.testing.assert_array_equal(mask, keep_mass_of_maps(attention, 0.7))
    loaded = load_results(folder)
    for head, annotation in enumerate(loaded.loadAnns(loaded.getAnnIds())):
        assert loaded.loadCats(annotation["category_id"])[0]["name"] == f"head {head}"
        assert annotation["score"] == 1
        on_image = enlarge(mask[head], (200, 260))
        np.testing.assert_array_equal(loaded.annToMask(annotation).astype(bool), on_image)
        np.testing.assert_array_equal(np.array(Image.open(folder / f"mask_head_{head}.png")), on_image)
    at_point, image = predictor.point_attention(50, 120), data.cat()[:200, :260]
    names = [f"head {head}" for head in range(3)]
    drawn = {
        "heads": drawing.with_names(drawing.overlay_heads(image, attention, mask), names),
        "point_heads": drawing.draw_point(
            drawing.overlay_heads(image, at_point, keep_mass_of_maps(at_point, 0.7)), 50, 120
        ),
    }
    for head, color in enumerate(drawing.head_colors(3)):
        on_image = enlarge(mask[head], (200, 260))
        drawn[f"attention_head_{head}"] = drawing.heat_map(attention[head], (200, 260))
        drawn[f"overlay_head_{head}"] = drawing.overlay_masks(image, on_image, colors=color[None])
        drawn[f"point_head_{head}"] = drawing.draw_point(drawing.overlay_heat(image, at_point[head]), 50, 120)
    for name, expected in drawn.items():
        np.testing.assert_array_equal(read(folder / f"{name}.png"), expected)


def test_contact_sheet_has_three_images_a_row_with_their_most_central_heads(tmp_path):
    images, rows = np.random.default_rng(0).integers(0, 256, (4, 40, 56, 3), dtype=np.uint8), [[], []]
    for number, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
    options = {"model": MODEL, "size": 32, "json": tmp_path / "facts.json"}
    Attention(inputs=tuple(tmp_path.glob("*.png")), output=tmp_path / "out", **options).run()
    records = json.loads((tmp_path / "facts.json").read_text())["records"]
    for number, image in enumerate(images):
        head, folder = records[str(number)]["head"], tmp_path / "out" / str(number)
        files = {
            "all heads": "heads",
            f"head {head}": f"attention_head_{head}",
            "mask": f"overlay_head_{head}",
        }
        cells = ((title, read(folder / f"{name}.png")) for title, name in files.items())
        rows[number // 3] += [(str(number), image), *cells]
    sheet = read(tmp_path / "out" / "contact_sheet.png")
    np.testing.assert_array_equal(sheet, drawing.contact_sheet(rows))


def test_report_is_one_page_with_the_jaccard_of_every_head(tmp_path, capsys):
    (tmp_path / "images").mkdir()
    (tmp_path / "masks").mkdir()
    truth = np.zeros((96, 128), np.uint8)
    truth[20:80, 30:90] = 255
    for name, image in (("cat <1>", data.cat()), ("cup", data.coffee())):
        Image.fromarray(image[:96, :128]).save(tmp_path / "images" / f"{name}.png")
        Image.fromarray(truth).save(tmp_path / "masks" / f"{name}.png")
    options = {"inputs": (tmp_path / "images",), "model": MODEL, "size": 64, "masks": tmp_path / "masks"}
    with pytest.raises(ValueError, match="--binary"):
        Attention(**options, output=tmp_path / "void", report=tmp_path / "new" / "report.html").run()
    options["binary"] = True
    page = tmp_path / "new" / "report.html"
    Attention(**options, output=tmp_path / "out", report=page).run()
    text = page.read_text()
    with np.load(tmp_path / "out" / "cup" / "attention.npz") as arrays:
        kept = enlarge(arrays["mask"], (96, 128))
    scores = [100 * (mask & (truth > 0)).sum() / (mask | (truth > 0)).sum() for mask in kept]
    cup = text.partition("<h2>images/cup</h2>")[2] or text.partition("<h2>cup</h2>")[2]
    for head, score in enumerate(scores):
        assert f"head {head}, {score:.1f} %</figcaption>" in cup
    assert f"<p>Bold: head {int(np.argmax(scores))}, highest Jaccard similarity.</p>" in cup
    assert "cat &lt;1&gt;</h2>" in text
    assert "report of 2 images" in capsys.readouterr().out
    sources = re.findall(r'src="([^"]*)"', text)
    assert len(sources) == 1 + 2 * (2 + len(scores))
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)  # no other file
    with pytest.raises(SettingError, match="pass --report, too"):
        Attention(**options, output=tmp_path / "no").run()


def test_attention_of_tiles_is_that_of_the_tiled_predictor_and_the_size_limit_is_an_option(photo, tmp_path):
    options = {"model": MODEL, "size": 64, "precision": "fp32", "tile": 48}
    Attention(inputs=(photo,), output=tmp_path / "out", **options).run()
    predictor = TiledPredictor(MODEL, tile=48, overlap=0.25, size=64, precision="fp32")
    predictor.set_image(data.cat()[:200, :260])
    with np.load(tmp_path / "out" / "cat" / "attention.npz", allow_pickle=False) as arrays:
        np.testing.assert_allclose(arrays["attention"], predictor.cls_attention(), atol=1e-6)
    settings = json.loads((tmp_path / "out" / "provenance.json").read_text())["settings"]
    assert (settings["tile"], settings["overlap"]) == (48, 0.25)
    with pytest.raises(ValueError, match=r"cat\.png is too large: at most 1,000 pixels are read"):
        Attention(inputs=(photo,), output=tmp_path / "no", max_megapixels=0.001, **options).run()


@pytest.mark.parametrize(
    ("point", "size", "message"),
    [
        ("100,100", (40, 40), r"the point y=100, x=100 is outside of the image: y ends at 39"),
        ("1,1", (3000, 20), r"an image of 20 × 3000 has"),
        ("1,2,3", (40, 40), r"expected two whole numbers Y,X"),
    ],
)
def test_point_or_size_that_an_image_does_not_fit_is_named(tmp_path, point, size, message):
    Image.new("RGB", size).save(tmp_path / "image.png")
    with pytest.raises(ValueError, match=message):
        Attention(inputs=(tmp_path / "image.png",), output=tmp_path / "out", model=MODEL, point=point).run()


def test_titles_on_contact_sheet_tell_images_of_one_folder_apart(photo, tmp_path):
    paths = [tmp_path / name for name in ("a/pets/cat.png", "a/pets/dog.png", "b/cow.png")]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(photo.read_bytes())
    titles = [image.title for image in common.list_inputs(common.open_inputs(paths))]
    assert titles == ["pets/cat", "pets/dog", "b/cow"]
    assert [image.title for image in common.list_inputs(common.open_inputs([photo]))] == ["cat"]
