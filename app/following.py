"""Tracking of objects through a clip by label propagation, and downloads of the result."""

import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from app.clips import MAX_OBJECTS, Clip
from app.engine import check_patches
from app.errors import LabError
from app.limits import Limits
from app.photos import labels_png
from dino_model.predictor import AttentionPredictor
from dino_model.resize import fed_size
from segmentation import drawing
from segmentation.coco import coco_record
from segmentation.labels import Labels, object_ids
from segmentation.propagation import propagate_frames, vanished_objects
from segmentation.video import VideoWriter

COLORS = drawing.head_colors(MAX_OBJECTS + 1)[1:]
"""Colors of objects: uint8 [MAX_OBJECTS, 3]. The first head's color, that of fur and wood, is left out."""


@dataclass
class Following:
    """Objects that are tracked through a clip.

    Attributes:
        token: Name of the clip in the server's memory.
        clip: The frames.
        model: Name of the model, as the user chose it.
        ids: Labels of the objects.
        masks: Palette PNGs of the finished frames; the first is the user's mask.
    """

    token: str
    clip: Clip
    model: str
    ids: tuple[int, ...]
    masks: list[bytes] = field(default_factory=list)

    def labels(self) -> Iterator[Labels]:
        """Decode the labels of every finished frame, uint8 [height, width]."""
        return (np.array(Image.open(io.BytesIO(mask))) for mask in self.masks)


def begin(
    token: str, clip: Clip, first_mask: Labels, predictor: AttentionPredictor, model: str, limits: Limits
) -> Following:
    """Check that a first mask, labels of the first frame, can be tracked; return an empty result.

    Args:
        token, clip, model: As in `Following`.
        first_mask: uint8 [height, width]; 0 is background.
        predictor: Computes the patch features.
        limits: Upper bound on the number of patches.
    """
    ids = object_ids(first_mask)
    if first_mask.shape != clip.size:
        raise LabError(
            f"The mask has {first_mask.shape[1]} × {first_mask.shape[0]} pixels, the frames "
            f"{clip.size[1]} × {clip.size[0]}: use one size."
        )
    if not ids:
        raise LabError("Nothing is marked yet: click an object on the first frame, or paint it.")
    if len(ids) > MAX_OBJECTS:
        raise LabError(f"{len(ids)} objects are marked, at most {MAX_OBJECTS} are allowed.")
    check_patches(clip.size, predictor.size, predictor.patch_size, limits)
    used = fed_size(*clip.size, predictor.size, predictor.resize, predictor.patch_size)
    if vanished := vanished_objects(first_mask, used, predictor.patch_size):
        raise LabError(
            f"Object {vanished[0]} is smaller than a patch of the model: paint more of it, "
            "or choose a higher resolution."
        )
    return Following(token, clip, model, ids)


def steps(following: Following, first_mask: Labels, predictor: AttentionPredictor) -> Generator[None]:
    """Track the objects of a first mask, one frame per step."""
    try:
        for labels in propagate_frames(following.clip.pictures(), first_mask, predictor, batch=1):
            following.masks.append(labels_png(labels))
            yield
    except ValueError as error:
        raise LabError(
            f"{following.model} computes no usable features of this clip: choose another model."
        ) from error


def from_runs(runs: Any, size: tuple[int, int], most: int = MAX_OBJECTS) -> Labels:
    """Decode a client's run lengths in reading order, [label, pixels, label, pixels, …].

    Args:
        runs: Any JSON.
        size: Height and width of the image.
        most: Largest label.

    Returns:
        Labels, uint8 [height, width].
    """
    whole = isinstance(runs, Sequence) and all(type(value) is int and value >= 0 for value in runs)
    if whole and len(runs) % 2 == 0:
        labels, lengths = runs[::2], runs[1::2]
        if max(labels, default=0) <= most and sum(lengths) == size[0] * size[1]:
            return np.repeat(np.array(labels, np.uint8), lengths).reshape(size)
    raise LabError("The mask does not fit this image: open the image again.")


def overlay_webm(following: Following) -> bytes:
    """Encode the finished frames with their objects tinted and a legend below, as VP8."""
    colors = COLORS[np.array(following.ids) - 1]
    names = [(f"object {label}", color) for label, color in zip(following.ids, colors, strict=True)]
    with tempfile.TemporaryDirectory(prefix="dino-lab-clip-") as folder:  # the writer needs a file
        path = Path(folder, "overlay.webm")
        with VideoWriter(path, following.clip.fps) as video:
            for picture, labels in zip(following.clip.pictures(), following.labels(), strict=False):
                masks = np.stack([labels == label for label in following.ids])
                shown = drawing.overlay_masks(picture, masks, colors=colors)
                video.write(drawing.with_legend(shown, names))
        return path.read_bytes()


def davis_zip(following: Following) -> bytes:
    """Pack all frames and the finished masks in the layout of DAVIS, for `python -m segmentation davis`."""
    clip, buffer = following.clip, io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:  # stored: JPEG and PNG are compressed already
        for number, frame in enumerate(clip.frames):
            archive.writestr(f"JPEGImages/480p/{clip.stem}/{number:05d}.jpg", frame)
        for number, mask in enumerate(following.masks):
            archive.writestr(f"Annotations/480p/{clip.stem}/{number:05d}.png", mask)
        archive.writestr("ImageSets/2017/val.txt", f"{clip.stem}\n")
    return buffer.getvalue()


def coco(following: Following) -> dict[str, Any]:
    """Convert the finished masks to a data set that `pycocotools.coco.COCO` reads.

    Image ids are frame numbers from 1; categories are the objects.
    """
    height, width = following.clip.size
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, labels in enumerate(following.labels(), 1):
        name = f"{following.clip.stem}/{number - 1:05d}.jpg"
        images.append({"id": number, "file_name": name, "height": height, "width": width})
        for label in object_ids(labels):
            mask = labels == label
            added = {"id": len(annotations) + 1, "area": int(mask.sum()), "iscrowd": 0}
            annotations.append(coco_record(number, label, mask) | added)
    return {
        "info": {"description": following.clip.name, "fps": following.clip.fps},
        "images": images,
        "annotations": annotations,
        "categories": [{"id": label, "name": f"object {label}"} for label in following.ids],
    }


FILES: Mapping[str, Callable[[Following], bytes]] = {
    "overlay.webm": overlay_webm,
    "davis.zip": davis_zip,
    "masks.json": lambda following: json.dumps(coco(following)).encode(),
}
"""Downloads of a tracked clip by name."""
