"""`python -m segmentation gallery`: one sheet that shows the attention of many images."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
import tyro

from dino_model.images import ImageError
from dino_model.options import ModelOptions
from dino_model.outputs import SkippedInputs, check_output_file, write_provenance
from segmentation import drawing
from segmentation.commands.common import (
    InputImage,
    check_at_least,
    model_settings,
    open_inputs,
    read_images,
)
from segmentation.masks import ImageArray, central_head, check_mass, enlarge, keep_mass_of_maps

HEIGHT = 128  # pixels of an image on the sheet


@dataclass(frozen=True)
class Gallery(ModelOptions):
    """Contact sheet: each image, the best head, all heads, and the mask of the best head.

    Images are cropped to their central square and titled by their class, where folders name classes. Without
    ground truth, the best head is the one whose mask is nearest to the center. OUTPUT.provenance.json beside
    the sheet describes how it was made.
    """

    inputs: tyro.conf.Positional[tuple[Path, ...]]
    """Images: files, folders, tars, lists of paths, or glob patterns."""
    output: Path
    """The sheet, a PNG or JPEG file."""
    overwrite: bool = False
    """Replace an existing sheet."""
    only: Path | None = None
    """Text file with the names of the images to choose from, one per line."""
    count: int = 24
    """Number of images on the sheet, at even distances among all."""
    columns: int = 3
    """Images per row."""
    mass: float = 0.6
    """Share of the attention that a mask keeps, above 0 and up to 1."""
    size: int = field(default=224, kw_only=True)
    """Pixels of the short side of the model's input."""

    def run(self) -> None:
        """Choose, compute, write."""
        check_at_least(self, count=1, columns=1)
        check_mass(self.mass, "--mass")
        drawing.check_suffix(self.output)
        check_output_file(self.output, overwrite=self.overwrite)
        inputs = choose_evenly(open_inputs(self.inputs), self.only, self.count)
        predictor = self.predictor()
        skipped = SkippedInputs()
        cells = []
        for item, square in read_images(inputs, skipped, predictor, "gallery", central_square):
            predictor.set_image(square)
            title = item.label or Path(item.name).name
            cells.append(sheet_cells(title, square, predictor.cls_attention(), self.mass))
        if not cells:
            skipped.check(len(inputs))
        rows = [list(chain(*cells[i : i + self.columns])) for i in range(0, len(cells), self.columns)]
        drawing.save_image(self.output, drawing.contact_sheet(rows, height=HEIGHT))
        settings = model_settings(predictor) | {"count": self.count, "mass": self.mass}
        write_provenance(self.output.with_name(f"{self.output.name}.provenance.json"), settings)
        print(f"{self.output}: {len(cells)} images, {predictor.describe()}; masks keep {self.mass:.0%}")
        skipped.check(len(inputs))


def choose_evenly(inputs: Sequence[InputImage], only: Path | None, count: int) -> list[InputImage]:
    """Choose at most `count` images at even distances among all, or among the names that `only` lists.

    Raises:
        ImageError: A listed name that is no input, or no name.
    """
    chosen = list(inputs)
    if only is not None:
        names = {line.strip() for line in only.read_text(encoding="utf-8").splitlines() if line.strip()}
        unknown = sorted(names - {item.file_name for item in inputs})
        if unknown or not names:
            raise ImageError(
                f"{only} names {len(unknown)} images that are not there, the first is "
                f"{unknown[0] if unknown else 'missing'}; names look like {inputs[0].file_name}"
            )
        chosen = [item for item in inputs if item.file_name in names]
    positions = np.linspace(0, len(chosen) - 1, min(count, len(chosen))).round().astype(int)
    return [chosen[position] for position in positions]


def central_square(image: ImageArray) -> ImageArray:
    """Crop the central square: [height, width, 3] -> [side, side, 3]."""
    height, width = image.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return image[top : top + side, left : left + side]


def sheet_cells(
    title: str, image: ImageArray, attention: np.ndarray, mass: float
) -> list[tuple[str, ImageArray]]:
    """Draw image, best head, all heads and mask, each with its title.

    Args:
        title: Title of the image.
        image: [height, width, 3].
        attention: [CLS] attention, [heads, rows, columns].
        mass: Share that masks keep, in (0, 1].
    """
    masks = keep_mass_of_maps(attention, mass)
    head = central_head(masks)
    size = image.shape[:2]
    mask = drawing.overlay_masks(image, enlarge(masks[head], size), contour=1)
    return [
        (title, image),
        (f"head {head}", drawing.heat_map(attention[head], size)),
        ("all heads", drawing.overlay_heads(image, attention, kept=masks)),
        (f"mask {masks[head].mean():.0%}", mask),
    ]
