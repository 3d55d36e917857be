"""Images by name: users' files, named by their content, and the examples; images and labels as files."""

import base64
import hashlib
import io
import re
import secrets
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from app.limits.bounds import MEGABYTE, BoundedCache, Limits
from app.limits.errors import LabError, NotHere
from app.values import encode_image
from dino_model import photographs
from dino_model.data import images
from segmentation.labels import Labels, palette
from segmentation.masks import ImageArray

EXAMPLES = {
    name: photographs.table()[name].title
    for name in ("sheep", "kitten", "macaw", "komodo", "polar_bear", "owl", "panda", "red_pyramid")
}
"""Titles of the examples by name."""
FIRST = "sheep"
"""Example image, and example clip, that the page opens with."""
WALK = {"source": FIRST, "places": [(0.62, 0.42), (0.48, 0.25), (0.14, 0.8)]}
"""Places on wool, head and grass that the page points at when it opens: shares of width and height."""
THUMBNAIL_SIDE = 96
MAX_FRAME_TEXT = 400_000


class ImageStore:
    """Images under names that cannot be guessed, in bounded memory; safe for several threads.

    The name follows from the content. Files are kept as they came, and the images decoded last.
    """

    def __init__(self, limits: Limits) -> None:
        quarter = limits.max_memory_mb * MEGABYTE // 4
        self._limits = limits
        self._secret = secrets.token_bytes(16)  # without it nobody can test whether a file is here
        self._files: BoundedCache[str, bytes] = BoundedCache(quarter)
        self._decoded: BoundedCache[str, ImageArray] = BoundedCache(quarter)

    def name_of(self, content: bytes) -> str:
        """Return the name of a file with this content, kept or not."""
        return hashlib.blake2b(content, digest_size=16, key=self._secret).hexdigest()

    def keep(self, content: bytes, title: str = "This file") -> str:
        """Decode and keep a file; return its name. Errors have the title of its user."""
        name = self.name_of(content)
        if self._decoded.get(name) is None:
            self._decode(name, content, title)
        self._files.put(name, content, len(content))
        return name

    def pinned(self, *values: Any) -> AbstractContextManager[None]:
        """Keep the images that values of a client name, if they fit, until the end of the block: it waits.

        A value is a name, NAME/TITLE, or a token, which begins with the name.
        """
        return self._files.pinned([re.split("[/.]", value)[0] for value in values if isinstance(value, str)])

    def forget(self, name: str) -> None:
        """Delete a file; a user who sent the same file opens it again."""
        for cache in (self._files, self._decoded):
            cache.drop(lambda key, _: key == name)

    def is_halved(self, content: bytes) -> bool:
        """Return True if a file that was kept is so large that it is decoded at half its width and height."""
        with Image.open(io.BytesIO(content), formats=images.FORMATS) as header:
            return header.width * header.height > self._limits.max_megapixels * MEGABYTE

    def holds(self, name: str) -> bool:
        """Return whether an image is in memory."""
        return name in EXAMPLES or self._files.get(name) is not None

    def check(self, name: str) -> None:
        """Check that an image is in memory."""
        if not self.holds(name):
            raise NotHere("This image is no longer in the server's memory: open it again.")

    def read(self, name: str) -> ImageArray:
        """Return the pixels of an image; raise NotHere as `check`."""
        self.check(name)
        image = self._decoded.get(name)
        return self._decode(name, self._files.get(name) or b"") if image is None else image

    def _decode(self, name: str, content: bytes, title: str = "This file") -> ImageArray:
        try:
            if name in EXAMPLES:
                image = photographs.image(name)
            else:
                image = images.read(
                    content, max_pixels=self._limits.max_megapixels * MEGABYTE, name=title, halve=True
                )
        except images.ImageError as error:  # the decoder's details are not for users
            file, damaged, _ = str(error).partition(" is damaged or cut short")
            raise LabError(f"{file}{damaged}.") from error
        self._decoded.put(name, image, image.nbytes)
        return image


def read_frame(address: str) -> ImageArray:
    """Decode an image that a script has drawn, a data address of at most `MAX_FRAME_TEXT` characters."""
    if len(address) > MAX_FRAME_TEXT:
        raise LabError("A frame is too large: show a smaller part of the image.")
    try:
        content = base64.b64decode(address.partition(",")[2], validate=True)
        return images.read(content, max_pixels=MEGABYTE, name="A frame")
    except ValueError as error:  # an `ImageError` is one
        raise LabError("A frame is damaged: try again.") from error


def thumbnail(image: ImageArray) -> ImageArray:
    """Return the center of an image: [`THUMBNAIL_SIDE`, `THUMBNAIL_SIDE`, 3]."""
    return np.asarray(ImageOps.fit(Image.fromarray(image), (THUMBNAIL_SIDE, THUMBNAIL_SIDE)))


def clean_name(name: str) -> str:
    """Return a user's file name as one line without control characters, at most 100 characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in Path(name).name).split())[:100]


def stem(name: str, otherwise: str = "image") -> str:
    """Return a name without suffix and without characters that file systems or HTTP headers reject."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", Path(name).stem).strip("-.")[:60] or otherwise


def pin(name: str) -> tuple[float, float]:
    """Return a place on the object of an example: x and y as shares of width and height."""
    (y, x), (height, width) = photographs.pin(name), photographs.mask(name).shape
    return (x + 0.5) / width, (y + 0.5) / height


def png(image: NDArray[np.uint8]) -> bytes:
    """Encode an image, RGB [height, width, 3] or gray [height, width], as PNG."""
    return encode_image(Image.fromarray(image), "PNG")


def labels_png(labels: Labels, colors: NDArray[np.uint8] | None = None) -> bytes:
    """Encode labels [height, width] as a palette PNG, which keeps their values.

    Args:
        labels: uint8.
        colors: Of the first labels, [count, 3]; the others have those of DAVIS and VOC.
    """
    image, table = Image.fromarray(labels, mode="P"), palette()
    if colors is not None:
        table[: len(colors)] = colors
    image.putpalette(table.tobytes())
    return encode_image(image, "PNG")
