"""Pictures for people: sizes, colours, and what may not change under them."""

import matplotlib
import numpy as np
import pytest
from skimage.color import deltaE_ciede2000, rgb2lab

from segmentation import drawing
from segmentation.masks import Box, enlarge, keep_mass_of_maps


@pytest.fixture
def picture() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)


def test_head_colors_are_fixed_and_distinct():
    colors = drawing.head_colors(24)
    np.testing.assert_array_equal(colors[:6], drawing.head_colors(6))
    lab = rgb2lab(colors[None] / 255)[0]
    apart = deltaE_ciede2000(lab[:, None], lab[None])
    assert apart[~np.eye(24, dtype=bool)].min() > 12
    assert apart[:12, :12][~np.eye(12, dtype=bool)].min() > 20
    assert drawing.head_colors(26)[25].tolist() == colors[1].tolist()


def test_heat_map_covers_colormap():
    shown = drawing.heat_map(np.array([[0.2, 0.7]]), (4, 8))
    ends = (np.array(matplotlib.colormaps["inferno"]([0.0, 1.0]))[:, :3] * 255).round()
    np.testing.assert_array_equal(shown[0, 0], ends[0])
    np.testing.assert_array_equal(shown[3, 7], ends[1])


def test_overlay_heads_equals_reference():
    rng = np.random.default_rng(3)
    picture = rng.integers(0, 256, (31, 45, 3), dtype=np.uint8)
    attention = rng.random((5, 4, 6), dtype=np.float32)
    kept = keep_mass_of_maps(attention, 0.5)
    strength = np.sqrt(np.where(kept, attention, 0) / attention.max(axis=(1, 2), keepdims=True))
    enlarged = enlarge(strength, (31, 45), "bilinear")
    layer = drawing.head_colors(5)[enlarged.argmax(axis=0)]
    expected = drawing.blend(drawing._dimmed(picture), layer, 0.7 * enlarged.max(axis=0))
    shown = drawing.overlay_heads(picture, attention, mass=0.5, opacity=0.7)
    np.testing.assert_array_equal(shown, expected)


def test_overlay_masks_changes_only_mask_pixels(picture):
    mask = np.zeros((48, 64), dtype=bool)
    mask[10:20, 10:20] = True
    shown = drawing.overlay_masks(picture, mask, contour=2)
    changed = (shown != picture).any(axis=2)
    assert changed[10:20, 10:20].all()
    away = np.ones_like(mask)
    away[6:24, 6:24] = False
    assert not changed[away].any()


def test_points_and_boxes_are_drawn_at_their_place(picture):
    assert drawing.draw_point(picture, 20, 30)[20, 30].tolist() == [255, 255, 255]
    boxed = drawing.draw_boxes(picture, [Box(5, 6, 40, 30)])
    np.testing.assert_array_equal(boxed[6, 20], drawing.head_colors(1)[0])
    np.testing.assert_array_equal(boxed[15:25, 15:25], picture[15:25, 15:25])


def test_color_bar_shows_colors_in_order():
    assert drawing.color_bar("inferno", (-0.25, 1.5), 1).shape[1] == 1
    bar = drawing.color_bar("inferno", (-0.25, 1.5), 640)
    table = drawing.color_table("inferno").astype(int)
    middle = bar[len(bar) // 2].astype(int)
    colored = np.flatnonzero(np.ptp(middle, axis=1) > 40)  # the words are black on white
    levels = [np.abs(table - middle[column]).sum(axis=1).argmin() for column in colored]
    assert levels == sorted(levels)
    assert (levels[0], levels[-1]) == pytest.approx((10, 245), abs=25)
    assert not np.array_equal(bar, drawing.color_bar("inferno", (-0.25, 1.6), 640))


def test_contact_sheet_takes_images_of_every_shape(picture):
    tall = np.zeros((90, 10, 3), dtype=np.uint8)
    sheet = drawing.contact_sheet([[("one", picture), ("two", tall)], [("three", tall)]], height=40)
    assert sheet.dtype == np.uint8
    assert sheet.shape[0] > 80
    assert (sheet[:4] == 255).all()
    with pytest.raises(ValueError, match="at least one image"):
        drawing.contact_sheet([[]])
    row = drawing.contact_sheet([[("row", np.zeros((1, 4000, 3), np.uint8))]], height=40)
    assert row.shape[1] < 40 * (drawing.WIDEST + 2)  # an image of one row takes no gigabytes
