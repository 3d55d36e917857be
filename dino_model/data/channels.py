"""Images of N channels: gray, 16-bit and multispectral TIFF, .npy arrays.

They become uint8 like every image: `ChannelRange` says which values of each channel become 0 and 255. RGB
images, read by `dino_model.data.images.read`, are not touched by anything here.
"""

import io
import math
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cv2
import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image, ImageOps

from dino_model.data.images import (
    FORMATS,
    MAX_PIXELS,
    TIFF_STARTS,
    ImageError,
    is_deep,
    no_data,
    raise_pillow_limit,
)
from dino_model.runtime.errors import SettingError

ARRAY_SUFFIX = ".npy"
MEASURED_IMAGES = 1000
"""Images, at even distances, that statistics are computed from."""
_MEASURED_PIXELS = 4096  # of an image, at even distances
_PERCENTILES = (0.1, 99.9)
_HEADER_LOCK = threading.Lock()


@dataclass(frozen=True)
class ChannelRange:
    """Values of each channel that become 0 and 255; values beyond them are clipped."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.low)

    def to_uint8(self, values: NDArray[Any]) -> NDArray[np.uint8]:
        """Scale an array [..., channels]; NaN, as files mark missing data, becomes 0."""
        low, high = np.array(self.low, np.float32), np.array(self.high, np.float32)
        scaled = (values.astype(np.float32) - low) * (255 / (high - low))
        return np.nan_to_num(scaled, nan=0.0, posinf=255.0).clip(0, 255).round().astype(np.uint8)

    def read(self, data: bytes, name: str, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
        """Read an image file: uint8 [height, width, channels]; errors as `read_channels`."""
        return self.to_uint8(read_channels(data, len(self), name, max_pixels))


class ChannelStatistics(NamedTuple):
    """Range of each channel, then mean and standard deviation on the scale of 0 to 1 that it defines."""

    range: ChannelRange
    mean: tuple[float, ...]
    std: tuple[float, ...]


def measure_channels(images: Iterable[NDArray[Any]]) -> ChannelStatistics:
    """Compute the statistics of images [height, width, channels] of any real type.

    The range is 0 to 255 for images of 8 bits, else the percentiles 0.1 and 99.9 of each channel.

    Raises:
        SettingError: No image, or a channel that has one value only.
    """
    samples, bits8 = [], True
    for image in images:
        pixels = image.reshape(-1, image.shape[2])
        samples.append(pixels[:: max(1, len(pixels) // _MEASURED_PIXELS)].astype(np.float32))
        bits8 = bits8 and image.dtype == np.uint8
    if not samples:
        raise SettingError("no readable image to compute the range, mean and deviation of the channels from")
    values = np.concatenate(samples)
    values[~np.isfinite(values)] = np.nan
    low, high = np.nanpercentile(values, _PERCENTILES, axis=0)
    if constant := np.flatnonzero(~(low < high)).tolist():
        channel = constant[0]
        raise SettingError(f"channel {channel} has the value {low[channel]:g} everywhere: leave it out")
    if bits8:
        low, high = np.zeros_like(low), np.full_like(high, 255)
    measured = ChannelRange(tuple(low.tolist()), tuple(high.tolist()))
    shares = measured.to_uint8(values) / np.float64(255)
    mean, std = (tuple(np.round(stat, 6).tolist()) for stat in (shares.mean(axis=0), shares.std(axis=0)))
    return ChannelStatistics(measured, mean, std)


def read_channels(data: bytes, channels: int, name: str, max_pixels: int = MAX_PIXELS) -> NDArray[Any]:
    """Read an image file as it is stored: [height, width, channels] of the file's type.

    TIFF (bands in one page or one per page) and .npy arrays may have the channels first or last. The value
    that a GeoTIFF of more than 8 bits declares as missing data becomes NaN. Of other formats, a color image
    becomes gray if one channel is wanted.

    Raises:
        ImageError: Damaged, too large, of another number of channels, or not of numbers.
    """
    try:
        if data.startswith(b"\x93NUMPY"):
            with _HEADER_LOCK:  # NumPy calls ast.literal_eval; before 3.12.2 threads disturb it (gh-106905)
                array = np.load(io.BytesIO(data), allow_pickle=False)
            _check_size(array.shape, max_pixels * channels)
        elif data.startswith(TIFF_STARTS):
            array = _read_tiff(data, max_pixels * channels)
        else:
            array = _read_pillow(data, channels, max_pixels)
    except Exception as error:  # decoders raise errors of any kind on damaged files
        raise ImageError(f"{name} is damaged, too large or of no known format: {error}") from error
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim == 3 and array.shape[2] != channels and array.shape[0] == channels:
        array = np.moveaxis(array, 0, 2)
    if array.ndim != 3 or array.shape[2] != channels or not array.size:
        raise ImageError(f"{name} has the shape {array.shape}, expected {channels} channels")
    if array.dtype.kind not in "buif":
        raise ImageError(f"{name} holds values of type {array.dtype}, expected numbers")
    return array


def display(image: NDArray[np.uint8], channels: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Choose three channels of an image [height, width, channels] as red, green and blue."""
    return np.ascontiguousarray(image[..., list(channels)])


def parse_channels(text: str | None, channels: int) -> tuple[int, int, int]:
    """Parse `R,G,B`; by default the first three channels, or the first alone where there are fewer."""
    if text is None:
        return (0, 1, 2) if channels >= 3 else (0, 0, 0)
    parts = text.split(",")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) < channels for part in parts):
        raise SettingError(f"--show is {text!r}, expected three of the channels 0 to {channels - 1}: 3,2,1")
    red, green, blue = map(int, parts)
    return red, green, blue


def _read_tiff(data: bytes, most: int) -> NDArray[Any]:
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        series = file.series[0]
        _check_size(series.shape, most)
        values = np.asarray(series.asarray())
        tag = file.pages.first.tags.get("GDAL_NODATA")
    missing = no_data(str(tag.value)) if tag else None
    if missing is None or values.dtype == np.uint8:
        return values
    return np.where(values == missing, np.nan, values.astype(np.float64))


def _read_pillow(data: bytes, channels: int, most: int) -> NDArray[Any]:
    raise_pillow_limit(most)
    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        _check_size(image.size, most)
        if is_deep(image, data) and channels != 1:  # Pillow reads 16-bit colors as 8-bit
            decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
            if decoded is None:
                raise ValueError(f"the {image.format} cannot be decoded")
            return np.asarray(decoded[..., [2, 1, 0, 3][: decoded.shape[2]]])
        upright = ImageOps.exif_transpose(image)
        if channels == 1 and len(upright.getbands()) > 1:
            upright = upright.convert("L")
        return np.asarray(upright.convert("RGB") if upright.mode == "P" else upright)


def _check_size(shape: Sequence[int], most: int) -> None:
    if not 0 <= math.prod(shape) <= most:
        raise ValueError(f"found {math.prod(shape):,} values, at most {most:,} are read")
