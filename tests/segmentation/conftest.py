"""Fixtures of the commands' tests."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from skimage import data

from dino_model.inference.predictor import AttentionPredictor
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


@pytest.fixture
def check_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Interrupt a command at its second image and resume it; returns the number of encoded images."""

    def check(command: Callable[..., Any], names: Sequence[str], **options: Any) -> int:
        whole, resumed = tmp_path / "whole", tmp_path / "resumed"
        command(**options, output=whole, json=tmp_path / "whole.json").run()
        encoded, encode = [], AttentionPredictor.set_image

        def stop_at_second(self, image):
            encoded.append(image.shape)
            if len(encoded) == 2:
                raise KeyboardInterrupt
            encode(self, image)

        monkeypatch.setattr(AttentionPredictor, "set_image", stop_at_second)
        with pytest.raises(KeyboardInterrupt):
            command(**options, output=resumed).run()
        with (resumed / "progress.jsonl").open("a") as log:
            log.write('["cup", [')  # as a killed process leaves it
        command(**options, output=resumed, json=tmp_path / "resumed.json", resume=True).run()
        assert (tmp_path / "whole.json").read_text() == (tmp_path / "resumed.json").read_text()
        for name in names:
            assert (whole / name).read_bytes() == (resumed / name).read_bytes()
        return len(encoded)

    return check
