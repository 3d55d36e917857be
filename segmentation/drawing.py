"""Drawing: heat maps, colored heads, outlined masks, points, boxes, captions, contact sheets.

Images are uint8 RGB [height, width, 3]; maps are on a patch grid and are enlarged here.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import cv2
import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from dino_model.files import replacing
from segmentation.masks import Box, ImageArray, Interpolation, Mask, enlarge, keep_mass_of_maps

# The first eight are Okabe and Ito's seven and a violet; each further one is the color of an 18-step RGB
# cube, neither dark, pale nor gray, that lies farthest (CIEDE2000) from those before it, to normal,
# deuteranope and protanope eyes alike.
_HEAD_COLORS = (
    (213, 94, 0), (86, 180, 233), (240, 228, 66), (0, 158, 115), (204, 121, 167), (140, 60, 255),
    (230, 159, 0), (0, 114, 178), (150, 0, 45), (90, 255, 240), (90, 60, 105), (255, 180, 165),
    (15, 60, 180), (255, 75, 105), (195, 15, 0), (0, 90, 60), (120, 135, 255), (165, 75, 120),
    (45, 225, 255), (105, 135, 75), (150, 210, 105), (255, 165, 195), (30, 150, 150), (255, 225, 165),
)  # fmt: skip


WIDEST = 8  # times its height, of an image on a sheet: one of 1 × 4000 pixels would take gigabytes
BAND = 512  # rows that are drawn at once: whole images of 50 megapixels would take gigabytes
CAP = 98  # percentile of a map from which on all is shown alike, so that one hot patch does not dim the rest

Scale = Literal["median", "capped", "full"]
"""From the median, or from the least value, to the 98th percentile; or from least to greatest."""


def head_colors(count: int) -> NDArray[np.uint8]:
    """Return one fixed RGB color per head: [count, 3]; colors repeat after 24."""
    return np.array(
        [_HEAD_COLORS[head % len(_HEAD_COLORS)] for head in range(count)], dtype=np.uint8
    ).reshape(-1, 3)


def heat_map(
    values: NDArray[np.floating],
    size: tuple[int, int],
    *,
    colormap: str = "inferno",
    value_range: tuple[float, float] | None = None,
    interpolation: Interpolation = "nearest",
) -> ImageArray:
    """Draw a map on the patch grid as an image in false colors.

    Args:
        values: [rows, columns].
        size: height and width of the image.
        colormap: a matplotlib name.
        value_range: values shown by the first and last color; by default the map's own least and greatest.
            Give the same range to maps that are to be compared.
        interpolation: how the grid is enlarged.

    Returns:
        [height, width, 3].

    Raises:
        ValueError: unknown colormap.
    """
    if colormap not in matplotlib.colormaps:
        raise ValueError(
            f"no colormap {colormap!r}; matplotlib has viridis, inferno, magma, cividis, gray and others"
        )
    scaled = enlarge(_to_unit(values, value_range), size, interpolation)
    return color_table(colormap)[(scaled * 255).round().astype(np.uint8)]


def blend(image: ImageArray, layer: ImageArray, opacity: float | NDArray[np.floating]) -> ImageArray:
    """`layer` over `image` with an opacity in [0, 1], one for all pixels or one each: [height, width]."""
    alpha = np.asarray(opacity, dtype=np.float32)
    alpha = np.broadcast_to(alpha[..., None] if alpha.ndim == 2 else alpha, (*image.shape[:-1], 1))
    blended = np.empty_like(image)
    for top in range(0, len(image), BAND):
        band = slice(top, top + BAND)
        blended[band] = np.rint(image[band] * (1 - alpha[band]) + layer[band] * alpha[band])
    return blended


def overlay_heat(
    image: ImageArray,
    values: NDArray[np.floating],
    *,
    opacity: float = 0.6,
    colormap: str = "inferno",
    value_range: tuple[float, float] | None = None,
    interpolation: Interpolation = "bilinear",
) -> ImageArray:
    """Draw a map [rows, columns] in false colors over its image; arguments as `heat_map`."""
    layer = heat_map(
        values, image.shape[:2], colormap=colormap, value_range=value_range, interpolation=interpolation
    )
    return blend(image, layer, opacity)


def display_range(
    values: NDArray[np.floating], scale: Scale = "median", *, diverging: bool = False
) -> tuple[float, float]:
    """Return the values that are drawn as the lowest and highest color.

    Args:
        values: one map, or several that are to be compared: any shape.
        scale: see `Scale`; with "median", half of the image recedes.
        diverging: zero lies in the middle, and the range reaches as far below as above.

    Returns:
        Low and high; least and greatest value where these would be the same.

    Source: docs/images.md compares scales by how much of what is shown lies on the object.
    """
    if diverging:
        size = np.abs(values)
        reach = float(size.max() if scale == "full" else np.percentile(size, CAP))
        return -reach, reach
    least, greatest = float(values.min()), float(values.max())
    low = float(np.median(values)) if scale == "median" else least
    high = greatest if scale == "full" else float(np.percentile(values, CAP))
    return (low, high) if low < high else (least, greatest)


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


def overlay_light(image: ImageArray, shares: NDArray[np.floating], *, opacity: float = 0.8) -> ImageArray:
    """Darken an image where a map is low.

    Args:
        image: [height, width, 3].
        shares: how much each pixel counts, as `levels` gives it: [height, width].
        opacity: of the dark where nothing counts, in [0, 1].
    """
    return blend(image, np.zeros_like(image), opacity * (1 - shares))


def overlay_glow(
    image: ImageArray,
    shares: NDArray[np.floating],
    *,
    opacity: float = 0.8,
    colormap: str = "inferno",
    diverging: bool = False,
) -> ImageArray:
    """Draw a map in false colors over its dimmed gray image; higher values are more opaque.

    Args:
        image: [height, width, 3].
        shares: as `levels` gives them: [height, width].
        opacity: of what counts most, in [0, 1].
        colormap: a matplotlib name.
        diverging: the middle counts for nothing, both ends for most.
    """
    weights = np.abs(2 * shares - 1) if diverging else shares
    layer = color_table(colormap)[(shares * 255).round().astype(np.uint8)]
    return blend(_dimmed(image), layer, opacity * weights)


def overlay_heads(
    image: ImageArray,
    attention: NDArray[np.floating],
    *,
    heads: Sequence[int] | None = None,
    mass: float = 0.6,
    kept: Mask | None = None,
    opacity: float = 0.75,
    interpolation: Interpolation = "bilinear",
) -> ImageArray:
    """Draw every head in its own color over a dimmed gray image.

    A pixel takes the color of the head that attends to it most, each head measured against its own strongest
    patch; the stronger, the more opaque. Only patches within a head's kept mass are colored.

    Args:
        image: [height, width, 3].
        attention: [all heads, rows, columns].
        heads: the heads to show; all by default. A head keeps its color whichever others are shown.
        mass: share of each head's attention that may be colored, in (0, 1].
        kept: the patches that may be, [all heads, rows, columns], where they are known already; `mass` then
            does not matter.
        opacity: of the strongest patches, in [0, 1].
        interpolation: how the grid is enlarged.

    Raises:
        ValueError: as `keep_mass`, or no head chosen.

    Source: Fig. 3 of the paper, "Attention maps from multiple heads"; the colors are our own.
    """
    chosen = list(range(len(attention))) if heads is None else list(heads)
    if not chosen:
        raise ValueError("no head chosen: pass at least one")
    maps = np.asarray(attention, dtype=np.float32)[chosen]
    colored = keep_mass_of_maps(maps, mass) if kept is None else kept[chosen]
    # The square root brings out the middle of the range: attention falls off steeply from its peak.
    strengths = np.sqrt(np.where(colored, maps, 0) / maps.max(axis=(1, 2), keepdims=True))
    size, colors = (image.shape[0], image.shape[1]), head_colors(len(attention))[chosen]
    strongest = enlarge(strengths[0], size, interpolation)  # [height, width]
    layer = np.broadcast_to(colors[0], image.shape).copy()
    for strength, color in zip(strengths[1:], colors[1:], strict=True):  # all at once would take gigabytes
        enlarged = enlarge(strength, size, interpolation)
        layer[enlarged > strongest] = color
        np.maximum(strongest, enlarged, out=strongest)
    return blend(_dimmed(image), layer, opacity * strongest)


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
        image: [height, width, 3].
        masks: [height, width] or [masks, height, width].
        colors: [masks, 3]; the head colors by default.
        opacity: of the tint, in [0, 1].
        contour: width of the outline in pixels, 0 for none.

    Raises:
        ValueError: masks and image differ in size.
    """
    masks = masks[None] if masks.ndim == 2 else masks
    if masks.shape[1:] != image.shape[:2]:
        raise ValueError(f"masks are {masks.shape[1:]}, the image {image.shape[:2]}: enlarge the masks first")
    colors = head_colors(len(masks)) if colors is None else colors
    result = image.copy()
    for mask, color in zip(masks, colors, strict=True):
        result[mask] = blend(result[mask], np.broadcast_to(color, (int(mask.sum()), 3)), opacity)
    for mask, color in zip(masks, colors, strict=True):
        _draw_contour(result, mask, color, contour)
    return result


