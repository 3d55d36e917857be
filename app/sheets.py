"""Files that show one view of several photographs."""

import io
import zipfile
from collections.abc import Callable, Iterable, Mapping

from app import downloads
from app.downloads import Scene
from app.files import png
from app.photos import stem
from app.view import PCA
from segmentation import drawing

MOST_PICTURES = 48
COLUMNS = 4
HEIGHT = 240  # pixels of a picture on the sheet


def sheet_png(scenes: Iterable[Scene]) -> bytes:
    """A contact sheet: overlays with what their colours stand for, under the names of their photographs."""
    cells = [(scene.name, downloads.overlay_and_bar(scene)) for scene in scenes]
    rows = [cells[first : first + COLUMNS] for first in range(0, len(cells), COLUMNS)]
    return png(drawing.contact_sheet(rows, height=HEIGHT))


def views_zip(scenes: Iterable[Scene]) -> bytes:
    """Overlay, mask and raw maps of every photograph, numbered in their order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:  # stored: PNG and NPZ are packed already
        for number, scene in enumerate(scenes, 1):
            files = ["overlay.png", "maps.npz", *([] if scene.view.quantity in PCA else ["mask.png"])]
            for file in files:
                _, make = downloads.FILES[file]
                archive.writestr(f"{number:02d}-{stem(scene.name)}-{file}", make(scene))
    return buffer.getvalue()


FILES: Mapping[str, tuple[str, Callable[[Iterable[Scene]], bytes]]] = {
    "sheet.png": ("image/png", sheet_png),
    "views.zip": ("application/zip", views_zip),
}
"""What can be downloaded of several photographs: by name, its media type and who makes it."""
