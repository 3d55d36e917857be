"""What can be kept of a followed clip: a video with overlay, DAVIS folders in a zip, run lengths in JSON."""

import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from app.following import COLORS, Following
from segmentation import drawing
from segmentation.coco import coco_record
from segmentation.masks import ImageArray
from segmentation.propagation import Labels
from segmentation.video import VideoWriter


def overlay_webm(following: Following) -> bytes:
    """The frames done, with their objects tinted and outlined: VP8, which browsers play."""
    with tempfile.TemporaryDirectory(prefix="dino-lab-clip-") as folder:  # OpenCV writes files only
        path = Path(folder, "overlay.webm")
        with VideoWriter(path, following.clip.fps) as video:
            for picture, labels in following.frames():
                video.write(_drawn(picture, labels, following.ids))
        return path.read_bytes()


def _drawn(picture: ImageArray, labels: Labels, ids: tuple[int, ...]) -> ImageArray:
    """A frame with its objects in the page's colours, and a legend below that stays the same."""
    colors = COLORS[np.array(ids) - 1]
    shown = drawing.overlay_masks(picture, np.stack([labels == label for label in ids]), colors=colors)
    names = [(f"object {label}", color) for label, color in zip(ids, colors, strict=True)]
    return drawing.stack([shown, drawing.legend(names, shown.shape[1])])


def davis_zip(following: Following) -> bytes:
    """Frames and masks as DAVIS lays them out; `python -m segmentation davis` reads the folder it unpacks to.

    All frames of the clip are in it, masks of those done. The frames are the bytes that the model saw.
    """
    clip, buffer = following.clip, io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:  # stored: JPEG and PNG are packed already
        for number, frame in enumerate(clip.frames):
            archive.writestr(f"JPEGImages/480p/{clip.stem}/{number:05d}.jpg", frame)
        for number, mask in enumerate(following.masks):
            archive.writestr(f"Annotations/480p/{clip.stem}/{number:05d}.png", mask)
        archive.writestr("ImageSets/2017/val.txt", f"{clip.stem}\n")
    return buffer.getvalue()


def masks_json(following: Following) -> bytes:
    """`coco` as a JSON file."""
    return json.dumps(coco(following)).encode()


def coco(following: Following) -> dict[str, Any]:
    """Masks of the frames done in COCO's format, one annotation per frame and object that is seen in it.

    `COCO(file)` of pycocotools reads it. Images are the frames, counted from 1; categories are the objects.
    """
    height, width = following.clip.size
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number in range(len(following.masks)):
        labels = following.labels(number)
        name = f"{following.clip.stem}/{number:05d}.jpg"
        images.append({"id": number + 1, "file_name": name, "height": height, "width": width})
        for label in following.ids:
            mask = labels == label
            if mask.any():
                record = coco_record(number + 1, label, mask)
                of_truth = {"id": len(annotations) + 1, "area": int(mask.sum()), "iscrowd": 0}
                annotations.append(record | of_truth)
    return {
        "info": {"description": following.clip.name, "fps": following.clip.fps},
        "images": images,
        "annotations": annotations,
        "categories": [{"id": label, "name": f"object {label}"} for label in following.ids],
    }


FILES: Mapping[str, tuple[str, Callable[[Following], bytes]]] = {
    "overlay.webm": ("video/webm", overlay_webm),
    "davis.zip": ("application/zip", davis_zip),
    "masks.json": ("application/json", masks_json),
}
"""What can be downloaded: by name, its media type and who makes it."""
