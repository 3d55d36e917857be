"""Files that the server writes of an attention view: figures, maps, animations, all own images."""

import io
import tempfile
import zipfile
from collections.abc import AsyncIterator, Callable, Hashable
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args

from PIL import Image
from pydantic import Field

from app.handlers.attention_maps import PCA, MapSettings, file_of
from app.limits import fairness
from app.limits.errors import LabError
from app.page import split
from app.store.backend import Backend
from app.store.engine import Encoding, Key
from app.store.images import EXAMPLES, clean_name, read_frame, stem
from segmentation.video import VideoWriter

MOST_FRAMES = 96
MOST_IMAGES = 200
IN_ZIP = ("maps.npz", "mask.png")
Written = Literal[
    "figure.png", "figure.svg", "figure.pdf", "maps.npz", "maps.zip", "animation.gif", "animation.mp4"
]


class ExportRequest(MapSettings):
    """Shown maps, and the file wanted of them.

    Attributes:
        token: Of an encoding.
        name: Of the user's image.
        frames: Of an animation: JPEGs as data addresses, of one size.
        seconds: Of each frame.
        images, examples: Own images of the ZIP, and whether it has the examples, too.
    """

    token: str
    file: Written = Field(description=f"one of {', '.join(get_args(Written))}")
    name: str = "image"
    scale: Literal["own", "common"] = "common"
    frames: list[str] = Field(default=[], max_length=MOST_FRAMES, description=f"at most {MOST_FRAMES} frames")
    seconds: float = Field(default=0.5, ge=0.02, le=5)
    images: list[str] = Field(default=[], max_length=MOST_IMAGES, description=f"at most {MOST_IMAGES} images")
    examples: bool = False


async def export_file(
    backend: Backend, sent: object, client: Hashable, report: Callable[[int, int], None]
) -> AsyncIterator[tuple[str, bytes] | None]:
    """Write the file that an attention view asks for; other clients use the model in between.

    Args:
        backend: Has the images.
        sent: An `ExportRequest` from a client.
        client: See `fairness.client_of`.
        report: Takes the number of finished images of a ZIP, and of all.

    Yields:
        None after every image of a ZIP, then the name of the file and its bytes.
    """
    if not isinstance(sent, dict) or "token" not in sent:
        raise LabError("Nothing is shown yet: wait for the maps, then try again.")
    request = ExportRequest.of(sent)
    key = Key.of(request.token)
    name = f"{stem(key.image if key.image in EXAMPLES else clean_name(request.name))}-{request.file}"
    if request.file == "maps.zip":
        async for content in _zip(backend, request, key, client, report):
            yield (name, content) if content else None
        return
    if request.frames or request.file.startswith("animation"):
        yield name, await fairness.READING.run(client, animation, request)
        return
    encoding = await fairness.MODEL.run(client, backend.encoding, request.token)
    yield name, await fairness.READING.run(client, _write, backend, encoding, request, request.file)


def _write(backend: Backend, encoding: Encoding, request: ExportRequest, file: str) -> bytes:
    image = backend.images.read(encoding.key.image)
    return file_of(file, encoding, request, image, request.scale == "common")


async def _zip(
    backend: Backend, request: ExportRequest, key: Key, client: Hashable, report: Callable[[int, int], None]
) -> AsyncIterator[bytes]:
    listed = [*request.images, *(EXAMPLES if request.examples else ())]
    if not listed:
        raise LabError("You have opened no image yet: open some, or choose the examples, too.")
    grid = backend.encoding(request.token).predictor.grid
    buffer, refused = io.BytesIO(), []
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, image in enumerate(listed):
            report(number, len(listed))
            name, title = split(image)
            try:
                encoding = await fairness.MODEL.run(client, backend.encode, name, key.model, key.size)
                own = request.model_copy(
                    update={"query": _same_place(request, grid, encoding.predictor.grid)}
                )
                for file in IN_ZIP:
                    if file == "mask.png" and request.quantity in PCA:
                        continue
                    content = await fairness.READING.run(client, _write, backend, encoding, own, file)
                    archive.writestr(f"{number + 1:02d}-{stem(title or name)}-{file}", content)
            except LabError as error:
                refused.append(f"{title or name}: {error.sentence}")
            yield b""
        if refused:
            archive.writestr("left-out.txt", "\n".join(refused) + "\n")
    yield buffer.getvalue()


def _same_place(request: MapSettings, grid: tuple[int, int], other: tuple[int, int]) -> str:
    """Return the query at the same share of height and width on the grid of another image."""
    if request.patch is None:
        return "cls"
    return ",".join(
        str(int((at + 0.5) * new / old)) for at, old, new in zip(request.patch, grid, other, strict=True)
    )


def animation(request: ExportRequest) -> bytes:
    """Join the frames of a browser into a GIF or an MP4."""
    frames = [read_frame(frame) for frame in request.frames]
    if not frames or any(one.shape != other.shape for one, other in pairwise(frames)):
        raise LabError("The frames of an animation must have one size: export it again.")
    if request.file == "animation.gif":
        first, *rest = (Image.fromarray(frame).quantize(256) for frame in frames)
        buffer, milliseconds = io.BytesIO(), round(1000 * request.seconds)
        first.save(buffer, "GIF", save_all=True, append_images=rest, duration=milliseconds, loop=0)
        return buffer.getvalue()
    with tempfile.TemporaryDirectory(prefix="dino-lab-animation-") as folder:  # the writer needs a file
        path = Path(folder, "animation.mp4")
        with VideoWriter(path, 1 / request.seconds) as video:
            for frame in frames:
                video.write(frame)
        return path.read_bytes()
