"""Drawings: colors, sizes, and the pixels that stay unchanged."""

import base64
import io
import re
from itertools import groupby

import numpy as np
import pytest
from PIL import Image, ImageFont

from segmentation import drawing, figures, report
from segmentation.commands.common import choose_evenly
from segmentation.masks import Box, Mask, enlarge

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
    assert (drawing.heat_map(np.ones((2, 3)), (4, 6)) == colors[0]).all()  # without a range


def test_overlay_heads_equals_reference():
    attention, image = np.random.default_rng(3).random((5, 4, 6), dtype=np.float32), IMAGE[:31, :45]
    attention[4] = attention[1]  # of equal ones the first
    kept = attention > 0.4
    strength = np.sqrt(np.where(kept, attention, 0) / attention.max(axis=(1, 2), keepdims=True))
    enlarged = enlarge(strength, (31, 45), "bilinear")
    opacity = 0.75 * enlarged.max(axis=0)[..., None]
    gray = np.rint(image @ [0.299, 0.587, 0.114] / 2)[..., None]
    expected = gray * (1 - opacity) + drawing.head_colors(5)[enlarged.argmax(axis=0)] * opacity
    shown = drawing.overlay_heads(image, attention, kept)
    assert np.abs(shown - expected).max() <= 0.51


def test_masks_points_and_boxes_are_drawn_at_their_place():
    mask, parts = np.zeros((2, 48, 64), dtype=bool)
    mask[10:20, 10:20] = parts[5:10, 5:10] = parts[30:40, 40:50] = True
    outlined = drawing.overlay_masks(IMAGE, parts, opacity=0.0)
    for row, column in ((5, 7), (30, 45)):
        np.testing.assert_array_equal(outlined[row, column], drawing.head_colors(1)[0])
    half = drawing.overlay_masks(IMAGE, np.stack([mask, np.ones_like(mask)]), contour=0)
    first, second = drawing.head_colors(2)
    np.testing.assert_allclose(half[7, 8], 0.55 * IMAGE[7, 8] + 0.45 * second, atol=0.51)
    np.testing.assert_allclose(
        half[15, 12], 0.55 * (0.55 * IMAGE[15, 12] + 0.45 * first) + 0.45 * second, atol=1
    )


def draw_square(image: np.ndarray, **options: int) -> np.ndarray:
    mask: Mask = np.zeros(image.shape[:2], bool)
    mask[30:80, 20:70] = True
    return drawing.overlay_masks(image, mask, opacity=0, **options)


def draw_match(image: np.ndarray) -> np.ndarray:
    return drawing.match_lines(image, image, np.array([[30.0, 40]]), np.array([[30.0, 60]]))


MARKS = {
    "box": (lambda image: drawing.draw_boxes(image, [Box(20, 30, 70, 80)]), 40),
    "point": (lambda image: drawing.draw_point(image, 50, 40), 40),
    "box across": (lambda image: drawing.draw_boxes(image, [Box(20, 30, 70, 80)]).swapaxes(0, 1), 50),
    "contour": (draw_square, 40),
    "match": (draw_match, 40),
    "line": (draw_match, 60),
    **{
        f"contour {width}": (lambda image, width=width: draw_square(image, contour=width), 40)
        for width in (1, 3)
    },
}


@pytest.mark.parametrize(
    ("mark", "side", "runs"),
    [
        ("box", 449, "28- 1# 3o 1# 44- 1# 3o 1# 367-"),
        ("box", 450, "27- 1# 5o 1# 42- 1# 5o 1# 367-"),
        ("contour 1", 90, "28- 2# 1o 2# 44- 2# 1o 2# 8-"),
        ("box across", 449, "18- 1# 3o 1# 44- 1# 3o 1# 387-"),
        ("contour", 90, "28- 1# 3o 1# 44- 1# 3o 1# 8-"),
        ("contour 3", 90, "27- 1# 5o 1# 42- 1# 5o 1# 7-"),
        ("point", 249, "43- 2# 3o 1# 3o 1# 3o 2# 191-"),
        ("point", 250, "42- 2# 3o 2# 3o 2# 3o 2# 191-"),
        ("point", 600, "34- 2# 5o 2# 5- 1# 3o 1# 5- 2# 5o 2# 533-"),
        ("match", 399, "26- 2# 5o 2# 364-"),
        ("match", 800, "24- 2# 9o 2# 763-"),
        ("line", 799, "29- 3o 767-"),
        ("line", 800, "28- 5o 767-"),
    ],
)
def test_marks_have_their_widths_and_a_dark_edge(mark, side, runs):
    """Runs of a column of pixels: the image (-), dark (#) and the color of the mark (o)."""
    draw, column = MARKS[mark]
    pixels = draw(np.full((side, side + 10, 3), 128, np.uint8))[:, column].astype(int)
    kinds = np.where((pixels == 128).all(-1), "-", np.where(pixels.max(-1) < 120, "#", "o"))
    assert " ".join(f"{len([*same])}{kind}" for kind, same in groupby(kinds)) == runs
    assert mark == "match" or not np.ptp(pixels[kinds == "#"], axis=-1).any()


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


def dark_sides(image: np.ndarray) -> list[int]:
    """First and last row, first and last column of the dark pixels, from the sides of the image."""
    dark = [np.flatnonzero((image < 128).all(axis=-1).any(axis=axis)) for axis in (1, 0)]
    return [*dark[0][[0, -1]].tolist(), *dark[1][[0, -1]].tolist()]


