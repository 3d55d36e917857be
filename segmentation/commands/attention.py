"""`python -m segmentation attention`: where each head looks, as pictures, masks and figures."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from dino_model import images
from dino_model.ahead import load_ahead
from dino_model.images import ImageError
from dino_model.options import ModelOptions
from dino_model.predictor import AttentionPredictor
from segmentation import export, render
from segmentation.commands.naming import names_of
from segmentation.masks import Mask, enlarge, keep_mass_of_maps
from segmentation.render import Picture

_OUR_FILES = ("attention.npz", "overview.png", "heads.png", "*_head_*.png", "point_heads.png", "masks*.json")


@dataclass(frozen=True)
class Attention(ModelOptions):
    """Where every head of a ViT looks in photographs: maps, masks, and the attention of a point.

    Writes a folder per photograph, named after it: overview.png (everything at a glance), heads.png (each
    head in its colour), attention_head_N.png, mask_head_N.png (labels 0 and 1), overlay_head_N.png; with
    --point also point_heads.png and point_head_N.png; masks.json with masks_images.json (COCO run lengths);
    and attention.npz with `attention` [heads, h, w] float32 of the [CLS] query, `mask` [heads, h, w] bool,
    `point_attention` [heads, h, w] with --point, `grid` (h, w) and `model`; h and w count patches.
    """

    photos: tyro.conf.Positional[tuple[Path, ...]]
    """Photographs."""
    output: Path
    """Folder to write to; made if missing."""
    mass: float = 0.6
    """Share of the attention that a mask keeps, above 0 and up to 1."""
    point: Annotated[str | None, tyro.conf.arg(metavar="Y,X")] = None
    """A pixel of the photograph, counted from its top left; the attention of its patch is shown too."""
    resize: Literal["short-side", "squash", "native"] = "short-side"
    """How the photograph is brought to the model's size."""
    block: int = -1
    """Block whose attention is shown; -1 is the last."""

    def run(self) -> None:
        """Look at one photograph after the other: each is written before the next is kept in memory."""
        point = None if self.point is None else parse_point(self.point)
        folders = [self.output / name for name in names_of(self.photos, self.output)]
        predictor = self.predictor(self.resize)
        broken: list[str] = []
        for folder, photo, picture in zip(
            folders, self.photos, load_ahead(_read, self.photos, 1), strict=True
        ):
            if isinstance(picture, ImageError):
                broken.append(str(picture))
            else:
                self._write(folder, photo, picture, predictor, point)
        if broken:
            raise ImageError(f"left out {len(broken)} of {len(folders)} photographs: {'; '.join(broken)}")

    def _write(
        self,
        folder: Path,
        photo: Path,
        picture: Picture,
        predictor: AttentionPredictor,
        point: tuple[int, int] | None,
    ) -> None:
        predictor.set_image(picture)
        attention = predictor.cls_attention(self.block)
        mask = keep_mass_of_maps(attention, self.mass)
        of_point = None if point is None else predictor.point_attention(*point, self.block)
        _empty(folder)
        _write_maps(folder, photo.name, picture, attention, mask)
        of_point_mask = None if of_point is None else keep_mass_of_maps(of_point, self.mass)
        if point is not None and of_point is not None and of_point_mask is not None:
            _write_point(folder, picture, point, of_point, of_point_mask)
        sheet = render.attention_sheet(picture, attention, mask, point, of_point, of_point_mask)
        render.save_png(folder / "overview.png", sheet)
        _write_arrays(folder / "attention.npz", attention, mask, of_point, predictor.model.name)
        print(f"{folder}: {predictor.describe()}; masks keep {self.mass:.0%} of the attention", flush=True)


def _read(photo: Path) -> Picture | ImageError:
    """A photograph, or what is wrong with it."""
    try:
        return images.read(photo, name=str(photo))
    except ImageError as error:
        return error


def parse_point(text: str) -> tuple[int, int]:
    """Two whole numbers Y,X.

    Raises:
        ValueError: anything else.
    """
    try:
        y, x = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--point is {text!r}; expected two whole numbers Y,X, such as 120,200") from None
    return y, x


def _empty(folder: Path) -> None:
    """Make the folder; remove what an earlier run wrote, whose heads may be others."""
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in _OUR_FILES:
        for old in folder.glob(pattern):
            old.unlink()


def _write_maps(folder: Path, name: str, picture: Picture, attention: np.ndarray, mask: Mask) -> None:
    size = (picture.shape[0], picture.shape[1])
    masks = enlarge(mask, size)  # [heads, height, width]
    colors = render.head_colors(len(masks))
    named = [(f"head {head}", color) for head, color in enumerate(colors)]
    coloured = render.overlay_heads(picture, attention, kept=mask)
    render.save_png(folder / "heads.png", render.with_legend(coloured, named))
    for head, (values, one) in enumerate(zip(attention, masks, strict=True)):
        render.save_png(folder / f"attention_head_{head}.png", render.heat_map(values, size))
        export.write_mask_png(folder / f"mask_head_{head}.png", one.astype(np.uint8))
        overlay = render.overlay_masks(picture, one, colors=colors[head : head + 1])
        render.save_png(folder / f"overlay_head_{head}.png", overlay)
    records = [export.coco_record(1, head + 1, one) for head, one in enumerate(masks)]
    export.write_coco_results(folder / "masks.json", records)
    heads = {head + 1: f"head {head}" for head in range(len(masks))}
    export.write_coco_images(folder / "masks_images.json", {1: (name, size)}, heads)


def _write_point(
    folder: Path, picture: Picture, point: tuple[int, int], attention: np.ndarray, mask: Mask
) -> None:
    coloured = render.overlay_heads(picture, attention, kept=mask)
    render.save_png(folder / "point_heads.png", render.draw_point(coloured, *point))
    for head, values in enumerate(attention):
        heat = render.overlay_heat(picture, values)
        render.save_png(folder / f"point_head_{head}.png", render.draw_point(heat, *point))


def _write_arrays(
    path: Path, attention: np.ndarray, mask: Mask, of_point: np.ndarray | None, model: str
) -> None:
    arrays = {"attention": attention, "mask": mask}
    if of_point is not None:
        arrays["point_attention"] = of_point
    export.write_npz(path, grid=np.array(attention.shape[1:]), model=np.array(model), **arrays)
