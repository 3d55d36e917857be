"""Downloads of a tracked clip: video with overlay, DAVIS folders in a zip, COCO run lengths."""

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
from segmentation.labels import object_ids
from segmentation.video import VideoWriter


def overlay_webm(following: Following) -> bytes:
    """Encode the finished frames with their objects tinted and a legend below, as VP8."""
    colors = COLORS[np.array(following.ids) - 1]
    names = [(f"object {label}", color) for label, color in zip(following.ids, colors, strict=True)]
    with tempfile.TemporaryDirectory(prefix="dino-lab-clip-") as folder:  # the writer needs a file
        path = Path(folder, "overlay.webm")
        with VideoWriter(path, following.clip.fps) as video:
            for picture, labels in following.frames():
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
    for number in range(len(following.masks)):
        labels, name = following.labels(number), f"{following.clip.stem}/{number:05d}.jpg"
        images.append({"id": number + 1, "file_name": name, "height": height, "width": width})
        for label in object_ids(labels):
            mask = labels == label
            added = {"id": len(annotations) + 1, "area": int(mask.sum()), "iscrowd": 0}
            annotations.append(coco_record(number + 1, label, mask) | added)
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
