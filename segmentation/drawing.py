"""Drawing on images, uint8 RGB [height, width, 3], of maps and masks on a patch grid; contact sheets."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from dino_model.runtime.files import replace_file
from segmentation.masks import Box, ImageArray, Interpolation, Mask, enlarge

Color = Sequence[int] | NDArray[np.uint8]
"""Red, green and blue, 0 to 255."""

# The first eight are Okabe and Ito's seven and a violet; each further one is the color of an 18-step RGB
# cube, neither dark, pale nor gray, that lies farthest (CIEDE2000) from those before it, to normal,
# deuteranope and protanope eyes alike.
_HEAD_COLORS = (
    (213, 94, 0), (86, 180, 233), (240, 228, 66), (0, 158, 115), (204, 121, 167), (140, 60, 255),
    (230, 159, 0), (0, 114, 178), (150, 0, 45), (90, 255, 240), (90, 60, 105), (255, 180, 165),
    (15, 60, 180), (255, 75, 105), (195, 15, 0), (0, 90, 60), (120, 135, 255), (165, 75, 120),
    (45, 225, 255), (105, 135, 75), (150, 210, 105), (255, 165, 195), (30, 150, 150), (255, 225, 165),
)  # fmt: skip


GAP = 8  # pixels between images on a sheet, and around the names of a legend
TEXT_SIZE = 16  # pixels
WIDEST = 8  # width of an image on a sheet, in heights: an image of 1 × 4000 pixels would take gigabytes
BAND = 512  # rows that are drawn at once: whole images of 50 megapixels would take gigabytes


def head_colors(count: int) -> NDArray[np.uint8]:
    """Return one fixed RGB color per head: [count, 3]; colors repeat after 24."""
    colors = [_HEAD_COLORS[head % len(_HEAD_COLORS)] for head in range(count)]
    return np.array(colors, dtype=np.uint8).reshape(-1, 3)


def color_table(colormap: str) -> ImageArray:
    """Return the 256 colors of a matplotlib color map: [256, 3]."""
    from matplotlib import colormaps  # a quarter of a second to import

    return (colormaps[colormap](np.arange(256))[:, :3] * 255).round().astype(np.uint8)


def levels(
    values: NDArray[np.floating],
    size: tuple[int, int],
    value_range: tuple[float, float],
    interpolation: Interpolation = "bilinear",
) -> NDArray[np.float32]:
    """Enlarge a map [rows, columns] to `size`, then scale it: float32 [height, width], in [0, 1]."""
    low, high = value_range
    enlarged = enlarge(values, size, interpolation).astype(np.float32)
    enlarged -= np.float32(low)
    enlarged /= np.float32(high - low if high > low else 1)
    return np.clip(enlarged, 0, 1, out=enlarged)


def heat_map(
    values: NDArray[np.floating],
    size: tuple[int, int],
    *,
    value_range: tuple[float, float] | None = None,
    interpolation: Interpolation = "nearest",
) -> ImageArray:
    """Draw a map [rows, columns] as an image of `size` (height, width) in false colors.

    `value_range` has the values of the first and last color, by default the least and greatest of the map.
    Maps that are to be compared need the same range.
    """
    value_range = value_range or (float(values.min()), float(values.max()))
    shares = levels(values, size, value_range, interpolation)
    return color_table("inferno")[(shares * 255).round().astype(np.uint8)]


def blend(image: ImageArray, layer: ImageArray, opacity: float | NDArray[np.floating]) -> ImageArray:
    """Lay `layer` over `image` with an opacity in [0, 1], one for all pixels or one each: [height, width]."""
    alpha = np.asarray(opacity, dtype=np.float32)
    alpha = np.broadcast_to(alpha[..., None] if alpha.ndim == 2 else alpha, (*image.shape[:-1], 1))
    blended = np.empty_like(image)
    for band in _bands(image):
        blended[band] = np.rint(image[band] * (1 - alpha[band]) + layer[band] * alpha[band])
    return blended


def _bands(image: ImageArray) -> list[slice]:
    return [slice(top, top + BAND) for top in range(0, len(image), BAND)]


def overlay_heat(
    image: ImageArray, values: NDArray[np.floating], value_range: tuple[float, float] | None = None
) -> ImageArray:
    """Draw a map [rows, columns] in false colors over its image; `value_range` as `heat_map`."""
    layer = heat_map(values, image.shape[:2], value_range=value_range, interpolation="bilinear")
    return blend(image, layer, 0.6)


def overlay_heads(image: ImageArray, attention: NDArray[np.floating], patches: Mask) -> ImageArray:
    """Draw every head in its own color over a dimmed gray image.

    A pixel takes the color of the head with the highest attention there, relative to the head's own maximum;
    higher attention is more opaque, up to 75 %.

    Args:
        attention: [heads, rows, columns].
        patches: Patches of each head that are colored, Boolean [heads, rows, columns].

    Source: Fig. 3 of the paper, "Attention maps from multiple heads"; the colors are our own.
    """
    maps = np.asarray(attention, dtype=np.float32)
    # The square root brings out the middle of the range: attention falls off steeply from its peak.
    strengths = np.sqrt(np.where(patches, maps, 0) / maps.max(axis=(1, 2), keepdims=True))
    size, colors = (image.shape[0], image.shape[1]), head_colors(len(attention))
    strongest = enlarge(strengths[0], size, "bilinear")  # [height, width]
    layer = np.broadcast_to(colors[0], image.shape).copy()
    for strength, color in zip(strengths[1:], colors[1:], strict=True):  # all at once would take gigabytes
        enlarged = enlarge(strength, size, "bilinear")
        layer[enlarged > strongest] = color
        np.maximum(strongest, enlarged, out=strongest)
    return blend(_dim(image), layer, 0.75 * strongest)


def _dim(image: ImageArray) -> ImageArray:
    """Return the image in gray at half its brightness."""
    dimmed = np.empty_like(image)
    for band in _bands(image):
        dimmed[band] = np.rint(image[band] @ np.array([0.299, 0.587, 0.114]) * 0.5)[..., None]
    return dimmed


def overlay_masks(
    image: ImageArray,
    masks: Mask,
    *,
    colors: NDArray[np.uint8] | None = None,
    opacity: float = 0.45,
    contour: int = 2,
) -> ImageArray:
    """Tint and outline masks in their colors over an image; later masks are on top.

    Args:
        masks: [height, width] or [masks, height, width], of the size of the image.
        colors: [masks, 3]; the head colors by default.
        opacity: Opacity of the tint, in [0, 1].
        contour: Width of the outline in pixels, with a thin dark line outside; 0 for none.
    """
    masks = masks[None] if masks.ndim == 2 else masks
    if masks.shape[1:] != image.shape[:2]:
        raise ValueError(f"masks are {masks.shape[1:]}, the image {image.shape[:2]}: enlarge the masks first")
    colors = head_colors(len(masks)) if colors is None else colors
    result = image.copy()
    for mask, color in zip(masks, colors, strict=True):
        result[mask] = blend(result[mask], np.broadcast_to(color, (int(mask.sum()), 3)), opacity)
    for mask, color in zip(masks, colors.tolist(), strict=True) if contour else ():
        lines, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
        cv2.drawContours(result, lines, -1, (0, 0, 0), contour + 2)
        cv2.drawContours(result, lines, -1, color, contour)
    return result


def draw_point(image: ImageArray, y: int, x: int) -> ImageArray:
    """Draw a white ring and dot at one pixel, edged in black."""
    result = image.copy()
    radius = max(4, min(image.shape[:2]) // 50)
    for shade, extra in (((0, 0, 0), 2), ((255, 255, 255), 0)):
        cv2.circle(result, (x, y), radius, shade, thickness=max(2, radius // 3) + extra, lineType=cv2.LINE_AA)
        cv2.circle(result, (x, y), 1 + extra // 2, shade, thickness=-1, lineType=cv2.LINE_AA)
    return result


def draw_boxes(image: ImageArray, boxes: Sequence[Box]) -> ImageArray:
    """Draw boxes in the head colors, edged in black."""
    result = image.copy()
    width = max(2, min(image.shape[:2]) // 150)
    for box, color in zip(boxes, head_colors(len(boxes)).tolist(), strict=True):
        corners = (box.left, box.top), (box.right - 1, box.bottom - 1)
        cv2.rectangle(result, *corners, (0, 0, 0), width + 2)
        cv2.rectangle(result, *corners, color, width)
    return result


def with_legend(image: ImageArray, entries: Sequence[tuple[str, Color]]) -> ImageArray:
    """Append a white strip of colored squares with their names, in lines that fit, if there are entries."""
    if not entries:
        return image
    size, pad, width = TEXT_SIZE, GAP, image.shape[1]
    font = ImageFont.load_default(size)
    places, x, y = [], pad, pad
    for text, _ in entries:
        length = int(font.getlength(text)) + size + 3 * pad
        if x > pad and x + length > width:
            x, y = pad, y + size + pad
        places.append((x, y))
        x += length
    strip = Image.new("RGB", (width, y + size + pad), "white")
    draw = ImageDraw.Draw(strip)
    for (text, color), (x, y) in zip(entries, places, strict=True):
        shade = tuple(map(int, color))
        draw.rectangle((x, y, x + size, y + size), fill=shade, outline="black")
        draw.text((x + size + pad // 2, y + size // 2), text, fill="black", font=font, anchor="lm")
    return np.concatenate([image, np.array(strip)])


def with_names(image: ImageArray, names: Sequence[str]) -> ImageArray:
    """Append a legend of names in the head colors."""
    return with_legend(image, list(zip(names, head_colors(len(names)), strict=True)))


def caption(image: ImageArray, text: str) -> ImageArray:
    """Put a line of text above an image, shortened with an ellipsis if it does not fit."""
    font, width = ImageFont.load_default(TEXT_SIZE), image.shape[1]
    shown = text
    while shown and font.getlength(shown) > width - TEXT_SIZE // 2:
        shown = shown.removesuffix("…")[:-1] + "…" if len(shown) > 1 else ""
    strip = Image.new("RGB", (width, TEXT_SIZE * 3 // 2), "white")
    place = TEXT_SIZE // 4, TEXT_SIZE * 3 // 4
    ImageDraw.Draw(strip).text(place, shown, fill="black", font=font, anchor="lm")
    return np.concatenate([np.array(strip), image])


def stack(images: Sequence[ImageArray], gap: int = 0) -> ImageArray:
    """Stack images vertically on white, as wide as the widest."""
    width = max(image.shape[1] for image in images)
    padded = [_pad(image, image.shape[0] + gap, width) for image in images[:-1]]
    return np.concatenate([*padded, _pad(images[-1], images[-1].shape[0], width)])


def side_by_side(*images: ImageArray) -> ImageArray:
    """Put images in a row on white, aligned at the top, `GAP` pixels apart."""
    return stack([image.swapaxes(0, 1) for image in images], GAP).swapaxes(0, 1).copy()


def _pad(image: ImageArray, height: int, width: int) -> ImageArray:
    missing = ((0, height - image.shape[0]), (0, width - image.shape[1]), (0, 0))
    return np.pad(image, missing, constant_values=255)


def match_lines(
    a: ImageArray, b: ImageArray, in_a: NDArray[np.floating], in_b: NDArray[np.floating]
) -> ImageArray:
    """Draw two images side by side and a line for each match, colored by its vertical position in A.

    `in_a` and `in_b` are y and x of the matches [matches, 2], in pixels.
    """
    from matplotlib import colormaps

    sheet = side_by_side(a, b)
    colors = colormaps["turbo"](in_a[:, 0] / a.shape[0], bytes=True)[:, :3].tolist()
    width = max(1, min(sheet.shape[:2]) // 400)
    shift = np.array([0, a.shape[1] + GAP])
    for start, end, color in zip(in_a.round(), (in_b + shift).round(), colors, strict=True):
        first, last = ((int(x), int(y)) for y, x in (start, end))
        cv2.line(sheet, first, last, color, width, cv2.LINE_AA)
        for point in (first, last):
            cv2.circle(sheet, point, 2 * width + 1, (0, 0, 0), -1, cv2.LINE_AA)
            cv2.circle(sheet, point, 2 * width, color, -1, cv2.LINE_AA)
    return sheet


def contact_sheet(rows: Sequence[Sequence[tuple[str, ImageArray]]], *, height: int = 200) -> ImageArray:
    """Draw rows of (title, image) on one white sheet, resized to the same `height` in pixels.

    An image wider than `WIDEST` times its height is lower. Raises ValueError without an image.
    """
    lines = []
    for row in filter(None, rows):
        cells = []
        for title, image in row:
            small = rescale(image, min(height / image.shape[0], WIDEST * height / image.shape[1]))
            cells.append(caption(_pad(small, height, small.shape[1]), title))
        lines.append(side_by_side(*cells))
    if not lines:
        raise ValueError("a contact sheet needs at least one image")
    return np.pad(stack(lines, GAP), ((GAP, GAP), (GAP, GAP), (0, 0)), constant_values=255)


def rescale(image: ImageArray, scale: float) -> ImageArray:
    """Resize an image by a factor; each side keeps at least one pixel."""
    rows, columns = (max(1, round(side * scale)) for side in image.shape[:2])
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, (columns, rows), interpolation=method), dtype=np.uint8)


def save_image(path: Path, image: ImageArray) -> None:
    """Write an image [height, width, 3] as PNG or JPEG, depending on the suffix, whole or not at all."""
    with replace_file(path) as temporary:
        Image.fromarray(np.ascontiguousarray(image)).save(temporary, quality=88)
