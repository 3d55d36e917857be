"""Class maps that the page offers, and the position of an image on them."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.errors import LabError, NotHere
from app.photos import Picture
from dino_model.class_map import files as class_map_files
from dino_model.class_map.layout import ClassMap, Placement, place
from dino_model.class_map.names import GROUPS
from dino_model.device import ComputePrecision
from dino_model.feature_cache import weights_fingerprint
from dino_model.features import FeatureExtractor
from dino_model.weights import LoadedModel

SHIPPED = Path(__file__).parent / "static" / "maps"
GROUP_COLORS: Mapping[str, str] = dict(zip(GROUPS, class_map_files.COLORS, strict=True))


class Maps:
    """The maps of the package and those in a folder. New maps appear without a restart.

    A damaged map is left out and reported once on stderr.

    Args:
        folder: --models-dir, or None.
    """

    def __init__(self, folder: Path | None) -> None:
        self._roots = [root for root in (SHIPPED, folder) if root]
        self._opened: dict[tuple[Path, int], ClassMap | None] = {}

    def all(self) -> dict[str, ClassMap]:
        """Return the readable maps by name."""
        return {folder.name: found for folder in self._folders() if (found := self._open(folder))}

    def get(self, name: Any) -> ClassMap:
        """Return a map; raise NotHere if there is no readable one of that name."""
        found = self.all().get(name) if isinstance(name, str) else None
        if not found:
            raise NotHere("Unknown class map: choose one from the list.")
        return found

    def choices(self) -> list[tuple[str, str]]:
        """Return (title, name) of every map."""
        return [
            (f"{name} · {len(one.classes):,} classes · {one.origin.model}", name)
            for name, one in self.all().items()
        ]

    def content(self, name: str) -> bytes:
        """Return what the browser draws of a map, without features, as JSON."""
        groups = [{"name": group, "color": color} for group, color in GROUP_COLORS.items()]
        drawn = class_map_files.as_json(self.get(name)) | {"features": None, "groups": groups}
        return json.dumps(drawn).encode()

    def _folders(self) -> list[Path]:
        return [file.parent for root in self._roots for file in sorted(root.glob("*/map.json"))]

    def _open(self, folder: Path) -> ClassMap | None:
        """Read a map once per version of its file; None if it is damaged."""
        try:
            key = folder, (folder / class_map_files.JSON).stat().st_mtime_ns
            if key not in self._opened:
                self._opened[key] = None
                self._opened[key] = class_map_files.read(folder)
            return self._opened[key]
        except (OSError, ValueError) as error:
            print(f"class map left out: {error}", file=sys.stderr)
            return None


def place_image(
    drawn: ClassMap, weights: LoadedModel, picture: Picture, precision: ComputePrecision
) -> Placement:
    """Compute the position of an image: the mean of its nearest classes by feature.

    Args:
        drawn: The map.
        weights: The model of the map.
        picture: RGB, uint8 [height, width, 3].
        precision: Of the forward pass.
    """
    if weights_fingerprint(weights.backbone) != drawn.origin.weights:
        raise LabError(
            f"This map was computed with other weights of {drawn.origin.model}: "
            "compute it again with python -m dino_model class-map."
        )
    device = str(next(weights.backbone.parameters()).device)
    extractor = FeatureExtractor(weights, drawn.origin.view, precision=precision, device=device)
    return place(extractor.feature(picture), drawn)


def facts(drawn: ClassMap) -> str:
    """Return data, model, protocol and quality of a map as a Markdown list."""
    view = drawn.origin.view
    images = sum(point.pictures for point in drawn.classes)
    return "\n".join(
        (
            f"- **Data**: {drawn.origin.data}, {len(drawn.classes):,} classes, {images:,} images",
            f"- **Model**: {drawn.origin.model}, short side {view.short_side}, center crop {view.size}",
            f"- **Layout**: {drawn.protocol}",
            f"- **Quality**: {drawn.overlap}",
        )
    )
