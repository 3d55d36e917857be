"""The contact sheet, on pictures that a small untrained model looks at."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from segmentation.commands.common import open_inputs
from segmentation.commands.gallery import Gallery, choose_evenly, sheet_cells
from segmentation.masks import central_head


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for i in range(7):
        Image.fromarray(generator.integers(0, 256, (40, 48 + i, 3), np.uint8)).save(folder / f"{i}.png")
    return folder


def gallery(photos, output, **options):
    return Gallery(
        (photos,), output, model="random:vit_tiny/16", size=48, precision="fp32", device="cpu", **options
    )


def test_sheet_shows_the_pictures_asked_for(photos, tmp_path, capsys):
    gallery(photos, tmp_path / "sheet.png", count=4, columns=2).run()
    assert "4 images" in capsys.readouterr().out
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.height > 2 * 128
        assert 8 * 128 < sheet.width < 8 * 150  # squares


def test_a_jpeg_is_written_where_the_name_says_so(photos, tmp_path):
    gallery(photos, tmp_path / "sheet.jpg", count=1).run()
    with Image.open(tmp_path / "sheet.jpg") as sheet:
        assert sheet.format == "JPEG"


def test_another_suffix_is_refused_and_nothing_is_written(photos, tmp_path):
    with pytest.raises(ValueError, match=r"expected a \.png or \.jpg"):
        gallery(photos, tmp_path / "sheet.txt").run()
    assert [entry.name for entry in tmp_path.iterdir()] == ["photos"]


def test_images_are_taken_evenly_from_those_named(photos, tmp_path):
    inputs, names = open_inputs([photos]), tmp_path / "names.txt"
    names.write_text("1.png\n3.png\n4.png\n5.png\n6.png\n")
    assert [item.file_name for item in choose_evenly(inputs, names, 3)] == ["1.png", "4.png", "6.png"]
    assert choose_evenly(inputs, None, 100) == inputs
    names.write_text("9.png\n")
    with pytest.raises(ValueError, match=r"the first is 9\.png"):
        choose_evenly(inputs, names, 3)


def test_truncated_jpeg_is_named_and_the_others_are_on_the_sheet(photos, tmp_path, capsys):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 60, 3), np.uint8)).save(photos / "7.jpg")
    content = (photos / "7.jpg").read_bytes()
    (photos / "7.jpg").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"skipped 1 of 8 images: .*7\.jpg is damaged or cut short"):
        gallery(photos, tmp_path / "sheet.png").run()
    assert "7 images" in capsys.readouterr().out
    assert (tmp_path / "sheet.png").is_file()


def test_existing_sheet_is_replaced_only_with_overwrite(photos, tmp_path):
    gallery(photos, tmp_path / "sheet.png", count=1).run()
    with pytest.raises(ValueError, match="--overwrite"):
        gallery(photos, tmp_path / "sheet.png", count=1).run()
    gallery(photos, tmp_path / "sheet.png", count=1, overwrite=True).run()
    described = json.loads((tmp_path / "sheet.png.provenance.json").read_text())
    assert (described["model"], described["precision"]) == ("random:vit_tiny/16", "fp32")


def test_a_count_below_one_is_refused(photos, tmp_path):
    with pytest.raises(ValueError, match="--count is 0"):
        gallery(photos, tmp_path / "sheet.png", count=0).run()


@given(arrays.arrays(bool, st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4))))
def test_central_head_has_the_nearest_mask(masks):
    _, height, width = masks.shape

    def spread(mask):
        places = [((y + 0.5) / height - 0.5, (x + 0.5) / width - 0.5) for y, x in np.argwhere(mask)]
        return np.mean([y**2 + x**2 for y, x in places]) if places else np.inf

    assert spread(masks[central_head(masks)]) == pytest.approx(min(spread(mask) for mask in masks))


def test_mask_on_the_sheet_is_the_central_heads():
    attention = np.full((3, 3, 3), 0.01)
    attention[0, 0, 0] = attention[1, 1, 1] = attention[2, 2, 2] = 1
    titles = [title for title, _ in sheet_cells("cat", np.zeros((9, 9, 3), np.uint8), attention, 0.6)]
    assert titles == ["cat", "head 1", "all heads", "mask 11%"]
