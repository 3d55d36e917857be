"""Files as tensors: what Pillow makes of them, whoever decodes."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from dino_model import images
from dino_model.images import ImageError
from training import data as decoding
from training.data import decode


def saved(mode="RGB", kind="JPEG", **options):
    ramp = np.linspace(0, 255, 40 * 30 * 3).reshape(30, 40, 3).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(ramp).convert(mode).save(stream, kind, **options)
    return stream.getvalue()


def turned():
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(exif=exif)


@pytest.mark.parametrize(
    ("data", "fast"),
    [
        (saved(), True),
        (saved("L"), True),
        (saved("CMYK"), False),
        (turned(), False),
        (saved(kind="PNG"), False),
        (saved(kind="WEBP", lossless=True), False),
    ],
)
def test_decode_equals_pillow(data, fast, monkeypatch):
    decoded, honest = [], decoding.decode_jpeg
    monkeypatch.setattr(decoding, "decode_jpeg", lambda *a: decoded.append(1) or honest(*a))
    found = decode(data, "a picture")
    expected = images.read(data)
    assert (found.dtype, tuple(found.shape)) == (torch.uint8, (3, *expected.shape[:2]))
    assert np.abs(found.permute(1, 2, 0).numpy().astype(int) - expected).max() <= 2
    assert bool(decoded) == fast


@pytest.mark.parametrize("data", [saved()[:-300], b"", b"\xff\xd8 no picture \xff\xd9"])
def test_decode_of_a_broken_file_raises(data):
    with pytest.raises(ImageError, match="a picture is"):
        decode(data, "a picture")
