"""Picture files as uint8 tensors: JPEGs by torchvision, which takes less time, all else by Pillow."""

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
    """The picture as `images.read` gives it, but as uint8 [3, height, width].

    Raises:
        ImageError: as `images.read`.
    """
    if _plain_jpeg_size(data):
        try:
            return decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB)
        except RuntimeError:
            pass  # Pillow says what is wrong
    return torch.from_numpy(images.read(data, name=name)).permute(2, 0, 1)


class File(NamedTuple):
    """A plain JPEG that is decoded on the device."""

    data: Tensor
    """uint8 [bytes]."""
    header: Tensor
    """Empty tensor [3, height, width] that has the size of the image."""


def jpeg_file(data: bytes) -> File | None:
    """Return a whole, upright JPEG of gray or RGB for `decode_batch`; None: `decode` has to read it."""
    size = _plain_jpeg_size(data)
    if size is None:
        return None
    width, height = size
    return File(
        torch.frombuffer(bytearray(data), dtype=torch.uint8), torch.empty(3, height, width, device="meta")
    )


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


def _plain_jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height of a whole, upright JPEG of gray or RGB; else None.

    Of a JPEG that is cut short torchvision invents the rest.
    """
    if not data.startswith(b"\xff\xd8") or not data.rstrip(b"\0").endswith(b"\xff\xd9"):
        return None
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as header:
            width, height = header.size
            upright = header.getexif().get(_ORIENTATION, 1) == 1
            plain = upright and header.mode in ("L", "RGB") and width * height <= images.MAX_PIXELS
            return (width, height) if plain else None
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError):
        return None
