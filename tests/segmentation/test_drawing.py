"""Drawings: colors, sizes, and the pixels that stay unchanged."""

import numpy as np
import pytest

from segmentation import drawing, figures
from segmentation.masks import Box, enlarge, keep_mass_of_maps

IMAGE = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)


def test_head_colors_are_fixed_and_distinct():
    from skimage.color import deltaE_ciede2000, rgb2lab  # imports scipy

    colors = drawing.head_colors(24)
    np.testing.assert_array_equal(colors[:6], drawing.head_colors(6))
    lab = rgb2lab(colors[None] / 255)[0]
    apart = deltaE_ciede2000(lab[:, None], lab[None])
    assert (apart + 99 * np.eye(24)).min() > 12
    assert (apart + 99 * np.eye(24))[:12, :12].min() > 20
    np.testing.assert_array_equal(drawing.head_colors(26)[25], colors[1])


def test_heat_map_covers_color_map():
    shown, colors = drawing.heat_map(np.array([[0.2, 0.7]]), (4, 8)), drawing.color_table("inferno")
    np.testing.assert_array_equal(shown[[0, 3], [0, 7]], colors[[0, 255]])


def test_overlay_heads_equals_reference():
    attention, image = np.random.default_rng(3).random((5, 4, 6), dtype=np.float32), IMAGE[:31, :45]
    kept = keep_mass_of_maps(attention, 0.5)
    strength = np.sqrt(np.where(kept, attention, 0) / attention.max(axis=(1, 2), keepdims=True))
    enlarged = enlarge(strength, (31, 45), "bilinear")
    opacity = 0.7 * enlarged.max(axis=0)[..., None]
    gray = np.rint(image @ [0.299, 0.587, 0.114] / 2)[..., None]
    expected = gray * (1 - opacity) + drawing.head_colors(5)[enlarged.argmax(axis=0)] * opacity
    shown = drawing.overlay_heads(image, attention, mass=0.5, opacity=0.7)
    assert np.abs(shown - expected).max() <= 0.51


def test_masks_points_and_boxes_are_drawn_at_their_place():
    mask, away = np.zeros((48, 64), dtype=bool), np.ones((48, 64), dtype=bool)
    mask[10:20, 10:20], away[6:24, 6:24] = True, False
    changed = (drawing.overlay_masks(IMAGE, mask, contour=2) != IMAGE).any(axis=2)
    assert changed[10:20, 10:20].all()
    assert not changed[away].any()
    assert drawing.draw_point(IMAGE, 20, 30)[20, 30].tolist() == [255, 255, 255]
    boxed = drawing.draw_boxes(IMAGE, [Box(5, 6, 40, 30)])
    np.testing.assert_array_equal(boxed[6, 20], drawing.head_colors(1)[0])
    np.testing.assert_array_equal(boxed[15:25, 15:25], IMAGE[15:25, 15:25])


def test_contact_sheet_takes_images_of_every_shape():
    tall = np.zeros((90, 10, 3), dtype=np.uint8)
    sheet = drawing.contact_sheet([[("one", IMAGE), ("two", tall)], [("three", tall)]], height=40)
    assert sheet.shape[0] > 80
    assert (sheet[:4] == 255).all()
    with pytest.raises(ValueError, match="at least one image"):
        drawing.contact_sheet([[]])
    row = drawing.contact_sheet([[("row", np.zeros((1, 4000, 3), np.uint8))]], height=40)
    assert row.shape[1] < 400  # an image of one row takes no gigabytes


def test_caption_of_a_figure_may_have_a_name_that_is_not_utf8():
    figure = figures.map_figure(
        np.zeros((8, 8, 3), np.uint8), np.ones((2, 2, 2)), label="", caption="r\udce9n"
    )
    assert figures.figure_bytes(figure, "png")
