"""Decode image files to uint8 tensors: JPEGs by torchvision, which is faster, all others by Pillow."""

import io
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torchvision.io import ImageReadMode, decode_jpeg

from dino_model import images

_ORIENTATION = 0x0112


def decode(data: bytes, name: str) -> Tensor:
    """Decode an image file: uint8 [3, height, width].

    Raises:
        ImageError: As `dino_model.images.read`.
    """
    if file := read_jpeg(data):
        try:
            return decode_jpeg(file.data, ImageReadMode.RGB)
        except RuntimeError:
            pass  # Pillow reports what is wrong
    return torch.from_numpy(images.read(data, name=name)).permute(2, 0, 1)


class JpegFile(NamedTuple):
    """A whole, upright JPEG of gray or RGB."""

    data: Tensor
    """uint8 [bytes]."""
    header: Tensor
    """Empty tensor [3, height, width] that has the size of the image."""


def read_jpeg(data: bytes) -> JpegFile | None:
    """Return a whole, upright JPEG of gray or RGB; None for all other files.

    torchvision would invent the missing part of a truncated JPEG.
    """
    if not data.startswith(b"\xff\xd8") or not data.rstrip(b"\0").endswith(b"\xff\xd9"):
        return None
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as header:
            width, height = header.size
            upright = header.getexif().get(_ORIENTATION, 1) == 1
            plain = upright and header.mode in ("L", "RGB") and width * height <= images.MAX_PIXELS
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError):
        return None
    content = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return JpegFile(content, torch.empty(3, height, width, device="meta")) if plain else None


def decode_batch(
    data: Tensor,
    lengths: Sequence[int],
    canvas: Tensor,
    device: torch.device,
    to_canvas: Callable[[Tensor], Tensor],
) -> Tensor:
    """Decode JPEGs on a device, by nvJPEG on a CUDA device, and resize them.

    Args:
        data: Files one after the other, uint8 [bytes], on the host.
        lengths: Bytes of each image's file; 0: the image is in `canvas` already.
        canvas: Images that a worker decoded and resized, uint8 [batch, 3, side, side].
        device: Where to decode.
        to_canvas: Resizes an image to [3, side, side].

    Returns:
        uint8 [batch, 3, side, side] on the device.
    """
    files = [file for file in data.split(list(lengths)) if len(file)]
    decoded = iter(decode_jpeg(files, ImageReadMode.RGB, device=device))
    pairs = zip(lengths, canvas, strict=True)
    return torch.stack([to_canvas(next(decoded)) if length else own for length, own in pairs])
