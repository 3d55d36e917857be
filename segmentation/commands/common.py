"""Shared by the commands: input images and their names, checks of options, settings for the provenance."""

import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from dino_model.data.collection import Images, open_images
from dino_model.data.images import ImageError
from dino_model.inference.options import ModelOptions, TileOptions
from dino_model.runtime.errors import pluralize
from segmentation.annotations import MaskReader, MaskRules, NamedClass
from segmentation.labels import VOID, Labels
from segmentation.masks import ImageArray

if TYPE_CHECKING:  # commands import this module before they need PyTorch
    from dino_model.inference.predictor import AttentionPredictor
    from segmentation.propagation import FrameSource


@dataclass(frozen=True)
class InputImage:
    """An image of the inputs of a command."""

    collection: Images
    index: int  # in the collection
    file_name: str  # unique among the inputs, with suffix and "/": `file_name` in COCO files
    name: str  # unique among the inputs, without suffix: result files are named after it
    truth: Path | None = None  # file of its ground truth, where a command has one

    @property
    def files(self) -> list[Path]:
        """Return the files whose change makes results outdated."""
        file = self.collection.file(self.index)
        return [file] if self.truth is None else [file, self.truth]

    @property
    def stem(self) -> str:
        """Return the file name without suffix: masks are named after it."""
        return str(PurePosixPath(self.file_name).with_suffix(""))

    @property
    def title(self) -> str:
        """Return the name with the last folder, which is often the class, for a contact sheet."""
        return "/".join(self.name.split("/")[-2:])

    def read(self) -> ImageArray:
        """Read the image; raises ImageError as `Images.read`."""
        return self.collection.read(self.index)


def open_inputs(sources: Sequence[Path], *, arrays: bool = False, tiles: TileOptions | None = None) -> Images:
    """Open the images of files, folders, tars, lists of paths, and glob patterns; `arrays`: also .npy files.

    What is left out is printed. `tiles` has the size of the largest image that is read.

    Raises:
        ImageError: No input, or as `open_images`.
    """
    if not sources:
        raise ImageError("no image given; pass image files, folders, tars, lists of paths or glob patterns")
    images = open_images(sources, arrays=arrays)
    for note in images.notes:
        print(note, file=sys.stderr)
    return images if tiles is None else replace(images, max_pixels=round(1e6 * tiles.max_megapixels))


def list_inputs(images: Images) -> list[InputImage]:
    """Name images after their files, with the suffix in the name where two differ only in it.

    Raises:
        ImageError: Two images would have one name.
    """
    # Without `..`, results named after an image stay in the output folder.
    paths = [PurePosixPath(*(part for part in name.split("/") if part != "..")) for name in images.names]
    stems = Counter(path.with_suffix("") for path in paths)
    inputs = {}
    for index, path in enumerate(paths):
        stem = path.with_suffix("")
        name = str(stem) + (f"_{path.suffix[1:]}" if stems[stem] > 1 else "")
        if name in inputs:
            raise ImageError(f"several images would write to {name!r}; pass each once, or rename one")
        inputs[name] = InputImage(images, index, str(path), name)
    return list(inputs.values())


SHEET_IMAGES = 30  # on a contact sheet


def choose_evenly(items: Sequence[InputImage]) -> Sequence[InputImage]:
    """Choose the items for a contact sheet, at even distances."""
    return items[:: max(1, -(-len(items) // SHEET_IMAGES))]


@dataclass(frozen=True, kw_only=True)
class MaskOptions:
    """Options of commands that read masks."""

    binary: bool = False
    """Every value of masks other than 0 is object 1, also 255, as in DAVIS-2016."""
    threshold: int | None = None
    """Values of masks from this one on are object 1, the others background, as for antialiased masks."""

    ignore: tuple[str, ...] = ()
    """Values, colors (#rrggbb) or names of classes of masks that are void, like 255."""
    background: str | None = None
    """Color or value of the background of masks. Default: black, 0. none: every color is a class."""
    palette: Literal["index", "color"] | None = None
    """Whether indices or colors of palette masks are the labels, where palettes differ."""

    @property
    def least_value(self) -> int | None:
        """Least value of object 1, if masks have one object."""
        return 1 if self.binary and self.threshold is None else self.threshold

    def mask_rules(self, classes: tuple[NamedClass, ...] = ()) -> MaskRules:
        """Return these options, with names of classes."""
        return MaskRules(self.least_value, self.ignore, self.background, self.palette, classes)

    def mask_reader(self, files: Sequence[Path], title: str = "") -> MaskReader:
        """Look at all masks, and print what their values mean."""
        reader = MaskReader(files, self.mask_rules())
        print(f"{title}{reader.table()}", flush=True)
        return reader


@dataclass(frozen=True, kw_only=True)
class NamedMaskOptions(MaskOptions):
    """Options of commands that find the masks of images by their names."""

    mask_name: str | None = None
    """Name of a mask without suffix, such as {stem}_mask. None: that of its image. Or OLD=NEW to replace a
    part of an image name."""
    crowds: bool = False
    """Regions of a COCO file with iscrowd are objects. Default: void."""


def check_head(head: int, predictor: "AttentionPredictor") -> None:
    """Raise ValueError if the model has no such head."""
    if not 0 <= head < predictor.heads:
        raise ValueError(f"--head is {head}; this model has heads 0 to {predictor.heads - 1}")


def parse_point(text: str | None) -> tuple[int, int] | None:
    """Parse `--point Y,X`; raise ValueError if it is not two whole numbers."""
    if text is None:
        return None
    try:
        y, x = map(int, text.split(","))
    except ValueError:
        raise ValueError(f"--point is {text!r}; expected two whole numbers Y,X, such as 120,200") from None
    return y, x


def propagation_predictor(options: ModelOptions, preset: str) -> "AttentionPredictor":
    """Create the predictor that computes features for label propagation by the named preset."""
    from segmentation.propagation import PRESETS, official_std

    model, precision = options.load(), "fp32" if options.precision == "auto" else options.precision
    std = official_std(model, PRESETS[preset])
    return options.open_predictor(model, options.size, "davis", precision=precision, std=std)


def report_lost(name: str, mask: Labels, source: "FrameSource", preset: str) -> None:
    """Print the objects and pixels of a mask that cannot be followed; `name` begins the lines."""
    from segmentation.propagation import PRESETS, vanished_objects

    for label in vanished_objects(mask, source, PRESETS[preset]):
        fault = "is smaller than a patch and cannot be followed; a larger --size may help"
        print(f"{name}: object {label} {fault}")
    if void := int((mask == VOID).sum()):
        print(f"{name}: {pluralize(void, 'pixel')} of 255 (void) are background")


def model_settings(predictor: "AttentionPredictor") -> dict[str, Any]:
    """Describe the model and its input for the provenance."""
    from dino_model.inference.feature_cache import model_fingerprint
    from dino_model.inference.tiles import TiledPredictor

    tiles: dict[str, Any] = {}
    if isinstance(predictor, TiledPredictor):
        tiles = {"tile": predictor.tile, "overlap": predictor.overlap}
    return tiles | {
        "model": predictor.model.name,
        "weights": model_fingerprint(predictor.model.backbone),
        "precision": predictor.precision,
        "device": predictor.device.type,
        "size": predictor.size,
        "resize": predictor.resize,
    }


def format_settings(title: str, settings: Mapping[str, Any]) -> str:
    """Format settings as lines of text."""
    text = "; ".join(f"{key} {value}" for key, value in settings.items())
    return textwrap.fill(text, 110, initial_indent=f"{title}: ", subsequent_indent=" " * (len(title) + 2))
