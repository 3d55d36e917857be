"""Read image files: every format becomes uint8 RGB, upright, or one sentence that says why not."""

import contextlib
import importlib
import io
import posixpath
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageChops, ImageOps, UnidentifiedImageError, features

with contextlib.suppress(ImportError):  # an optional decoder of HEIC
    importlib.import_module("pillow_heif").register_heif_opener()

SUFFIXES_OF: dict[str, tuple[str, ...]] = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "PNG": (".png",),
    "WEBP": (".webp",),
    "BMP": (".bmp", ".dib"),
    "TIFF": (".tif", ".tiff"),
    "GIF": (".gif",),
    "PPM": (".ppm", ".pgm", ".pbm", ".pnm", ".pfm"),
    "AVIF": (".avif",) if features.check("avif") else (),
    "HEIF": (".heic", ".heif") if "HEIF" in Image.OPEN else (),
}
FORMATS = tuple(name for name, suffixes in SUFFIXES_OF.items() if suffixes)
SUFFIXES = {suffix for suffixes in SUFFIXES_OF.values() for suffix in suffixes}
IMAGENET_MEAN: tuple[float, float, float] = (0.485, 0.456, 0.406)  # red, green, blue; on a scale of 0 to 1
IMAGENET_STD: tuple[float, float, float] = (0.229, 0.224, 0.225)
MAX_PIXELS = 100_000_000  # 300 MB as RGB
TIFF_STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_KIND, _BITS, _PHOTOMETRIC, _SAMPLES = 254, 258, 262, 277  # tags of TIFF
_PLANES, _EXTRA_SAMPLES, _SAMPLE_FORMAT, _NO_DATA = 284, 338, 339, 42113
_SIGNED = 2  # value of _SAMPLE_FORMAT
_SMALLER_COPY, _MASK = 1, 4  # bits of _KIND
_COLORS = {2: 3, 5: 4, 6: 3, 8: 3}  # channels of colors by the tag _PHOTOMETRIC; others have one
_LEAST_BRIGHT = 16  # of 255; upper 8 bits of 4,096
_LEAST_RANGE = 1 / 8  # of gray values without their minimum or maximum: 32 grays

warnings.filterwarnings("ignore", module=r"PIL\.")  # `read` raises instead


class ImageError(ValueError):
    """An image, or a collection of images, that cannot be read. The message is one sentence."""


def suffix_of(name: str) -> str:
    """Return the suffix of a name in lower case, with its dot."""
    return posixpath.splitext(name)[1].lower()


