"""Segmentation from scribbles: strokes in several colors train a head that segments every open image.

Nothing is kept between requests: each carries all strokes, and encodings are cached in bounded memory.
Colors are numbered from 1. Label 0, background, is where the head chooses color 1; label 1 is color 2.
"""

import io
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from app.handlers.objects import COLORS, MOST_OBJECTS
from app.limits.errors import ClientValue, LabError
from app.page import split
from app.store.backend import Backend
from app.store.clips import from_runs, runs_of
from app.store.engine import Encoding
from app.store.images import labels_png, stem
from dino_model.inference.classifier import SavedClassifier
from dino_model.inference.feature_cache import model_fingerprint
from dino_model.runtime.files import as_tuples
from segmentation import heads
from segmentation.heads import PatchClassifier, PatchTask
from segmentation.labels import VOID, DataError, Labels

MOST_COLORS = MOST_OBJECTS + 1
PALETTE = [[0, 0, 0], *COLORS.tolist()]
MOST_IMAGES, MOST_OWN = 8, 200
MOST_CELLS = 1024  # of a side of the map of strokes, at least those of mask_view.js
SHOWN_SIDE = 640  # of labels for the screen


class Scribble(ClientValue):
    """An image, by its token, and the strokes over it.

    `runs` has the run lengths of a map of [rows, columns]: 0 is unmarked, else the color. Empty: no strokes.
    """

    token: str
    rows: int = Field(default=1, ge=1, le=MOST_CELLS)
    columns: int = Field(default=1, ge=1, le=MOST_CELLS)
    runs: list[int] = Field(default=[], max_length=200_000)
    name: str = "image"

    def labels(self) -> Labels:
        """Return the label of each cell, `VOID` where nothing is marked: [rows, columns]."""
        colors = from_runs(self.runs, (self.rows, self.columns), MOST_COLORS)
        return np.where(colors == 0, VOID, colors - 1).astype(np.uint8)


class ScribbleRequest(ClientValue):
    """Images of the tab, the visible one first, and own images of the rail; the response repeats `key`."""

    images: list[Scribble] = Field(min_length=1, max_length=MOST_IMAGES)
    key: str = Field(default="", max_length=200)
    own: list[str] = Field(default=[], max_length=MOST_OWN)


def fit(backend: Backend, images: Sequence[Scribble]) -> tuple[PatchClassifier, Encoding]:
    """Fit a k-NN head to all strokes; return it, and an encoding by the model and size that it needs.

    k-NN needs no training and answers at once.
    """
    marked = [image for image in images if any(image.runs[::2])]
    if not marked:
        raise LabError("Nothing is marked yet: draw with two colors.")
    encodings = [backend.encoding(image.token) for image in images]
    if len({(one.key.model, one.key.size, one.key.version) for one in encodings}) > 1:
        raise LabError("The images have several models or resolutions: open them again.")
    features = [backend.encoding(image.token).patch_features() for image in marked]
    strokes = [image.labels() for image in marked]
    try:
        samples = heads.sample_patches(zip(features, strokes, strict=True), len(marked))
        return heads.fit_classifier(*samples, "knn"), encodings[0]
    except DataError as error:
        raise LabError("Only one color is marked: draw with a second one.") from error


def segment_image(backend: Backend, raw_request: object) -> dict[str, Any]:
    """Segment the first image with the head of all strokes of a client's `ScribbleRequest`."""
    request = ScribbleRequest.of(raw_request)
    classifier, encoding = fit(backend, request.images)
    height, width = encoding.predictor.image_size
    scale = min(1, SHOWN_SIDE / max(height, width))
    size = max(1, round(height * scale)), max(1, round(width * scale))
    labels = classifier.segment(encoding.patch_features(), size)
    found = {"token": request.images[0].token, "key": request.key, "rows": size[0], "columns": size[1]}
    return found | {"runs": runs_of(labels)}


def masks_file(backend: Backend, request: ScribbleRequest) -> tuple[str, bytes]:
    """Write the mask of every image as a palette PNG, several in a ZIP: name and content."""
    classifier, first = fit(backend, request.images)
    images = list(request.images)
    for name, title in map(split, request.own):
        if title and backend.images.holds(name):
            token = backend.encode(name, first.key.model, first.key.size).key.token
            if token not in {image.token for image in images}:
                images.append(Scribble(token=token, name=title))
    files: dict[str, bytes] = {}
    for number, image in enumerate(images, 1):
        encoding = backend.encoding(image.token)
        labels = classifier.segment(encoding.patch_features(), encoding.predictor.image_size)
        name = f"{stem(image.name)}.png"
        files[f"{number}-{name}" if name in files else name] = labels_png(labels, np.array(PALETTE, np.uint8))
    if len(files) == 1:
        return next(iter(files.items()))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return "masks.zip", archive.getvalue()


def head_file(backend: Backend, request: ScribbleRequest) -> tuple[str, bytes]:
    """Write the head as `python -m segmentation head apply` reads it: name and content."""
    classifier, encoding = fit(backend, request.images)
    task = PatchTask(
        labels=classifier.labels,
        kind="knn",
        layers=1,
        size=encoding.key.size,
        foreground=False,
        names=("background", *(f"class {label}" for label in range(1, MOST_COLORS))),
        colors=as_tuples(PALETTE),
    )
    weights, model = model_fingerprint(encoding.predictor.model.backbone), encoding.key.model
    own: dict[str, Any] = {"classifier": classifier.classifier, "task": task, "classes": task.classes}
    with tempfile.TemporaryDirectory(prefix="dino-lab-head-") as folder:
        path = Path(folder, "head.safetensors")
        SavedClassifier(**own, model=model, weights=weights).write(path)
        return path.name, path.read_bytes()


def export_file(backend: Backend, sent: object) -> tuple[str, bytes]:
    """Write the head or the masks of a client's `ScribbleRequest`: name and content."""
    if not isinstance(sent, dict) or "images" not in sent:  # the view has no request yet
        raise LabError("Draw strokes of two classes first.")
    write = head_file if sent.get("file") == "head.safetensors" else masks_file
    return write(backend, ScribbleRequest.of(sent))