def test_contact_sheet_takes_images_of_every_shape():
    tall, row = np.zeros((100, 10, 3), np.uint8), np.zeros((1, 4000, 3), np.uint8)
    sheet = drawing.contact_sheet([[("", IMAGE), ("", tall)], [], [("", tall)]], height=24)
    assert sheet.shape == (8 + 24 + 24 + 8 + 24 + 24 + 8, 8 + 32 + 8 + 2 + 8, 3)
    assert (dark_sides(sheet[:, 48:]), dark_sides(sheet[64:])) == ([32, 55, 0, 1], [24, 47, 8, 9])
    with pytest.raises(ValueError, match="at least one image"):
        drawing.contact_sheet([[]])
    (wide,) = [[("", row)]]  # 8 times as wide as high: an image of one row takes no gigabytes
    assert drawing.contact_sheet([wide]).shape == (8 + 24 + 200 + 8, 8 + 1600 + 8, 3)


def test_caption_is_above_the_image_and_shortened_to_its_width():
    font, text, wide = ImageFont.load_default(16), "Head 12", np.zeros((5, 200, 3), np.uint8)
    length, whole = int(np.ceil(font.getlength(text))), drawing.caption(wide, text)
    assert whole.shape == (24 + 5, 200, 3)
    top, bottom, left, right = dark_sides(whole[:24])
    assert (abs(23 - top - bottom) <= 2, left in (4, 5, 6), right < length + 4) == (True,) * 3
    fits, short = (drawing.caption(wide[:, : length + more], text)[:24] for more in (8, 7))
    np.testing.assert_array_equal(fits[:, : length + 4], whole[:24, : length + 4])
    assert dark_sides(short)[3] < right
    assert (drawing.caption(wide[:, :8], text)[:24] == 255).all()


def test_legend_has_squares_with_names_in_lines_that_fit():
    font, names, image = ImageFont.load_default(16), ["Head", "Hill"], np.zeros((5, 400, 3), np.uint8)
    first, second = (int(font.getlength(name)) + 40 for name in names)
    for width, lines in ((8 + first + second, 1), (7 + first + second, 2), (20, 2)):
        shown, second_left = drawing.with_names(image[:, :width], names), 8 + first * (lines == 1)
        assert shown.shape == (5 + 8 + 24 * lines, width, 3)
        for color, top, left in zip(
            drawing.head_colors(2), (8, 24 * lines - 16), (8, second_left), strict=True
        ):
            square = shown[5 + top :, left:][:17, :17]
            assert (square[1:-1, 1 : min(16, width - left)] == color).all()
            assert not np.concatenate([*square[[0, -1]], square[:, 0]]).any()
    top, bottom, left, right = dark_sides(drawing.with_legend(image, [("Head", (255, 255, 255))])[5:, 25:])
    assert (abs(top + bottom - 2 * 16) <= 2, left in (3, 4, 5), right < first - 20) == (True,) * 3
    assert drawing.with_legend(image, []) is image


def test_figure_for_print_has_the_image_and_all_maps_in_one_scale():
    from matplotlib.text import Text

    maps = np.random.default_rng(0).random((6, 3, 4))
    caption = "r\udce9n " + "a" * 52 + " " + "b" * 53  # a name that is not UTF-8
    figure = figures.map_figure(IMAGE, maps, label="share", caption=caption, point=(10, 20))
    *panels, _ = figure.axes
    heads = [f"head {head}" for head in range(6)]
    assert [panel.get_title() for panel in panels] == ["image", *heads, "mean"]
    assert panels[0].get_subplotspec().get_geometry() == (2, 4, 0, 0)
    np.testing.assert_allclose(panels[-1].images[0].get_array(), maps.mean(axis=0))
    assert {panel.images[0].get_clim() for panel in panels[1:]} == {(0, maps.max())}
    assert all(panel.lines[0].get_xydata().tolist() == [[20, 10]] for panel in panels)
    assert panels[3].images[0].get_extent() == [0, 64, 48, 0]
    assert {text.get_fontsize() for text in figure.findobj(Text) if text.get_text()} == {8}
    assert (figure.get_size_inches().tolist(), figure.dpi) == ([7, pytest.approx(3.3575)], 300)
    assert "\n" not in figure.get_supxlabel()
    longer = figures.map_figure(IMAGE, maps[:1], label="", caption=caption + "b", common=False)
    assert [panel.get_title() for panel in longer.axes] == ["image", "head 0"]
    two = figures.map_figure(IMAGE, maps[:2], label="", caption="", common=False)
    assert [panel.get_title() for panel in two.axes] == ["image", "head 0", "head 1", "mean"]
    assert longer.get_supxlabel().count("\n") == 1
    assert all(panel.images[0].get_clim() == (maps[0].min(), maps[0].max()) for panel in longer.axes[1:])
    for kind, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        encoded = figures.figure_bytes(longer, kind)
        assert encoded.startswith(start)
        assert b"date" not in encoded.lower()


def test_images_of_a_report_have_at_most_the_height_of_their_section():
    images = [np.zeros((height, 90, 3), np.uint8) for height in (60, 300)]
    section = report.Section("Maps", [report.Picture(image, "", "") for image in images], side=120)
    page = report.write_page("Title", {}, [section])
    files = [base64.b64decode(data) for data in re.findall(r"base64,([^\"]+)", page)]
    assert [Image.open(io.BytesIO(file)).size for file in files] == [(90, 60), (36, 120)]


def test_contact_sheet_has_at_most_30_images_at_even_distances():
    assert [len(choose_evenly(range(count))) for count in (1, 30, 31, 60, 61)] == [1, 30, 16, 30, 21]
    assert choose_evenly(range(95))[:3] == range(0, 12, 4)
