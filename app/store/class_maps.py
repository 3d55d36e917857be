"""Class maps that the page offers, and the position of an image on them."""

import contextlib
import json
import sys
import threading
from pathlib import Path
from typing import Any

from app import STATIC
from app.limits.errors import LabError, NotHere
from app.values import class_map_value
from dino_model.inference.class_map import files as class_map_files
from dino_model.inference.class_map.layout import ClassMap, PlacedImage, place
from dino_model.inference.feature_cache import weights_fingerprint
from dino_model.inference.features import FeatureExtractor
from dino_model.inference.predictor import AttentionPredictor
from segmentation.masks import ImageArray

SHIPPED = STATIC / "maps"


class Maps:
    """The maps of the package and those in --models-dir. New maps appear without a restart.

    A damaged map is left out and reported once on stderr.
    """

    def __init__(self, folder: Path | None) -> None:
        self._roots = [root for root in (SHIPPED, folder) if root]
        self._opened: dict[tuple[Path, int], ClassMap | None] = {}
        self._reading = threading.Lock()

    def all(self) -> dict[str, ClassMap]:
        """Return the readable maps by name."""
        files = [file for root in self._roots for file in sorted(root.glob("*/map.json"))]
        return {file.parent.name: class_map for file in files if (class_map := self._open(file))}

    def get(self, name: Any) -> ClassMap:
        """Return a map; raise NotHere if there is no readable one of that name."""
        class_map = self.all().get(name) if isinstance(name, str) else None
        if not class_map:
            raise NotHere("Unknown class map: choose one from the list.")
        return class_map

    def choices(self) -> list[tuple[str, str]]:
        """Return (title, name) of every map, those with pictures first."""
        maps = sorted(self.all().items(), key=lambda named: self._pictures(named[0]) is None)
        return [(f"{name} · {len(one.classes):,} classes", name) for name, one in maps]

    def _pictures(self, name: str) -> Path | None:
        files = [root / name / class_map_files.THUMBNAILS for root in self._roots]
        return next((file for file in files if file.is_file()), None)

    def pictures(self, name: str) -> bytes:
        """Return the thumbnails of a map's classes; raise NotHere if it has none."""
        self.get(name)
        if not (file := self._pictures(name)):
            raise NotHere("This class map has no pictures.")
        return file.read_bytes()

    def content(self, name: str) -> bytes:
        """Return what the browser draws of a map, without features, as JSON."""
        pictures = f"lab/maps/{name}/{class_map_files.THUMBNAILS}" if self._pictures(name) else None
        return json.dumps(class_map_value(self.get(name), pictures)).encode()

    def _open(self, file: Path) -> ClassMap | None:
        with self._reading, contextlib.suppress(OSError):  # removed meanwhile
            key = file, file.stat().st_mtime_ns
            if key not in self._opened:
                try:
                    self._opened[key] = class_map_files.read(file.parent)
                except (OSError, ValueError) as error:
                    print(f"class map left out: {error}", file=sys.stderr)
                    self._opened[key] = None
            return self._opened[key]
        return None


def place_image(drawn: ClassMap, predictor: AttentionPredictor, image: ImageArray) -> PlacedImage:
    """Compute the position of an image, uint8 RGB [height, width, 3]: the mean of its nearest classes.

    The predictor has the model of the map.
    """
    model, origin = predictor.model, drawn.origin
    if weights_fingerprint(model.backbone) != origin.weights:
        raise LabError(
            f"This map was computed with other weights of {origin.model}: "
            "compute it again with python -m dino_model class-map."
        )
    device = str(predictor.device)
    extractor = FeatureExtractor(model, origin.framing, precision=predictor.precision, device=device)
    return place(extractor.feature(image), drawn)


def facts(drawn: ClassMap) -> str:
    """Return data, model, protocol and quality of a map as a Markdown list."""
    framing, classes = drawn.origin.framing, drawn.classes
    images = sum(point.num_images for point in classes)
    return (
        f"- **Data**: {drawn.origin.data}, {len(classes):,} classes, {images:,} images\n"
        f"- **Model**: {drawn.origin.model}, short side {framing.short_side}, center crop {framing.size}\n"
        f"- **Feature**: {drawn.origin.feature}\n"
        f"- **Layout**: {drawn.protocol}\n"
        f"- **Quality**: {drawn.overlap}"
    )
