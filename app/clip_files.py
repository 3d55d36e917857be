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
from segmentation.video import VideoWriter


def overlay_webm(following: Following) -> bytes:
    """Encode the finished frames with their objects tinted and a legend below, as VP8."""
    colors = COLORS[np.array(following.ids) - 1]
    names = [(f"object {label}", color) for label, color in zip(following.ids, colors, strict=True)]
    with tempfile.TemporaryDirectory(prefix="dino-lab-clip-") as folder:  # OpenCV writes only to files
        path = Path(folder, "overlay.webm")
        with VideoWriter(path, following.clip.fps) as video:
            for picture, labels in following.frames():
                masks = np.stack([labels == label for label in following.ids])
                shown = drawing.overlay_masks(picture, masks, colors=colors)
                video.write(drawing.stack([shown, drawing.legend(names, shown.shape[1])]))
        return path.read_bytes()


def davis_zip(following: Following) -> bytes:
    """Pack all frames, as the model received them, and the finished masks in the layout of DAVIS.

    `python -m segmentation davis` reads the unpacked folder.
    """
    clip, buffer = following.clip, io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:  # stored: JPEG and PNG are compressed already
        for number, frame in enumerate(clip.frames):
            archive.writestr(f"JPEGImages/480p/{clip.stem}/{number:05d}.jpg", frame)
        for number, mask in enumerate(following.masks):
            archive.writestr(f"Annotations/480p/{clip.stem}/{number:05d}.png", mask)
        archive.writestr("ImageSets/2017/val.txt", f"{clip.stem}\n")
    return buffer.getvalue()


def masks_json(following: Following) -> bytes:
    """Encode `coco` as a JSON file."""
    return json.dumps(coco(following)).encode()


def coco(following: Following) -> dict[str, Any]:
    """Convert the finished masks to COCO's format: one annotation per frame and visible object.

    `pycocotools.coco.COCO` reads the result. Image ids are frame numbers from 1; categories are the objects.
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
                annotations.append(
                    record | {"id": len(annotations) + 1, "area": int(mask.sum()), "iscrowd": 0}
                )
    return {
        "info": {"description": following.clip.name, "fps": following.clip.fps},
        "images": images,
        "annotations": annotations,
        "categories": [{"id": label, "name": f"object {label}"} for label in following.ids],
    }


FILES: Mapping[str, Callable[[Following], bytes]] = {
    "overlay.webm": overlay_webm,
    "davis.zip": davis_zip,
    "masks.json": masks_json,
}
"""Functions that write a download, by its name."""
