"""Files that the server writes for an attention view, from maps and frames that the browser sends."""

import binascii
import io
import tempfile
from base64 import b64decode
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from PIL import Image
from pydantic import Field

from app.limits.errors import ClientValue, LabError
from app.store.backend import Backend
from app.store.engine import Key
from app.store.images import clean_name, read_frame, stem
from segmentation import figures
from segmentation.video import VideoWriter

MOST_FRAMES = 96
MOST_HEADS = 64
Share = Annotated[float, Field(ge=0, le=1)]


class Figure(ClientValue):
    """Maps for print.

    Attributes:
        token: Of the encoding whose image is drawn.
        maps: Base64 of little-endian float32 [heads, rows, columns].
        label: Quantity and unit.
        place: x and y of the query as shares of width and height; None for [CLS].
        scale: "common": all maps have one, "own": each its own.
    """

    file: Literal["figure.png", "figure.svg", "figure.pdf"]
    name: str
    token: str
    maps: str = Field(max_length=20_000_000)
    shape: list[Annotated[int, Field(ge=1)]] = Field(min_length=3, max_length=3)
    label: str = Field(max_length=100)
    caption: str = Field(max_length=600)
    place: list[Share] | None = Field(default=None, min_length=2, max_length=2)
    scale: Literal["own", "common"] = "common"

    def write(self, backend: Backend) -> bytes:
        """Draw the image, the map of every head and their mean."""
        image = backend.images.read(Key.of(self.token).image)
        try:
            maps = np.frombuffer(b64decode(self.maps, validate=True), "<f4").reshape(self.shape)
        except (binascii.Error, ValueError) as error:
            raise LabError("The maps do not fit their size: export them again.") from error
        heads, rows, columns = maps.shape
        if heads > MOST_HEADS or rows * columns > backend.limits.max_patches:
            raise LabError("These are no maps of a model: export them again.")
        if not np.isfinite(maps).all():
            raise LabError("The maps have values that are not finite: choose another block.")
        point = (self.place[1] * image.shape[0], self.place[0] * image.shape[1]) if self.place else None
        texts = {"label": self.label, "caption": self.caption}
        drawn = figures.map_figure(image, maps, **texts, point=point, common=self.scale == "common")
        kinds: dict[str, figures.FigureKind] = {".png": "png", ".svg": "svg", ".pdf": "pdf"}
        return figures.figure_bytes(drawn, kinds[Path(self.file).suffix])


class Animation(ClientValue):
    """Frames of one size, JPEGs as data addresses, and the seconds of each."""

    file: Literal["animation.gif", "animation.mp4"]
    name: str
    frames: list[str] = Field(min_length=1, max_length=MOST_FRAMES, description=f"1 to {MOST_FRAMES} frames")
    seconds: float = Field(ge=0.02, le=5)

    def write(self, backend: Backend) -> bytes:
        """Join the frames."""
        frames = [read_frame(frame) for frame in self.frames]
        if any(one.shape != other.shape for one, other in pairwise(frames)):
            raise LabError("The frames of an animation must have one size: export it again.")
        if self.file == "animation.gif":
            first, *rest = (Image.fromarray(frame).quantize() for frame in frames)
            buffer, milliseconds = io.BytesIO(), round(1000 * self.seconds)
            first.save(buffer, "GIF", save_all=True, append_images=rest, duration=milliseconds, loop=0)
            return buffer.getvalue()
        with tempfile.TemporaryDirectory(prefix="dino-lab-animation-") as folder:  # the writer needs a file
            path = Path(folder, "animation.mp4")
            with VideoWriter(path, 1 / self.seconds) as video:
                for frame in frames:
                    video.write(frame)
            return path.read_bytes()


def export_file(backend: Backend, sent: object) -> tuple[str, bytes]:
    """Write the `Figure` or `Animation` of a client; return the name of the file and its bytes."""
    if not isinstance(sent, dict) or "file" not in sent:
        raise LabError("Nothing is shown yet: wait for the maps, then try again.")
    kind = Animation if str(sent["file"]).startswith("animation") else Figure
    request = kind.of(sent)
    return f"{stem(clean_name(request.name))}-{request.file}", request.write(backend)
