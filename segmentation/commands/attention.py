"""`python -m segmentation attention`: the attention of every head as images, masks and arrays."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro
from numpy.typing import NDArray

from dino_model.data.channels import display, parse_channels
from dino_model.data.collection import Images
from dino_model.data.images import read as read_image
from dino_model.inference.options import ChannelOptions, ModelOptions, TileOptions
from dino_model.runtime.batch import BatchCommand
from dino_model.runtime.errors import SettingError, pluralize
from dino_model.runtime.files import make_room, replace_file, write_text
from dino_model.runtime.outputs import OutputFolder
from segmentation import drawing, figures
from segmentation.coco import CocoWriter
from segmentation.commands import common
from segmentation.commands.common import InputImage
from segmentation.commands.truth import TrueMasks
from segmentation.labels import VOID, Labels, write_mask_png
from segmentation.masks import ImageArray, Mask, central_head, check_mass, enlarge, keep_mass_of_maps
from segmentation.metrics import jaccard
from segmentation.report import Picture, Section, write_page

if TYPE_CHECKING:
    from dino_model.inference.predictor import AttentionPredictor

Point = tuple[int, int]  # y and x
Loaded = tuple[ImageArray, Labels | None]
Place = Callable[[str], Path]  # path of a file in the folder of an image


@dataclass(frozen=True)
class Attention(
    common.NamedMaskOptions, TileOptions, ChannelOptions, ModelOptions, BatchCommand[InputImage, Loaded]
):
    """Attention maps and masks of every head, and the attention of a point.

    Writes contact_sheet.png of up to 30 images: all heads, and the head whose mask is nearest to the center.
    Writes a folder per image, named after it. Images: heads.png (each head in its color),
    attention_head_N.png, mask_head_N.png (labels 0 and 1), overlay_head_N.png. With --point also
    point_heads.png and point_head_N.png. Masks: masks.json with masks_images.json (COCO run lengths).
    Arrays: attention.npz with `attention` [heads, h, w] float32 of the [CLS] query and `mask` [heads, h, w]
    bool. It also has `point_attention` [heads, h, w] with --point, `grid` (h, w) and `model`. h and w count
    patches.
    """

    inputs: tyro.conf.Positional[tuple[Path, ...]]
    """Images: files, folders, tars, lists of paths, or glob patterns."""
    mass: float = 0.6
    """Share of the attention that a mask keeps, above 0 and up to 1."""
    point: Annotated[str | None, tyro.conf.arg(metavar="Y,X")] = None
    """Pixel of the image, counted from its top left, whose patch is the query."""
    resize: Literal["short-side", "squash", "native"] = "short-side"
    """Resizing of the image for the model."""
    block: int = -1
    """Block whose attention is shown; -1 is the last."""
    figure: bool = False
    """Also write figure.png and figure.pdf for print: the image, the map of every head and their mean."""
    report: Path | None = None
    """HTML file for one page of all images and heads, which opens from the disk without other files."""
    masks: Path | None = None
    """True masks of the images, to score every head in the report: a folder of files with the names of the
    images, or a COCO .json file."""
    show: Annotated[str | None, tyro.conf.arg(metavar="R,G,B")] = None
    """Channels to draw as red, green and blue, with --channels. Default: the first three."""

    @cached_property
    def _images(self) -> Images:
        return common.open_inputs(self.inputs, arrays=self.channels is not None, tiles=self)

    @cached_property
    def _predictor(self) -> "AttentionPredictor":
        """The predictor, with a model adapted to the channels of the images."""
        from dino_model.models.adaptation import fit_channels  # imports torch

        model = fit_channels(self.load(), self._images.raw_channels(self.channels or 3), self.channels)
        return self.open_predictor(model, self.size, self.resize, tiles=self)

    @cached_property
    def _truths(self) -> TrueMasks | None:
        if self.masks is None:
            return None
        return TrueMasks(self.masks, self._items, self, scope="image", foreground=True)

    @cached_property
    def _rgb(self) -> tuple[int, int, int]:
        return parse_channels(self.show, len(self._predictor.model.mean))

    @cached_property
    def _items(self) -> list[InputImage]:
        channel_range = self._predictor.model.channel_range
        return common.list_inputs(replace(self._images, channel_range=channel_range))

    @cached_property
    def _point(self) -> Point | None:
        return common.parse_point(self.point)

    def items(self) -> Sequence[InputImage]:
        """Check the options, list the images with their true masks."""
        check_mass(self.mass, "--mass")
        make_room(self.report)
        if self.masks and not self.report:
            raise SettingError("--masks are for the scores of a report: pass --report, too")
        if self.show and not self.channels:
            raise SettingError("--show chooses among channels: pass --channels, too")
        return self._truths.images if self._truths else self._items

    def settings(self) -> dict[str, Any]:
        """Describe the model, the masks and the channels."""
        settings: dict[str, Any] = {"mass": self.mass, "point": self._point, "block": self.block}
        settings |= common.model_settings(self._predictor)
        if self._truths:
            settings |= self._truths.settings() | {"mask_rules": asdict(self.mask_rules())}
        if channel_range := self._predictor.model.channel_range:
            settings |= {"channels": asdict(channel_range), "shown": self._rgb}
        return settings

    def read(self, item: InputImage) -> Loaded:
        """Read an image and its true mask."""
        image = self._predictor.check_patches(item.read())
        return image, self._truths.read_one(item, image.shape) if self._truths else None

    def compute(self, item: InputImage, loaded: Loaded, output: OutputFolder) -> dict[str, Any]:
        """Write the folder of an image; record its most central head, and the scores of all heads."""
        (image, truth), predictor, point = loaded, self._predictor, self._point
        predictor.set_image(image)
        if point is not None:
            predictor.patch_at(*point)  # refused before a file is written
        attention, image = predictor.cls_attention(self.block), display(image, self._rgb)
        mask = keep_mass_of_maps(attention, self.mass)
        place = partial(output.path, item.name)
        _write_heads(place, Path(item.file_name).name, image, attention, mask)
        arrays = {"attention": attention, "mask": mask}
        if point is not None:
            arrays["point_attention"] = predictor.point_attention(*point, self.block)
            _write_point(place, image, point, arrays["point_attention"], self.mass)
        if self.figure:
            maps = arrays.get("point_attention", attention)
            _write_figure(place, image, point, maps, predictor.describe())
        with replace_file(place("attention.npz")) as temporary:
            grid, name = np.array(predictor.grid), np.array(predictor.model.name)
            np.savez_compressed(temporary, allow_pickle=False, grid=grid, model=name, **arrays)
        scores: list[float] = []
        if truth is not None:
            scores = jaccard(enlarge(mask, truth.shape), truth[None] == 1, truth[None] == VOID).tolist()
        print(f"{output.folder / item.name}: {predictor.describe()}; masks keep {self.mass:.0%}", flush=True)
        return {"head": central_head(mask), "jaccard": scores}

    def finish(self, items: Sequence[InputImage], output: OutputFolder) -> dict[str, Any]:
        """Write the contact sheet and the report."""
        self._write_sheet(common.choose_evenly(items), output)
        facts: dict[str, Any] = {"images": len(items), "model": self._predictor.model.name}
        facts["masks keep"] = f"{self.mass:.0%}"
        if self.tile:
            tiles = "the mass of each tile is from one pass of the whole image, its map from the tile"
            facts["attention"] = f"tiles of {self.tile} pixels; {tiles}"
        if scored := [record["jaccard"] for record in output.finished.values() if record["jaccard"]]:
            best, by_head = 100 * np.mean([max(row) for row in scored]), 100 * np.mean(scored, axis=0)
            facts["mean Jaccard of the best head per image"] = f"{best:.1f} %"
            facts["mean Jaccard of each head"] = ", ".join(f"{value:.1f} %" for value in by_head)
        print("; ".join(f"{key} {value}" for key, value in facts.items()))
        if self.report:
            sheet = read_image(output.folder / "contact_sheet.png")
            first = Section("Contact sheet", [Picture(sheet, "", "Contact sheet of the images")], side=4000)
            sections = (self._section(item, output) for item in items)
            write_text(self.report, write_page("Attention of every head", facts, chain([first], sections)))
            print(f"report of {pluralize(len(items), 'image')} written to {self.report}")
        return facts | {"records": {item.name: output.finished[item.name] for item in items}}

    def _write_sheet(self, items: Sequence[InputImage], output: OutputFolder) -> None:
        """Draw a contact sheet of three images in a row, each with its heads, most central head, and mask."""
        cells = []
        for item in items:
            head, folder = output.finished[item.name]["head"], output.folder / item.name
            drawn = {
                item.title: display(item.read(), self._rgb),
                "all heads": read_image(folder / "heads.png"),
                f"head {head}": read_image(folder / f"attention_head_{head}.png"),
                "mask": read_image(folder / f"overlay_head_{head}.png"),
            }
            cells.append(drawn.items())
        rows = [list(chain(*cells[start : start + 3])) for start in range(0, len(cells), 3)]
        drawing.save_image(output.path("contact_sheet.png"), drawing.contact_sheet(rows))

    def _section(self, item: InputImage, output: OutputFolder) -> Section:
        """Describe an image in the report, with the masks of all heads."""
        folder, record = output.folder / item.name, output.finished[item.name]
        scores, heads = record["jaccard"], read_image(folder / "heads.png")
        best = int(np.argmax(scores)) if scores else record["head"]
        chosen = "highest Jaccard similarity" if scores else "mask nearest to the center"
        pictures = [
            Picture(display(item.read(), self._rgb), "image", f"Image {item.title}"),
            Picture(heads, "all heads", "Attention of all heads, each in its color"),
        ]
        for head in range(self._predictor.heads):
            caption = f"head {head}" + (f", {100 * scores[head]:.1f} %" if scores else "")
            drawn = read_image(folder / f"overlay_head_{head}.png")
            pictures.append(Picture(drawn, caption, f"Mask of head {head} over the image", head == best))
        return Section(item.title, pictures, f"Bold: head {best}, {chosen}.")


def _write_heads(
    place: Place, file_name: str, image: ImageArray, attention: NDArray[np.float32], patches: Mask
) -> None:
    size = (image.shape[0], image.shape[1])
    masks: Mask = enlarge(patches, size)  # [heads, height, width]
    names = [f"head {head}" for head in range(len(masks))]
    colored = drawing.overlay_heads(image, attention, patches)
    drawing.save_image(place("heads.png"), drawing.with_names(colored, names))
    for head, (values, mask) in enumerate(zip(attention, masks, strict=True)):
        drawing.save_image(place(f"attention_head_{head}.png"), drawing.heat_map(values, size))
        write_mask_png(place(f"mask_head_{head}.png"), mask.astype(np.uint8))
        overlay = drawing.overlay_masks(image, mask, colors=drawing.head_colors(head + 1)[-1:])
        drawing.save_image(place(f"overlay_head_{head}.png"), overlay)
    writer = CocoWriter(place("masks.json"), place("masks_images.json"), dict(enumerate(names, start=1)))
    writer.add(file_name, size, ((head, mask, 1.0) for head, mask in enumerate(masks, start=1)))
    writer.write()


def _write_point(
    place: Place, image: ImageArray, point: Point, attention: NDArray[np.float32], mass: float
) -> None:
    colored = drawing.overlay_heads(image, attention, keep_mass_of_maps(attention, mass))
    drawing.save_image(place("point_heads.png"), drawing.draw_point(colored, *point))
    for head, values in enumerate(attention):
        heat = drawing.overlay_heat(image, values)
        drawing.save_image(place(f"point_head_{head}.png"), drawing.draw_point(heat, *point))


def _write_figure(
    place: Place, image: ImageArray, point: Point | None, attention: NDArray[np.float32], model: str
) -> None:
    query = f"the patch at the marked pixel {point[0]},{point[1]}" if point else "[CLS]"
    caption = f"Attention of {query}. {model}. All maps have the same scale."
    center = (point[0] + 0.5, point[1] + 0.5) if point else None
    figure = figures.map_figure(image, 100 * attention, label="attention (%)", caption=caption, point=center)
    for kind in figures.FIGURE_KINDS:
        place(f"figure.{kind}").write_bytes(figures.figure_bytes(figure, kind))
