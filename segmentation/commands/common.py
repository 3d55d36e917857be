"""Shared by the commands: input images and their names, checks of options, settings for the provenance."""

import csv
import glob
import io
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dino_model import images
from dino_model.ahead import load_ahead
from dino_model.channels import ARRAY_SUFFIX
from dino_model.collections import open_images
from dino_model.files import write_text
from dino_model.images import ImageError
from dino_model.options import ModelOptions
from dino_model.outputs import SkippedInputs
from dino_model.progress import progress
from dino_model.resize import fed_size
from segmentation.datasets import VocSample
from segmentation.masks import ImageArray

if TYPE_CHECKING:  # commands import this module before they need PyTorch
    from dino_model.predictor import AttentionPredictor


@dataclass(frozen=True)
class InputImage:
    """An image of the inputs of a command."""

    file_name: str  # unique among the inputs, with suffix and "/": `file_name` in COCO files
    name: str  # unique among the inputs, without suffix: result files are named after it
    file: Path  # the image file, or the tar that holds it
    root: Path  # the folder or tar that `file_name` is relative to
    read_bytes: Callable[[], bytes]  # raises ImageError
    shown: str  # name of the file as given, for messages
    label: str | None = None  # name of its class, where the inputs have classes
    truth: Path | None = None  # file of its ground truth, where a command has one

    @property
    def files(self) -> list[Path]:
        """Return the files whose change makes results outdated."""
        return [self.file] if self.truth is None else [self.file, self.truth]

    def read(self) -> ImageArray:
        """Read the image as RGB; raises ImageError as `images.read`."""
        return images.read(self.read_bytes(), name=self.shown)


def image_file(file: Path) -> InputImage:
    """Describe a single image file."""
    shown = str(file)
    return InputImage(file.name, file.stem, file, file.parent, partial(images.read_file, file, shown), shown)


def open_inputs(sources: Sequence[Path], *, arrays: bool = False) -> list[InputImage]:
    """List the images of files, folders, tars, lists of paths, and glob patterns; `arrays`: also .npy files.

    Raises:
        ImageError: No input, nothing at a path, or one image given twice.
    """
    if not sources:
        raise ImageError("no image given; pass image files, folders, tars, lists of paths or glob patterns")
    found = [image for source in sources for path in _expand(source) for image in _open(path, arrays)]
    if len({image.file_name for image in found}) < len(found):  # images of one name in several folders
        parent = Path(os.path.commonpath([image.root.resolve() for image in found]))
        found = [_with_folder(image, parent) for image in found]
    return _with_names(found)


def _expand(source: Path) -> list[Path]:
    if source.exists() or not glob.has_magic(str(source)):
        return [source]
    matches = sorted(map(Path, glob.glob(str(source), recursive=True)))  # noqa: PTH207
    if not matches:
        raise ImageError(f"no file matches {source}")
    return matches


def _open(path: Path, arrays: bool) -> list[InputImage]:
    if not path.exists() and "://" not in str(path):
        raise ImageError(f"{path} does not exist; pass an image, a folder, a tar or a list of paths")
    suffixes = images.SUFFIXES | {ARRAY_SUFFIX} if arrays else images.SUFFIXES
    if path.is_file() and path.suffix.lower() in suffixes:
        return [image_file(path)]
    collection = open_images(path, arrays=arrays)
    root, labels, classes = collection.root, collection.labels, collection.classes
    found = []
    for index, name in enumerate(collection.names):
        if collection.extents is None:
            image = replace(image_file(root / name), root=root)
        else:
            image = InputImage(name, "", root, root, partial(collection.read_bytes, index), name)
        label = None if labels is None else classes[labels[index]]
        found.append(replace(image, file_name=_inside(name), label=label))
    return found


def _inside(name: str) -> str:
    """Remove `..` from a name, so that results named after it stay in the output folder."""
    return "/".join(part for part in name.split("/") if part not in ("", ".", ".."))


