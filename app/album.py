"""Maps and masks of all images of the strip as one ZIP."""

import io
import zipfile
from collections.abc import AsyncIterator, Callable

import gradio as gr

from app import fairness
from app.attention_maps import FILES, MapSettings
from app.engine import Encoding, Key
from app.errors import LabError
from app.images import stem
from app.page import Page, split

EXPORTED = ("maps.npz", "mask.png")


class AlbumRequest(MapSettings):
    """The settings of an attention view, the token of its encoding, and the images of the strip."""

    token: str
    album: str


async def album_zip(
    page: Page, raw_request: object, request: gr.Request, report: Callable[[int, int], None]
) -> AsyncIterator[bytes]:
    """Compute the attention of [CLS] in every image of the strip; other clients use the model in between.

    Args:
        page: Has the images.
        raw_request: An `AlbumRequest` from a client.
        request: Tells the client.
        report: Takes the number of finished images, and of all.

    Yields:
        Nothing after every image, then the ZIP: for each image `EXPORTED`, as the downloads of the view.
    """
    if not isinstance(raw_request, dict) or "token" not in raw_request:
        raise LabError("Nothing is shown yet: wait for the maps, then try again.")
    album = AlbumRequest.of(raw_request)
    settings = album.model_copy(update={"quantity": "attention", "query": "cls"})
    key, client, buffer = Key.of(album.token), fairness.client_of(request), io.BytesIO()
    images, refused = page.images_of(album.album), []
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, image in enumerate(images):
            report(number, len(images))
            name, title = split(image)
            try:
                encoding = await fairness.MODEL.run(client, page.backend.encode, name, key.model, key.size)
                files = await fairness.READING.run(client, _files, page, encoding, settings)
            except LabError as error:
                refused.append(f"{title or name}: {error.sentence}")
                continue
            for file, content in files.items():
                archive.writestr(f"{number + 1:02d}-{stem(title or name)}-{file}", content)
            yield b""
        if refused:
            archive.writestr("left-out.txt", "\n".join(refused) + "\n")
            gr.Warning(
                f"{len(refused)} of {len(images)} images are left out: left-out.txt names the reasons."
            )
    yield buffer.getvalue()


def _files(page: Page, encoding: Encoding, settings: MapSettings) -> dict[str, bytes]:
    image = page.backend.images.read(encoding.key.image)
    return {file: FILES[file](encoding, settings, image) for file in EXPORTED}
