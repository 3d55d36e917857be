"""Fixtures of the commands' tests."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from skimage import data

from segmentation.labels import write_mask_png

BOX = """<annotation><object><name>cat</name><difficult>1</difficult><bndbox>
<xmin>1</xmin><ymin>1</ymin><xmax>160</xmax><ymax>119</ymax></bndbox></object></annotation>"""


@pytest.fixture
def devkit(tmp_path: Path) -> Path:
    """Three images with the layout of VOC 2012: one object, two classes, none; boxes of the first two."""
    root = tmp_path / "VOCdevkit" / "VOC2012"
    folders = [root / name for name in ("JPEGImages", "SegmentationClass", "SegmentationObject")]
    for folder in (*folders, root / "Annotations", root / "ImageSets/Segmentation", root / "ImageSets/Main"):
        folder.mkdir(parents=True)
    for name, image in {"cat": data.cat(), "cup": data.coffee(), "sky": data.rocket()}.items():
        classes, objects = np.zeros((2, 120, 160), np.uint8)
        if name != "sky":
            classes[20:80, 30:90], objects[20:80, 30:90] = 8, 1
            classes[80:84, 30:90] = objects[80:84, 30:90] = 255
        if name == "cup":
            classes[90:110, 100:150], objects[90:110, 100:150] = 5, 2
        Image.fromarray(image[:120, :160]).save(folders[0] / f"{name}.jpg")
        write_mask_png(folders[1] / f"{name}.png", classes)
        write_mask_png(folders[2] / f"{name}.png", objects)
        (root / "Annotations" / f"{name}.xml").write_text(BOX)
    (root / "ImageSets/Segmentation/val.txt").write_text("cat\ncup\nsky\n")
    (root / "ImageSets/Main/trainval.txt").write_text("cat\ncup\n")
    return root.parent
