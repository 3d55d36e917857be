"""`python -m segmentation attention`: the attention of every head as images, masks and arrays."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from dino_model.files import replacing
from dino_model.images import ImageError
from dino_model.options import ModelOptions
from dino_model.outputs import OutputOptions, SkippedInputs
from segmentation import coco, drawing
from segmentation.commands.common import (
    check_point,
    model_settings,
    open_inputs,
    parse_point,
    read_images,
)
from segmentation.labels import write_mask_png
from segmentation.masks import ImageArray, Mask, check_mass, enlarge, keep_mass_of_maps


@dataclass(frozen=True)
class Attention(ModelOptions, OutputOptions):
    """Attention maps and masks of every head, and the attention of a point.

    Writes a folder per image, named after it: overview.png (everything on one sheet), heads.png (each head in
    its color), attention_head_N.png, mask_head_N.png (labels 0 and 1), overlay_head_N.png; with --point also
    point_heads.png and point_head_N.png; masks.json with masks_images.json (COCO run lengths); and
    attention.npz with `attention` [heads, h, w] float32 of the [CLS] query, `mask` [heads, h, w] bool,
    `point_attention` [heads, h, w] with --point, `grid` (h, w) and `model`; h and w count patches.
    """

    inputs: tyro.conf.Positional[tuple[Path, ...]]
    """Images: files, folders, tars, lists of paths, or glob patterns."""
    mass: float = 0.6
    """Share of the attention that a mask keeps, above 0 and up to 1."""
    point: Annotated[str | None, tyro.conf.arg(metavar="Y,X")] = None
    """Pixel of the image, counted from its top left, whose patch is the query."""
    resize: Literal["short-side", "squash", "native"] = "short-side"
    """How the image is resized for the model."""
    block: int = -1
    """Block whose attention is shown; -1 is the last."""

    def run(self) -> None:
        """Compute and write one image after the other."""
        point = None if self.point is None else parse_point(self.point)
        check_mass(self.mass, "--mass")
        self.check_output()
        inputs = open_inputs(self.inputs)
        predictor = self.predictor(self.resize)
        settings = {"mass": self.mass, "point": self.point, "block": self.block}
        output = self.open_output(model_settings(predictor) | settings)
        skipped = SkippedInputs()
        todo = [item for item in inputs if not output.has(item.name, [item.file])]
        for item, image in read_images(todo, skipped, predictor, "attention"):
            try:
                if point is not None:
                    check_point(point, image)
            except ImageError as error:
                skipped.add(item.file_name, error)
                continue
            predictor.set_image(image)
            attention = predictor.cls_attention(self.block)
            point_attention = None if point is None else predictor.point_attention(*point, self.block)
            folder = output.path(item.name)
            folder.mkdir(exist_ok=True)
            maps = _Maps(image, attention, self.mass, point, point_attention)
            maps.write(folder, Path(item.file_name).name, predictor.model.name)
            output.add(item.name, inputs=[item.file], files=[folder / "attention.npz"])
            print(f"{folder}: {predictor.describe()}; masks keep {self.mass:.0%}", flush=True)
        output.finish()
        skipped.check(len(inputs))


class _Maps:
    """Everything that is written about one image."""

    def __init__(
        self,
        image: ImageArray,
        attention: np.ndarray,
        mass: float,
        point: tuple[int, int] | None,
        point_attention: np.ndarray | None,
    ) -> None:
        self.image, self.attention, self.point, self.point_attention = (
            image,
            attention,
            point,
            point_attention,
        )
        self.mask = keep_mass_of_maps(attention, mass)
        self.point_mask = None if point_attention is None else keep_mass_of_maps(point_attention, mass)

    def write(self, folder: Path, file_name: str, model: str) -> None:
        """Write all files; the arrays last, which mark the folder as complete."""
        self._write_heads(folder, file_name)
        arrays = {"attention": self.attention, "mask": self.mask}
        if self.point is not None and self.point_attention is not None and self.point_mask is not None:
            self._write_point(folder, self.point, self.point_attention, self.point_mask)
            arrays["point_attention"] = self.point_attention
        sheet = drawing.attention_sheet(
            self.image, self.attention, self.mask, self.point, self.point_attention, self.point_mask
        )
        drawing.save_png(folder / "overview.png", sheet)
        with replacing(folder / "attention.npz") as beside, beside.open("wb") as file:
            grid = np.array(self.attention.shape[1:])
            np.savez_compressed(file, allow_pickle=False, grid=grid, model=np.array(model), **arrays)

    def _write_heads(self, folder: Path, file_name: str) -> None:
        image, size = self.image, (self.image.shape[0], self.image.shape[1])
        masks: Mask = enlarge(self.mask, size)  # [heads, height, width]
        colors = drawing.head_colors(len(masks))
        named = [(f"head {head}", color) for head, color in enumerate(colors)]
        colored = drawing.overlay_heads(image, self.attention, kept=self.mask)
        drawing.save_png(folder / "heads.png", drawing.with_legend(colored, named))
        for head, (values, mask) in enumerate(zip(self.attention, masks, strict=True)):
            drawing.save_png(folder / f"attention_head_{head}.png", drawing.heat_map(values, size))
            write_mask_png(folder / f"mask_head_{head}.png", mask.astype(np.uint8))
            overlay = drawing.overlay_masks(image, mask, colors=colors[head : head + 1])
            drawing.save_png(folder / f"overlay_head_{head}.png", overlay)
        records = [coco.coco_record(1, head + 1, mask) for head, mask in enumerate(masks)]
        coco.write_coco_results(folder / "masks.json", records)
        heads = {head + 1: f"head {head}" for head in range(len(masks))}
        coco.write_coco_images(folder / "masks_images.json", {1: (file_name, size)}, heads)

    def _write_point(self, folder: Path, point: tuple[int, int], attention: np.ndarray, mask: Mask) -> None:
        colored = drawing.overlay_heads(self.image, attention, kept=mask)
        drawing.save_png(folder / "point_heads.png", drawing.draw_point(colored, *point))
        for head, values in enumerate(attention):
            heat = drawing.overlay_heat(self.image, values)
            drawing.save_png(folder / f"point_head_{head}.png", drawing.draw_point(heat, *point))
