"""Drawings: colors, sizes, and the pixels that stay unchanged."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from segmentation import drawing, figures, report
from segmentation.commands.common import choose_evenly
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
    values = np.random.default_rng(0).random((3, 5))
    index = np.rint((enlarge(values, (7, 9), "bilinear") - 0.2) / 0.5 * 255).clip(0, 255).astype(int)
    shown = drawing.heat_map(values, (7, 9), value_range=(0.2, 0.7), interpolation="bilinear")
    np.testing.assert_array_equal(shown, colors[index])
    over = drawing.overlay_heat(IMAGE[:7, :9], values, (0.2, 0.7))
    np.testing.assert_array_equal(over, np.rint(0.4 * IMAGE[:7, :9] + np.float32(0.6) * colors[index]))


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
    parts = np.zeros_like(mask)
    parts[5:10, 5:10], parts[30:40, 40:50] = True, True
    outlined = drawing.overlay_masks(IMAGE, parts, opacity=0.0)
    for row, column in ((5, 7), (30, 45)):
        np.testing.assert_array_equal(outlined[row, column], drawing.head_colors(1)[0])
    half = drawing.overlay_masks(IMAGE, np.stack([mask, ~away]), contour=0)
    first, second = drawing.head_colors(2)
    np.testing.assert_allclose(half[7, 8], 0.55 * IMAGE[7, 8] + 0.45 * second, atol=0.51)
    np.testing.assert_allclose(
        half[15, 12], 0.55 * (0.55 * IMAGE[15, 12] + 0.45 * first) + 0.45 * second, atol=1
    )
    assert drawing.draw_point(IMAGE, 20, 30)[20, 30].tolist() == [255, 255, 255]
    boxed = drawing.draw_boxes(IMAGE, [Box(5, 6, 40, 30)])
    for row, column in ((6, 20), (29, 20), (15, 5), (15, 39)):  # the last ones inside the box
        np.testing.assert_array_equal(boxed[row, column], drawing.head_colors(1)[0])
    np.testing.assert_array_equal(boxed[[15, 32], [42, 20]], IMAGE[[15, 32], [42, 20]])
    np.testing.assert_array_equal(boxed[15:25, 15:25], IMAGE[15:25, 15:25])


def test_smaller_images_have_the_means_of_pixels_and_larger_ones_lie_between_them():
    means = IMAGE.reshape(12, 4, 16, 4, 3).mean(axis=(1, 3))
    assert np.abs(drawing.rescale(IMAGE, 0.25) - means).max() <= 1
    ramp = np.tile(np.uint8([0, 100, 200]), (2, 3, 1)).transpose(0, 2, 1)
    assert drawing.rescale(ramp, 2)[0, :, 0].tolist() == [0, 25, 75, 125, 175, 200]
    assert drawing.rescale(ramp, 0.1).shape == (1, 1, 3)


def test_images_are_put_on_white_below_and_beside_each_other():
    small = IMAGE[:5, :7]
    below, beside = drawing.stack([small, IMAGE], gap=3), drawing.side_by_side(IMAGE, small)
    np.testing.assert_array_equal(below[8:], IMAGE)
    np.testing.assert_array_equal(below[:8], np.pad(small, ((0, 3), (0, 57), (0, 0)), constant_values=255))
    assert beside.shape == (48, 64 + 8 + 7, 3)
    np.testing.assert_array_equal(beside[:5, 72:], small)
    assert (beside[5:, 64:] == 255).all()


def test_matches_have_the_color_of_their_height_in_a_at_both_ends():
    from matplotlib import colormaps

    in_a, in_b = np.array([[6.0, 5], [30, 20]]), np.array([[20.0, 9], [8, 40]])
    sheet = drawing.match_lines(np.zeros_like(IMAGE[:40, :50]), 0 * IMAGE, in_a, in_b)
    for (y, x), (below, right) in zip(in_a.astype(int), in_b.astype(int), strict=True):
        color = colormaps["turbo"](y / 40, bytes=True)[:3]
        np.testing.assert_array_equal(sheet[[y, below], [x, 50 + 8 + right]], [color] * 2)


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


def test_images_of_a_report_have_at_most_the_height_of_their_section():
    images = [np.zeros((height, 90, 3), np.uint8) for height in (60, 300)]
    section = report.Section("Maps", [report.Picture(image, "", "") for image in images], side=120)
    page = report.write_page("Title", {}, [section])
    files = [base64.b64decode(data) for data in re.findall(r"base64,([^\"]+)", page)]
    assert [Image.open(io.BytesIO(file)).size for file in files] == [(90, 60), (36, 120)]


def test_contact_sheet_has_at_most_30_images_at_even_distances():
    assert [len(choose_evenly(range(count))) for count in (1, 30, 31, 60, 61)] == [1, 30, 16, 30, 21]
    assert choose_evenly(range(95))[:3] == range(0, 12, 4)