def read(
    source: str | Path | bytes,
    *,
    max_pixels: int = MAX_PIXELS,
    name: str | None = None,
    halve: bool = False,
    at_least: int = 0,
) -> np.ndarray:
    """Read an image as a screen shows it: uint8 [height, width, 3], RGB.

    EXIF orientation is applied. Gray, palette and CMYK become RGB, without color profiles. Transparency
    becomes white. Images of one channel with 16 or 32 bits are stretched from their minimum and maximum to
    0..255, without the value that a GeoTIFF declares as missing data. Colors of 16 bits are divided by 256.
    Of animations the first frame is read.

    Args:
        source: Path, or bytes of a file.
        max_pixels: Largest width × height that is decoded; the header is checked before memory is allocated.
        name: Name of the image in messages. Default: the file's name, or "the image".
        halve: Decode a JPEG of up to four times `max_pixels` at half its width and height.
        at_least: Decode a JPEG at 1/2, 1/4 or 1/8 of its size if its short side stays at least this long, in
            pixels. 0: at its full size.

    Raises:
        ImageError: Missing, empty, damaged, cut short, too large, or not one of `FORMATS`. Channels that are
            no colors, several pages, gray of 16 bits with alpha, or colors of 16 bits of which no more than
            a thousandth is above a sixteenth of their range: `read_channels` reads these files.
    """
    if isinstance(source, bytes):
        name = name or "the image"
    else:
        name = name or Path(source).name
        source = read_file(Path(source), name)
    if not source:
        raise ImageError(f"{name} is empty (0 bytes)")
    if source.startswith((b"version https://git-lfs", b"/annex/objects/")):
        raise ImageError(f"{name} is a pointer, not the image: run `git lfs pull` or `git annex get`")
    raise_pillow_limit(max_pixels)
    try:
        with Image.open(io.BytesIO(source), formats=FORMATS) as image:
            width, height = image.size
            if width * height > max_pixels and halve and not image.info.get("progressive"):
                image.draft(None, (width // 2, height // 2))  # JPEG only; progressive ones need all memory
                width, height = image.size
            if width * height > max_pixels:
                raise Image.DecompressionBombError
            if at_least:
                image.draft(None, (at_least, at_least))  # JPEG only
            _check_bands(image, source)
            _check_pages(image)
            image.load()
            _check_depth(image, source)
            return _to_rgb(image)
    except ImageError as error:
        raise ImageError(f"{name} {error}") from None
    except Image.DecompressionBombError as error:
        raise ImageError(f"{name} is too large: at most {max_pixels:,} pixels are read") from error
    except UnidentifiedImageError as error:
        if source.startswith(TIFF_STARTS):
            raise ImageError(f"{name} {_describe_tiff(source)}") from error
        raise ImageError(f"{name} is not an image of a known format ({', '.join(FORMATS)})") from error
    except Exception as error:  # decoders raise errors of any kind on damaged files
        raise ImageError(f"{name} is damaged or cut short: {error}") from error


def raise_pillow_limit(pixels: int) -> None:
    """Let Pillow open images of this size, which `read` and `read_channels` check themselves."""
    if Image.MAX_IMAGE_PIXELS is not None and pixels > 2 * Image.MAX_IMAGE_PIXELS:
        Image.MAX_IMAGE_PIXELS = pixels


def read_file(path: Path, name: str) -> bytes:
    """Read the bytes of a file; raise ImageError with `name` if that fails."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ImageError(f"{name} cannot be opened: {error.strerror or error}") from error


def no_data(text: str) -> float | None:
    """Parse a GeoTIFF's declaration of missing data; None if it is no number."""
    try:
        return float(text.strip("\0 "))
    except ValueError:
        return None


def _tag(image: Image.Image, number: int, default: Any) -> Any:
    """Return a tag of a TIFF; the default for other formats, too."""
    return getattr(image, "tag_v2", {}).get(number, default)


def _check_bands(image: Image.Image, source: bytes) -> None:
    """Refuse channels that a file does not declare, and values that Pillow would lose."""
    samples, bits = _tag(image, _SAMPLES, 1), max(_tag(image, _BITS, (8,)))
    extra = samples - _COLORS.get(_tag(image, _PHOTOMETRIC, 1), 1)
    is_declared = set(_tag(image, _EXTRA_SAMPLES, (0,))) <= {1, 2}
    is_gray_with_alpha = image.format == "PNG" and source[24:26] == b"\x10\x04"  # read as RGBA
    for is_lost, what, channels in (
        (samples > 1 and _tag(image, _PLANES, 1) == 2 and bits > 8, "planes of more than 8 bits", samples),
        (_SIGNED in _tag(image, _SAMPLE_FORMAT, ()) and bits == 8, "signed values of 8 bits", samples),
        (extra > 0 and not is_declared, f"{samples} channels, the last not declared as alpha", samples),
        (is_gray_with_alpha, "gray of 16 bits with alpha", 4),
        (image.mode[0] == "I" and image.has_transparency_data, "gray of 16 bits with a transparent value", 1),
    ):
        if is_lost:
            raise ImageError(f"has {what}: pass --channels {channels} to read them as they are stored")


def _check_pages(image: Image.Image) -> None:
    """Refuse a TIFF whose second page is neither smaller nor declared as a copy or mask of the first."""
    pages = getattr(image, "n_frames", 1)
    if image.format != "TIFF" or pages == 1:
        return
    size, samples = image.size, _tag(image, _SAMPLES, 1)
    image.seek(1)
    is_smaller = image.width < size[0] and image.height < size[1]
    if not is_smaller and not _tag(image, _KIND, 0) & (_SMALLER_COPY | _MASK):
        is_stack = samples == 1 and image.size == size
        option = f"pass --channels {pages} to read them as channels, or " if is_stack else ""
        raise ImageError(f"has {pages} pages: {option}save each as a file")
    image.seek(0)


def is_deep(image: Image.Image, source: bytes) -> bool:
    """Return whether a PNG, PPM or TIFF has 16 bits, of whose colors Pillow keeps the upper 8."""
    if image.format == "PPM":
        header = re.match(rb"P[36](?:\s+(?:#[^\n]*\s+)*(\d+)){3}", source)  # width, height, largest value
        return header is not None and int(header[1]) > 255
    return (source[24] if image.format == "PNG" else max(_tag(image, _BITS, (8,)))) == 16


def _check_depth(image: Image.Image, source: bytes) -> None:
    """Refuse colors of 16 bits, of which Pillow keeps the upper 8, that would be nearly black."""
    if image.mode in ("RGB", "RGBA") and is_deep(image, source):
        bands, missing = image.getbands(), no_data(str(_tag(image, _NO_DATA, "")))
        values = np.asarray(image)[..., :3]
        values = values if missing is None else values[values != missing // 256]
        if (values >= _LEAST_BRIGHT).sum() * 1000 <= values.size:
            raise ImageError(
                "has 16 bits and values in a sixteenth of their range, so it would be nearly black: pass "
                f"--channels {len(bands)} to scale it by its own values"
            )


def _describe_tiff(source: bytes) -> str:
    """Say what a TIFF that Pillow does not decode holds."""
    import tifffile

    try:
        with tifffile.TiffFile(io.BytesIO(source)) as file:
            page: Any = file.pages[0]
            shape, channels, dtype = page.shape, page.samplesperpixel, page.dtype
    except Exception:  # tifffile raises errors of any kind on damaged files
        return "is a damaged TIFF"
    return (
        f"is a TIFF of shape {shape} and type {dtype}, which is no gray or RGB image: pass "
        f"--channels {channels} to read it"
    )


def _to_rgb(image: Image.Image) -> np.ndarray:
    if image.mode == "CMYK" and image.format == "JPEG" and "adobe" not in image.info:
        image = ImageChops.invert(image)  # Pillow inverts the inks of every JPEG, as Adobe stores them
    with contextlib.suppress(Exception):  # a damaged EXIF block
        ImageOps.exif_transpose(image, in_place=True)
    if image.mode.startswith(("I", "F")):
        gray = _stretch(np.asarray(image), no_data(str(_tag(image, _NO_DATA, ""))))
        gray = 255 - gray if _tag(image, _PHOTOMETRIC, 1) == 0 else gray  # white is zero
        return np.repeat(gray[:, :, None], 3, axis=2)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))  # convert copies RGB, too


def _stretch(values: np.ndarray, missing: float | None = None) -> np.ndarray:
    """Map the finite minimum to 0 and the maximum to 255, uint8; a constant is taken as 16-bit.

    Pixels with the value `missing` become 0 and do not count. ImageError: all other values than the minimum,
    or the maximum, are in an eighth of the range.
    """
    values = values.astype(np.float64)
    values[values == missing] = np.nan
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    second, last = finite[finite > low].min(initial=high), finite[finite < high].max(initial=low)
    for value, width in ((low, high - second), (high, last - low)):
        if 0 < width < (high - low) * _LEAST_RANGE:
            raise ImageError(
                f"has {value:g} in addition to values {width:g} apart, which would share few grays: declare"
                " it as missing data (GDAL_NODATA), replace it by NaN, or pass --channels 1 if it is a value"
            )
    if low == high:
        low, high = 0.0, 65535.0
    scaled = (values - low) / (high - low) * 255
    return np.nan_to_num(scaled, nan=0.0).clip(0, 255).round().astype(np.uint8)
