"""Small collections for the tests of folders, tables and shards."""

import io
import os
import struct
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dino_model.data.classes import LabelOptions
from dino_model.data.collection import Images, open_images
from dino_model.data.images import ImageError


def encode(value: int) -> bytes:
    """Return an image of 5 × 4 pixels of a value."""
    stream = io.BytesIO()
    Image.new("RGB", (5, 4), (value, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


def png(height: int, width: int, depth: int, color: int, rows: np.ndarray | None = None) -> bytes:
    """Return a PNG of samples of `depth` bits and a color type, without filters.

    `rows` has the packed bytes of each row, uint8 [height, bytes]; without them the file has no pixels.
    """
    pixels = b"" if rows is None else zlib.compress(np.pad(rows, ((0, 0), (1, 0))).tobytes())
    header = struct.pack(">2I5B", width, height, depth, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    )


def make_folder(root: Path, names: str | Mapping[str, int]) -> Path:
    """Make images of these values, or files of which the content is the name; a word is a folder with one."""
    if isinstance(names, str):
        words = enumerate(names.split())
        names = " ".join(word if "." in word.strip(".") else f"{word}/{number}.jpg" for number, word in words)
    for name in names.split() if isinstance(names, str) else names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(os.fsencode(name) if isinstance(names, str) else encode(names[name]))
    return root


def make_tar(path: Path, members: Mapping[str, str | bytes | int]) -> Path:
    """Make a tar of files of these texts or bytes, or of images of these values."""
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
            data = encode(data) if isinstance(data, int) else data
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def class_names(images: Images) -> list[str]:
    """Return the classes of each image."""
    return ["|".join(images.label_names(index)) for index in range(len(images))]


def read_labels(source: Path | list[Path], options: str = "", **more: Any) -> str:
    """Return the class of each labeled image behind its split, or the options that a refusal names.

    Options are words such as class_level=top.
    """
    chosen: dict[str, Any] = dict(word.split("=", 1) for word in options.split())
    if "header_row" in chosen:
        chosen["header_row"] = int(chosen["header_row"])
    try:
        images = open_images(source, options=LabelOptions(**chosen, **more)).require_classes()
    except ImageError as error:
        named = {word.strip("(),.:;") for word in str(error).split() if word[:2] == "--"}
        return "refused: " + " ".join(sorted(named))
    splits = images.splits or [""] * len(images)
    pairs = zip(splits, class_names(images), strict=True)
    return " ".join((f"{split}:" if images.splits is not None else "") + name for split, name in pairs)
