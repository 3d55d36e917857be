"""`python -m segmentation attention`: the attention of every head as images, masks and arrays."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro
from numpy.typing import NDArray

from dino_model.data.channels import display, parse_channels
from dino_model.data.images import read as read_image
from dino_model.inference.options import ModelOptions, TileOptions
from dino_model.runtime.errors import SettingError, pluralize
from dino_model.runtime.files import make_room, replace_file, write_text
from dino_model.runtime.outputs import OutputFolder, OutputOptions, SkippedInputs
from segmentation import drawing, figures, report
from segmentation.coco import CocoWriter
from segmentation.commands import common
from segmentation.commands.common import InputImage
from segmentation.commands.truth import TrueMasks
from segmentation.labels import VOID, Labels, write_mask_png
from segmentation.masks import ImageArray, Mask, central_head, check_mass, enlarge, keep_mass_of_maps
from segmentation.metrics import jaccard

if TYPE_CHECKING:
    from dino_model.inference.predictor import AttentionPredictor

Point = tuple[int, int]  # y and x


@dataclass(frozen=True)
class Attention(common.NamedMaskOptions, TileOptions, ModelOptions, OutputOptions):
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
    channels: int | None = None
    """Channels of the images, which are then read as they are stored (gray, 16-bit and multispectral TIFF,
    .npy). A model of RGB is adapted to them. Default: images are read as RGB."""
    show: Annotated[str | None, tyro.conf.arg(metavar="R,G,B")] = None
    """Channels to draw as red, green and blue, with --channels. Default: the first three."""

    def run(self) -> None:
        """Compute and write one image after the other."""
        point = self._check_options()
        inputs, predictor = self._open_inputs()
        truths = TrueMasks(self.masks, inputs, self, scope="image", foreground=True) if self.masks else None
        inputs = truths.images if truths else inputs
        rgb = parse_channels(self.show, len(predictor.model.mean))
        settings: dict[str, Any] = {"mass": self.mass, "point": self.point, "block": self.block}
        settings |= truths.settings() | {"mask_rules": asdict(self.mask_rules())} if truths else {}
        if channel_range := predictor.model.channel_range:
            settings |= {"channels": asdict(channel_range), "shown": rgb}
        output, skipped = self.open_output(common.model_settings(predictor) | settings), SkippedInputs()

        def read(item: InputImage) -> tuple[ImageArray, Labels | None]:
            image = predictor.check_patches(item.read())
            common.check_point(point, image)
            return image, truths.read_one(item, image.shape) if truths else None

        todo = [item for item in inputs if not output.has(item.name, item.files)]
        for item, (image, truth) in common.read_ahead(todo, read, skipped, "attention"):
            predictor.set_image(image)
            self._write_image(output, item, predictor, display(image, rgb), truth, point)
        finished = [item for item in inputs if item.name in output.finished]
        _write_sheet(output, common.choose_evenly(finished), rgb)
        output.finish()
        if self.report:
            facts = {"images": len(finished), "model": predictor.model.name, "masks keep": f"{self.mass:.0%}"}
            if self.tile:
                tiles = "the mass of each tile is from one pass of the whole image, its map from the tile"
                facts["attention"] = f"tiles of {self.tile} pixels; {tiles}"
            self._write_report(self.report, output, finished, facts, rgb)
        skipped.check(len(inputs))

    def _check_options(self) -> Point | None:
        """Check what needs no image; returns the point."""
        check_mass(self.mass, "--mass")
        self.check_output()
        make_room(self.report)
        if self.masks and not self.report:
            raise SettingError("--masks are for the scores of a report: pass --report, too")
        if self.show and not self.channels:
            raise SettingError("--show chooses among channels: pass --channels, too")
        return common.parse_point(self.point)

    def _open_inputs(self) -> tuple[list[InputImage], "AttentionPredictor"]:
        """Find the images, with their true masks, and load the model, adapted to their channels."""
        from dino_model.models.adaptation import fit_channels  # imports torch

        images = common.open_inputs(self.inputs, arrays=self.channels is not None, tiles=self)
        model = fit_channels(self.load(), images.raw_channels(self.channels or 3), self.channels)
        inputs = common.list_inputs(replace(images, channel_range=model.channel_range))
        return inputs, self.predictor(self.resize, model=model, tiles=self)

    def _write_image(
        self,
        output: OutputFolder,
        item: InputImage,
        predictor: "AttentionPredictor",
        image: ImageArray,
        truth: Labels | None,
        point: Point | None,
    ) -> None:
        """Write the folder of the image that the predictor has, drawn on `image`; record its scores."""
        attention = predictor.cls_attention(self.block)
        mask = keep_mass_of_maps(attention, self.mass)
        folder = output.path(item.name)
        folder.mkdir(exist_ok=True)
        _write_heads(folder, Path(item.file_name).name, image, attention, mask)
        arrays = {"attention": attention, "mask": mask}
        if point is not None:
            arrays["point_attention"] = predictor.point_attention(*point, self.block)
            _write_point(folder, image, point, arrays["point_attention"], self.mass)
        if self.figure:
            maps = arrays.get("point_attention", attention)
            _write_figure(folder, image, point, maps, predictor.describe())
        with replace_file(folder / "attention.npz") as temporary:
            grid, name = np.array(predictor.grid), np.array(predictor.model.name)
            np.savez_compressed(temporary, allow_pickle=False, grid=grid, model=name, **arrays)
        scores: list[float] = []
        if truth is not None:
            on_image = enlarge(mask, (truth.shape[0], truth.shape[1]))
            scores = jaccard(on_image, truth[None] == 1, truth[None] == VOID).tolist()
        record = {"head": central_head(mask), "title": item.title, "jaccard": scores}
        output.add(item.name, record, inputs=item.files, files=[folder / "attention.npz"])
        print(f"{folder}: {predictor.describe()}; masks keep {self.mass:.0%}", flush=True)

    def _write_report(
        self,
        file: Path,
        output: OutputFolder,
        items: Sequence[InputImage],
        facts: dict[str, Any],
        rgb: tuple[int, int, int],
    ) -> None:
        """Write the page of all finished images, and print the scores."""
        records = [output.finished[item.name] for item in items]
        scored = [record["jaccard"] for record in records if record["jaccard"]]
        if scored:
            by_head = 100 * np.mean(scored, axis=0)
            facts["mean Jaccard of the best head per image"] = (
                f"{100 * np.mean([max(row) for row in scored]):.1f} %"
            )
            facts["mean Jaccard of each head"] = ", ".join(f"{value:.1f} %" for value in by_head)
        sections = []
        if items:
            sheet = read_image(output.folder / "contact_sheet.png")
            description = "Contact sheet: each image with all heads, the most central head, and its mask"
            sections = [report.Section("Contact sheet", [report.Picture(sheet, "", description)], side=4000)]
        sections_of_images = (
            _section(display(item.read(), rgb), output.folder / item.name, record)
            for item, record in zip(items, records, strict=True)
        )
        write_text(
            file, report.write_page("Attention of every head", facts, chain(sections, sections_of_images))
        )
        print("; ".join(f"{key} {value}" for key, value in facts.items()))
        print(f"report of {pluralize(len(items), 'image')} written to {file}")


def _write_heads(
    folder: Path, file_name: str, image: ImageArray, attention: NDArray[np.float32], patches: Mask
) -> None:
    size = (image.shape[0], image.shape[1])
    masks: Mask = enlarge(patches, size)  # [heads, height, width]
    colors = drawing.head_colors(len(masks))
    names = [f"head {head}" for head in range(len(masks))]
    colored = drawing.overlay_heads(image, attention, patches=patches)
    legend = list(zip(names, colors, strict=True))
    drawing.save_image(folder / "heads.png", drawing.with_legend(colored, legend))
    for head, (values, mask) in enumerate(zip(attention, masks, strict=True)):
        drawing.save_image(folder / f"attention_head_{head}.png", drawing.heat_map(values, size))
        write_mask_png(folder / f"mask_head_{head}.png", mask.astype(np.uint8))
        overlay = drawing.overlay_masks(image, mask, colors=colors[head : head + 1])
        drawing.save_image(folder / f"overlay_head_{head}.png", overlay)
    categories = dict(enumerate(names, start=1))
    writer = CocoWriter(folder / "masks.json", folder / "masks_images.json", categories)
    writer.add(file_name, size, ((head, mask, 1.0) for head, mask in enumerate(masks, start=1)))
    writer.write()


def _write_point(
    folder: Path, image: ImageArray, point: Point, attention: NDArray[np.float32], mass: float
) -> None:
    colored = drawing.overlay_heads(image, attention, mass=mass)
    drawing.save_image(folder / "point_heads.png", drawing.draw_point(colored, *point))
    for head, values in enumerate(attention):
        heat = drawing.overlay_heat(image, values)
        drawing.save_image(folder / f"point_head_{head}.png", drawing.draw_point(heat, *point))


def _write_figure(
    folder: Path, image: ImageArray, point: Point | None, attention: NDArray[np.float32], model: str
) -> None:
    query = f"the patch at the marked pixel {point[0]},{point[1]}" if point else "[CLS]"
    caption = f"Attention of {query}. {model}. All maps have the same scale."
    center = (point[0] + 0.5, point[1] + 0.5) if point else None
    figure = figures.map_figure(image, 100 * attention, label="attention (%)", caption=caption, point=center)
    for kind in figures.FIGURE_KINDS:
        (folder / f"figure.{kind}").write_bytes(figures.figure_bytes(figure, kind))


def _section(image: ImageArray, folder: Path, record: dict[str, Any]) -> report.Section:
    scores = record["jaccard"]
    best = int(np.argmax(scores)) if scores else record["head"]
    chosen = "highest Jaccard similarity" if scores else "mask nearest to the center"
    heads = sorted(folder.glob("overlay_head_*.png"), key=lambda file: int(file.stem.rpartition("_")[2]))
    pictures = [
        report.Picture(image, "image", f"Image {record['title']}"),
        report.Picture(
            read_image(folder / "heads.png"), "all heads", "Attention of all heads, each in its color"
        ),
    ]
    for head, file in enumerate(heads):
        score = f", {100 * scores[head]:.1f} %" if scores else ""
        description = f"Mask of head {head} over the image{score}"
        pictures.append(report.Picture(read_image(file), f"head {head}{score}", description, head == best))
    return report.Section(record["title"], pictures, f"Bold: head {best}, {chosen}.")


def _write_sheet(output: OutputFolder, items: Sequence[InputImage], rgb: tuple[int, int, int]) -> None:
    """Draw a contact sheet of three images in a row, each with its heads, most central head, and mask."""
    cells = []
    for item in items:
        folder, record = output.folder / item.name, output.finished[item.name]
        head = record["head"]
        files = {
            "all heads": "heads.png",
            f"head {head}": f"attention_head_{head}.png",
            "mask": f"overlay_head_{head}.png",
        }
        drawn = ((name, read_image(folder / file)) for name, file in files.items())
        cells.append([(record["title"], display(item.read(), rgb)), *drawn])
    rows = [list(chain(*cells[start : start + 3])) for start in range(0, len(cells), 3)]
    if rows:
        drawing.save_image(output.path("contact_sheet.png"), drawing.contact_sheet(rows))