def _with_folder(image: InputImage, parent: Path) -> InputImage:
    root = image.root.resolve().relative_to(parent)
    folder = root.with_suffix("") if image.root.is_file() else root
    return replace(image, file_name=_inside(f"{folder.as_posix()}/{image.file_name}"))


def _with_names(found: list[InputImage]) -> list[InputImage]:
    """Name images after their files, with the suffix in the name where two differ only in it."""
    paths = [Path(image.file_name) for image in found]
    stems = Counter(path.with_suffix("") for path in paths)
    named = {}
    for image, path in zip(found, paths, strict=True):
        stem = path.with_suffix("")
        name = stem.as_posix() + (f"_{path.suffix[1:]}" if stems[stem] > 1 else "")
        if name in named:
            raise ImageError(f"several images would write to {name!r}; pass each once, or rename one")
        named[name] = replace(image, name=name)
    return list(named.values())


Item = TypeVar("Item", InputImage, VocSample)
Loaded = TypeVar("Loaded")

SHEET_IMAGES = 30  # on a contact sheet


def choose_evenly(items: Sequence[Item]) -> list[Item]:
    """Choose the items for a contact sheet, at even distances."""
    return list(items[:: max(1, -(-len(items) // SHEET_IMAGES))])


def read_ahead(
    items: Sequence[Item], read: Callable[[Item], Loaded], skipped: SkippedInputs, title: str
) -> Iterator[tuple[Item, Loaded]]:
    """Iterate over the items that can be read, with a progress line `title`; the others go to `skipped`.

    `read` is called in one of several threads; its ValueError says why an item cannot be used.
    """

    def attempt(item: Item) -> Loaded | ValueError:
        try:
            return read(item)
        except ValueError as error:
            return error

    pairs = zip(items, load_ahead(attempt, items), strict=True)
    for item, loaded in progress(pairs, title, len(items)):
        if isinstance(loaded, ValueError):
            skipped.add(item.file_name, loaded)
        else:
            yield item, loaded


def check_patches(image: ImageArray, predictor: "AttentionPredictor") -> ImageArray:
    """Return the image [height, width, 3]; raise ImageError if it gives too many patches."""
    height, width = image.shape[:2]
    fed = fed_size(height, width, predictor.size, predictor.resize, predictor.patch_size)
    rows, columns = (-(-side // predictor.patch_size) for side in fed)
    if rows * columns > predictor.max_patches:
        remedy = "resize or crop the image" if predictor.resize == "native" else "pass a smaller --size"
        raise ImageError(
            f"an image of {height} × {width} pixels gives {rows} × {columns} patches, more than "
            f"{predictor.max_patches:,}; {remedy}, or pass --resize squash"
        )
    return image


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


def check_point(point: tuple[int, int] | None, image: ImageArray) -> None:
    """Raise ImageError if an image does not have the pixel (y, x)."""
    height, width = image.shape[:2]
    if point and not (0 <= point[0] < height and 0 <= point[1] < width):
        raise ImageError(
            f"--point {point[0]},{point[1]} is outside of the image of {height} × {width} pixels "
            "(height × width)"
        )


def propagation_predictor(options: ModelOptions, preset: str) -> "AttentionPredictor":
    """Create the predictor that computes features for label propagation by the named preset."""
    from dino_model.predictor import AttentionPredictor
    from segmentation.propagation import PRESETS, official_std

    model = options.load()
    return AttentionPredictor(
        model,
        size=options.size,
        resize="davis",
        precision="fp32" if options.precision == "auto" else options.precision,
        device=options.device,
        std=official_std(model, PRESETS[preset]),
    )


def model_settings(predictor: "AttentionPredictor") -> dict[str, Any]:
    """Describe the model and its input for the provenance."""
    from dino_model.feature_cache import model_fingerprint

    return {
        "model": predictor.model.name,
        "weights": model_fingerprint(predictor.model.backbone),
        "precision": predictor.precision,
        "device": predictor.device.type,
        "size": predictor.size,
        "resize": predictor.resize,
    }


def write_csv(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV, whole or not at all; the columns are the keys of the first."""
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_text(file, text.getvalue())
