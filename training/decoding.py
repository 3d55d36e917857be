"""Picture files as uint8 tensors: JPEGs by torchvision, which takes less time, all else by Pillow."""

import io

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
    if _is_plain_jpeg(data):
        try:
            return decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB)
        except RuntimeError:
            pass  # Pillow says what is wrong
    return torch.from_numpy(images.read(data, name=name)).permute(2, 0, 1)


def _is_plain_jpeg(data: bytes) -> bool:
    """A whole, upright JPEG of grey or RGB; of one that is cut short torchvision makes up the rest."""
    if not data.startswith(b"\xff\xd8") or not data.rstrip(b"\0").endswith(b"\xff\xd9"):
        return False
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as header:
            width, height = header.size
            upright = header.getexif().get(_ORIENTATION, 1) == 1
            return upright and header.mode in ("L", "RGB") and width * height <= images.MAX_PIXELS
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError):
        return False
