"""Read image files: every format becomes uint8 RGB, upright, or one sentence that says why not."""

import contextlib
import importlib
import io
import warnings
from pathlib import Path

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

warnings.filterwarnings("ignore", module=r"PIL\.")  # `read` raises instead


class ImageError(ValueError):
    """An image, or a collection of images, that cannot be read. The message is one sentence."""


def read(
    source: str | Path | bytes, *, max_pixels: int = MAX_PIXELS, name: str | None = None, halve: bool = False
) -> np.ndarray:
    """Read an image as a screen shows it: uint8 [height, width, 3], RGB.

    EXIF orientation is applied. Gray, palette and CMYK become RGB, without color profiles. Transparency
    becomes white. Images of one channel with 16 or 32 bits are stretched from their minimum and maximum to
    0..255. Of animations and multi-page files the first frame is read.

    Args:
        source: Path, or bytes of a file.
        max_pixels: Largest width × height that is decoded; the header is checked before memory is allocated.
        name: Name of the image in messages. Default: the file's name, or "the image".
        halve: Decode a JPEG of up to four times `max_pixels` at half its width and height.

    Raises:
        ImageError: Missing, empty, damaged, cut short, too large, or not one of `FORMATS`.
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
            image.load()
            return _to_rgb(image)
    except Image.DecompressionBombError as error:
        raise ImageError(f"{name} is too large: at most {max_pixels:,} pixels are read") from error
    except UnidentifiedImageError as error:
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


def _to_rgb(image: Image.Image) -> np.ndarray:
    if image.mode == "CMYK" and image.format == "JPEG" and "adobe" not in image.info:
        image = ImageChops.invert(image)  # Pillow inverts the inks of every JPEG, as Adobe stores them
    with contextlib.suppress(Exception):  # a damaged EXIF block
        ImageOps.exif_transpose(image, in_place=True)
    if image.mode.startswith(("I", "F")):
        return np.repeat(_stretch(np.asarray(image))[:, :, None], 3, axis=2)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))  # convert copies RGB, too


def _stretch(values: np.ndarray) -> np.ndarray:
    """Map the finite minimum to 0 and the maximum to 255, uint8; a constant is taken as 16-bit."""
    finite = values[np.isfinite(values)].astype(np.float64)
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    if low == high:
        low, high = 0.0, 65535.0
    scaled = (values.astype(np.float64) - low) / (high - low) * 255
    return np.nan_to_num(scaled, nan=0.0).clip(0, 255).round().astype(np.uint8)
