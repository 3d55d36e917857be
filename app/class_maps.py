"""Class maps that visitors may choose from, and where a picture of theirs falls on them."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.errors import LabError, NotHere
from app.photos import Picture
from dino_model.class_map import files as class_map_files
from dino_model.class_map.layout import ClassMap, feature_of, place
from dino_model.class_map.names import GROUPS
from dino_model.device import ComputePrecision
from dino_model.feature_cache import weights_fingerprint
from dino_model.weights import LoadedModel

SHIPPED = Path(__file__).parent / "static" / "maps"
FILES = {class_map_files.CSV: "text/csv", class_map_files.THUMBNAILS: "image/webp"}
GROUP_COLORS = dict(zip(GROUPS, class_map_files.COLORS, strict=True))


class Maps:
    """The maps that ship and those in a folder, looked for anew at every question.

    A damaged map is left out; the terminal says why, once.

    Args:
        folder: --models-dir, or None.
    """

    def __init__(self, folder: Path | None) -> None:
        self._roots = [root for root in (SHIPPED, folder) if root]
        self._opened: dict[tuple[Path, int], ClassMap | None] = {}

    def all(self) -> dict[str, Path]:
        """Folders of the maps by name."""
        files = [file for root in self._roots for file in sorted(root.glob("*/map.json"))]
        return {file.parent.name: file.parent for file in files if self._open(file.parent)}

    def folder(self, name: str) -> Path:
        """Of one map.

        Raises:
            NotHere: no such map.
        """
        found = self.all().get(name)
        if found is None:
            raise NotHere("There is no map of that name here: choose one from the list.", "map")
        return found

    def get(self, name: str) -> ClassMap:
        """One map.

        Raises:
            NotHere: no such map.
        """
        found = self._open(self.folder(name))
        if found is None:  # damaged since it was listed
            raise NotHere("There is no map of that name here: choose one from the list.", "map")
        return found

    def told(self) -> list[dict[str, str]]:
        """Name of every map, what a visitor reads of it, and its model."""
        drawn = {name: self.get(name) for name in self.all()}
        return [
            {
                "name": name,
                "title": f"{name} · {len(one.classes):,} classes · {one.origin.model}",
                "model": one.origin.model,
            }
            for name, one in drawn.items()
        ]

    def _open(self, folder: Path) -> ClassMap | None:
        """A map, read once as long as its file stays the same; None where it is damaged."""
        try:
            key = folder, (folder / "map.json").stat().st_mtime_ns
            if key not in self._opened:
                self._opened[key] = None
                self._opened[key] = class_map_files.read(folder)
            return self._opened[key]
        except (OSError, ValueError) as error:
            print(f"left out of the page: {error}", file=sys.stderr)
            return None


def placed(
    name: str, drawn: ClassMap, weights: LoadedModel, picture: Picture, precision: ComputePrecision
) -> dict[str, Any]:
    """Where a photograph falls on a map.

    Args:
        name: of the map.
        drawn: the map.
        weights: its model.
        picture: the photograph.
        precision: of the model.

    Raises:
        LabError: the map was drawn with other weights.
    """
    if weights_fingerprint(weights.backbone) != drawn.origin.weights:
        raise LabError(
            f"This map was drawn with other weights of {drawn.origin.model} than are used here: "
            "draw it again with python -m dino_model class-map."
        )
    found = place(feature_of(weights, picture, drawn.origin.view, precision), drawn)
    return {"map": name} | asdict(found)


def content(drawn: ClassMap) -> dict[str, Any]:
    """All of a map that is drawn; features stay here."""
    return class_map_files.as_json(drawn) | {"features": None, "said": _said(drawn)}


def _said(drawn: ClassMap) -> list[tuple[str, str]]:
    """Terms and descriptions below the map."""
    view = drawn.origin.view
    pictures = sum(point.pictures for point in drawn.classes)
    return [
        ("Data", f"{drawn.origin.data}: {len(drawn.classes):,} classes, {pictures:,} pictures"),
        ("Model", f"{drawn.origin.model}, short side {view.short_side}, centre crop {view.size} pixels"),
        ("Drawn by", str(drawn.protocol)),
        ("Quality", str(drawn.overlap)),
    ]
