"""`python -m segmentation gallery`: one sheet that shows what a model's heads find in many pictures."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
import tyro

from dino_model import files, images
from dino_model.images import Images
from dino_model.options import ModelOptions
from dino_model.predictor import AttentionPredictor
from dino_model.progress import progress
from segmentation import render
from segmentation.masks import central_head, enlarge, keep_mass_of_maps
from segmentation.render import Picture

HEIGHT = 128  # pixels of a picture on the sheet


@dataclass(frozen=True)
class Gallery(ModelOptions):
    """A contact sheet: each photograph, its best head, all heads, and the best head's mask.

    Photographs are cut to their central square and titled by their class, where folders tell one.
    There is no ground truth to name the best head, so it is the one whose mask lies nearest the
    middle.
    """

    photos: tyro.conf.Positional[Path]
    """A folder, an uncompressed tar, or a text file of paths."""
    output: Path
    """The sheet, a PNG or JPEG file."""
    only: Path | None = None
    """Text file with names of pictures to choose from, one a line; as `evaluate knn --test-list` writes."""
    count: int = 24
    """Pictures on the sheet, taken evenly from all of them."""
    columns: int = 3
    """Pictures side by side."""
    mass: float = 0.6
    """Share of the attention that a mask keeps, above 0 and up to 1."""
    size: int = field(default=224, kw_only=True)
    """Pixels of the short side that the model sees."""

    def run(self) -> None:
        """Choose, look, write."""
        for name in ("count", "columns"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} is {getattr(self, name)}, expected at least 1")
        files.make_room(self.output)
        found = images.open_images(self.photos)
        print(found, flush=True)
        chosen = evenly(found, self.only, self.count)
        predictor = self.predictor()
        cells = list(self._cells(predictor, chosen))
        rows = [list(chain(*cells[i : i + self.columns])) for i in range(0, len(cells), self.columns)]
        render.save_picture(self.output, render.contact_sheet(rows, height=HEIGHT))
        print(f"{self.output}: {len(cells)} pictures, {predictor.describe()}; masks keep {self.mass:.0%}")

    def _cells(self, predictor: AttentionPredictor, chosen: Images) -> Iterator[list[tuple[str, Picture]]]:
        for index in progress(range(len(chosen)), "looking"):
            picture = central_square(chosen.read(index))
            predictor.set_image(picture)
            title = Path(chosen.names[index]).stem
            if chosen.labels is not None:
                title = chosen.classes[chosen.labels[index]]
            yield cells_of(title, picture, predictor.cls_attention(), self.mass)


def evenly(pictures: Images, only: Path | None, count: int) -> Images:
    """At most `count` pictures at even distances among all, or among the names that `only` lists.

    Raises:
        ImageError: a listed name that is not there, or none listed.
    """
    chosen = pictures if only is None else pictures.named(only)
    positions = np.linspace(0, len(chosen) - 1, min(count, len(chosen))).round().astype(int)
    return chosen.subset(positions.tolist())


def central_square(picture: Picture) -> Picture:
    """The middle of a picture: [height, width, 3] -> [side, side, 3]."""
    height, width = picture.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return picture[top : top + side, left : left + side]


def cells_of(title: str, picture: Picture, attention: np.ndarray, mass: float) -> list[tuple[str, Picture]]:
    """Photograph, best head, all heads, mask, each with its title.

    Args:
        title: of the photograph.
        picture: [height, width, 3].
        attention: of [CLS]: [heads, rows, columns].
        mass: share that masks keep, in (0, 1].
    """
    masks = keep_mass_of_maps(attention, mass)
    head = central_head(masks)
    size = picture.shape[:2]
    mask = render.overlay_masks(picture, enlarge(masks[head], size), contour=1)
    return [
        (title, picture),
        (f"head {head}", render.heat_map(attention[head], size)),
        ("all heads", render.overlay_heads(picture, attention, kept=masks)),
        (f"mask {masks[head].mean():.0%}", mask),
    ]