def draw_point(image: ImageArray, y: int, x: int, color: Sequence[int] = (255, 255, 255)) -> ImageArray:
    """Draw a ring and a dot at one pixel, edged in black."""
    result = image.copy()
    radius = max(4, min(image.shape[:2]) // 50)
    for shade, extra in (((0, 0, 0), 2), (tuple(int(part) for part in color), 0)):
        cv2.circle(result, (x, y), radius, shade, thickness=max(2, radius // 3) + extra, lineType=cv2.LINE_AA)
        cv2.circle(result, (x, y), 1 + extra // 2, shade, thickness=-1, lineType=cv2.LINE_AA)
    return result


def draw_boxes(
    image: ImageArray, boxes: Sequence[Box], colors: NDArray[np.uint8] | None = None
) -> ImageArray:
    """Draw boxes in their colors [boxes, 3] (the head colors by default), edged in black."""
    result = image.copy()
    colors = head_colors(len(boxes)) if colors is None else colors
    width = max(2, min(image.shape[:2]) // 150)
    for box, color in zip(boxes, colors, strict=True):
        corners = (box.left, box.top), (box.right - 1, box.bottom - 1)
        cv2.rectangle(result, *corners, (0, 0, 0), width + 2)
        cv2.rectangle(result, *corners, tuple(int(part) for part in color), width)
    return result


def legend(entries: Sequence[tuple[str, Sequence[int]]], width: int, text_size: int = 16) -> ImageArray:
    """Draw a white strip of colored squares with their names, in lines that fit: [height, width, 3]."""
    font, pad = ImageFont.load_default(text_size), text_size // 2
    places, x, y = [], pad, pad
    for text, _ in entries:
        length = int(font.getlength(text)) + text_size + 3 * pad
        if x > pad and x + length > width:
            x, y = pad, y + text_size + pad
        places.append((x, y))
        x += length
    strip = Image.new("RGB", (width, y + text_size + pad), "white")
    draw = ImageDraw.Draw(strip)
    for (text, color), (x, y) in zip(entries, places, strict=True):
        shade = tuple(int(part) for part in color)
        draw.rectangle((x, y, x + text_size, y + text_size), fill=shade, outline="black")
        draw.text((x + text_size + pad // 2, y + text_size // 2), text, fill="black", font=font, anchor="lm")
    return np.array(strip)


def color_bar(
    colormap: str,
    value_range: tuple[float, float],
    width: int,
    *,
    capped: bool = True,
    percent: bool = False,
) -> ImageArray:
    """Draw a white strip with the colors of a map between its lowest and highest value.

    Args:
        colormap: a matplotlib name.
        value_range: as `display_range` gives it.
        width: of the strip, in pixels; words that do not fit are cut.
        capped: values beyond the range have the colors of its ends.
        percent: the values are shares.

    Returns:
        [height, width, 3].
    """
    size = max(14, width // 40)
    font, pad = ImageFont.load_default(size), size // 2
    numbers = [f"{100 * value:.4g} %" if percent else f"{value:.4g}" for value in value_range]
    ends = [number + word * capped for number, word in zip(numbers, (" or less", " or more"), strict=True)]
    left, right = (int(font.getlength(text)) + 2 * pad for text in ends)
    strip = Image.new("RGB", (width, 2 * size), "white")
    draw = ImageDraw.Draw(strip)
    draw.text((pad, size), ends[0], fill="black", font=font, anchor="lm")
    draw.text((width - pad, size), ends[1], fill="black", font=font, anchor="rm")
    if (room := width - left - right) > 0:
        strip.paste(Image.fromarray(color_table(colormap)[None]).resize((room, size)), (left, pad))
    return np.array(strip)


def color_table(colormap: str) -> ImageArray:
    """Return the 256 colors of a matplotlib color map: [256, 3]."""
    return (matplotlib.colormaps[colormap](np.arange(256))[:, :3] * 255).round().astype(np.uint8)


def with_legend(image: ImageArray, entries: Sequence[tuple[str, Sequence[int]]]) -> ImageArray:
    """Append a `legend` below an image."""
    return stack([image, legend(entries, image.shape[1])])


def caption(image: ImageArray, text: str, text_size: int = 16) -> ImageArray:
    """Put a line of text above an image, shortened with an ellipsis if it does not fit."""
    font, width = ImageFont.load_default(text_size), image.shape[1]
    shown = text
    while shown and font.getlength(shown) > width - text_size // 2:
        shown = shown.removesuffix("…")[:-1] + "…" if len(shown) > 1 else ""
    strip = Image.new("RGB", (width, text_size + text_size // 2), "white")
    ImageDraw.Draw(strip).text(
        (text_size // 4, text_size * 3 // 4), shown, fill="black", font=font, anchor="lm"
    )
    return np.concatenate([np.array(strip), image])


def stack(images: Sequence[ImageArray], gap: int = 0) -> ImageArray:
    """Stack images vertically on white, as wide as the widest."""
    width = max(image.shape[1] for image in images)
    padded = [_padded(image, image.shape[0] + gap, width) for image in images[:-1]]
    return np.concatenate([*padded, _padded(images[-1], images[-1].shape[0], width)])


def side_by_side(*images: ImageArray, gap: int = 8) -> ImageArray:
    """Put images in a row on white, aligned at the top."""
    height = max(image.shape[0] for image in images)
    wide = [_padded(image, height, image.shape[1] + gap) for image in images[:-1]]
    return np.concatenate([*wide, _padded(images[-1], height, images[-1].shape[1])], axis=1)


def color_map(colors: NDArray[np.floating], size: tuple[int, int]) -> ImageArray:
    """Draw colors of patches [rows, columns, 3], 0 to 1, as an image of height × width."""
    return np.stack(
        [(enlarge(one, size) * 255).round().astype(np.uint8) for one in np.moveaxis(colors, -1, 0)], -1
    )


def line_colors(in_a: NDArray[np.floating], height: int) -> NDArray[np.uint8]:
    """Return a color for each match by its vertical position in A, of the given height: [matches, 3]."""
    hues: NDArray[np.uint8] = matplotlib.colormaps["turbo"](in_a[:, 0] / height, bytes=True)[:, :3]
    return hues


def match_lines(
    a: ImageArray,
    b: ImageArray,
    in_a: NDArray[np.floating],
    in_b: NDArray[np.floating],
    colors: NDArray[np.uint8],
    gap: int = 8,
) -> ImageArray:
    """Draw two images side by side and a line for each match.

    Args:
        a, b: images of any sizes.
        in_a, in_b: y and x of the matches [matches, 2], in pixels.
        colors: of the lines [matches, 3], such as `line_colors`.
    """
    sheet = side_by_side(a, b, gap=gap)
    shift = np.array([0, a.shape[1] + gap])
    width = max(1, min(sheet.shape[:2]) // 400)
    for start, end, hue in zip(in_a.round(), (in_b + shift).round(), colors.tolist(), strict=True):
        first, last = ((int(x), int(y)) for y, x in (start, end))
        cv2.line(sheet, first, last, hue, width, cv2.LINE_AA)
        for point in (first, last):
            cv2.circle(sheet, point, 2 * width + 1, (0, 0, 0), -1, cv2.LINE_AA)
            cv2.circle(sheet, point, 2 * width, hue, -1, cv2.LINE_AA)
    return sheet


def attention_sheet(
    image: ImageArray,
    attention: NDArray[np.floating],
    kept: Mask,
    point: tuple[int, int] | None = None,
    point_attention: NDArray[np.floating] | None = None,
    point_kept: Mask | None = None,
    *,
    height: int = 200,
) -> ImageArray:
    """Draw all heads of one image on a sheet: colored heads, heat maps, masks, and the attention of a point.

    Args:
        image: [height, width, 3].
        attention: of [CLS]: [heads, rows, columns].
        kept: patches of each head's mask: [heads, rows, columns].
        point: y and x of a pixel, drawn where its attention is shown.
        point_attention, point_kept: of that point: [heads, rows, columns].
        height: of each image on the sheet, in pixels.
    """
    small = _fitting(image, height)
    size = (small.shape[0], small.shape[1])
    masks = enlarge(kept, size)
    colors = head_colors(len(attention))
    colored = overlay_heads(small, attention, kept=kept)
    rows = [
        [("image", small), ("all heads", colored)],
        [(f"head {head}", heat_map(values, size)) for head, values in enumerate(attention)],
        [
            (
                f"mask {head}: {mask.mean():.0%} of the area",
                overlay_masks(small, mask, colors=color, contour=1),
            )
            for head, (mask, color) in enumerate(zip(masks, colors[:, None], strict=True))
        ],
    ]
    if point is not None and point_attention is not None:
        y, x = (at * new // old for at, new, old in zip(point, size, image.shape[:2], strict=True))
        colored = overlay_heads(small, point_attention, kept=point_kept)
        heats = [overlay_heat(small, values) for values in point_attention]
        rows[0].append((f"point y={point[0]}, x={point[1]}", draw_point(colored, y, x)))
        rows.append([(f"point, head {head}", draw_point(heat, y, x)) for head, heat in enumerate(heats)])
    return contact_sheet(rows, height=height)


def contact_sheet(
    rows: Sequence[Sequence[tuple[str, ImageArray]]], *, height: int = 160, gap: int = 8
) -> ImageArray:
    """Draw rows of titled images on one white sheet, resized to the same height.

    Args:
        rows: each a sequence of (title, image [any height, any width, 3]).
        height: of every image, in pixels; one that would be wider than `WIDEST` times that is less high.
        gap: white space around images, in pixels.

    Raises:
        ValueError: no image at all.
    """
    lines = []
    for row in rows:
        cells = [caption(_on_white(image, height), title, text_size=14) for title, image in row]
        if cells:
            padded = [_padded(cell, cell.shape[0], cell.shape[1] + gap) for cell in cells]
            lines.append(np.concatenate(padded, axis=1))
    if not lines:
        raise ValueError("a contact sheet needs at least one image")
    sheet = stack(lines, gap)
    return np.pad(sheet, ((gap, gap), (gap, 0), (0, 0)), constant_values=255)


def check_suffix(path: Path) -> str:
    """Return the Pillow format of an image file name.

    Raises:
        ValueError: Not .png, .jpg or .jpeg.
    """
    format_name = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}.get(path.suffix.lower())
    if format_name is None:
        raise ValueError(f"{path} is not the name of an image; expected a .png or .jpg file")
    return format_name


def save_image(path: Path, image: ImageArray) -> None:
    """Write an image [height, width, 3] as PNG or JPEG, as its suffix says, whole or not at all."""
    format_name = check_suffix(path)
    with replacing(path) as beside:
        Image.fromarray(np.ascontiguousarray(image)).save(beside, format=format_name, quality=88)


def save_png(path: Path, image: ImageArray) -> None:
    """Write an image [height, width, 3] or a gray one [height, width] as PNG, whole or not at all."""
    with replacing(path) as beside:
        Image.fromarray(np.ascontiguousarray(image)).save(beside, format="PNG")


def _to_unit(values: NDArray[Any], value_range: tuple[float, float] | None) -> NDArray[np.float32]:
    """Scale values from their range to [0, 1]; a constant map becomes 0."""
    low, high = value_range if value_range is not None else (float(values.min()), float(values.max()))
    scaled = (np.asarray(values, dtype=np.float64) - low) / (high - low if high > low else 1.0)
    return scaled.clip(0, 1).astype(np.float32)


def _dimmed(image: ImageArray) -> ImageArray:
    """Return the image in gray at half its brightness."""
    dimmed = np.empty_like(image)
    for top in range(0, len(image), BAND):
        band = slice(top, top + BAND)
        dimmed[band] = np.rint(image[band] @ np.array([0.299, 0.587, 0.114]) * 0.5)[..., None]
    return dimmed


def _draw_contour(image: ImageArray, mask: Mask, color: NDArray[np.uint8], width: int) -> None:
    """Outline a mask in place: its color, with a thin dark line outside it."""
    if width == 0:
        return
    lines, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
    cv2.drawContours(image, lines, -1, (0, 0, 0), width + 2)
    cv2.drawContours(image, lines, -1, tuple(int(part) for part in color), width)


def _fitting(image: ImageArray, height: int) -> ImageArray:
    """Resize an image to this height, or to `WIDEST` times it in width if that is smaller."""
    scale = min(height / image.shape[0], WIDEST * height / image.shape[1])
    rows, columns = (max(1, round(side * scale)) for side in image.shape[:2])
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, (columns, rows), interpolation=method), dtype=np.uint8)


def _on_white(image: ImageArray, height: int) -> ImageArray:
    """Resize an image as `_fitting` and pad it with white to the height."""
    fitting = _fitting(image, height)
    return _padded(fitting, height, fitting.shape[1])


def _padded(image: ImageArray, height: int, width: int) -> ImageArray:
    missing = ((0, height - image.shape[0]), (0, width - image.shape[1]), (0, 0))
    return np.pad(image, missing, constant_values=255)
