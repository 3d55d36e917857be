"""Shared by the commands: input images and their names, checks of options, settings for the provenance."""

import csv
import glob
import io
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dino_model import images
from dino_model.ahead import load_ahead
from dino_model.collections import Images, open_images
from dino_model.files import write_text
from dino_model.images import ImageError
from dino_model.outputs import SkippedInputs
from dino_model.progress import progress
from dino_model.resize import fed_size
from segmentation.masks import ImageArray

if TYPE_CHECKING:  # commands import this module before they need PyTorch
    from dino_model.predictor import AttentionPredictor


@dataclass(frozen=True)
class InputImage:
    """One image of the inputs of a command.

    Attributes:
        file_name: Unique among the inputs, with suffix and "/": `file_name` in COCO files.
        name: Unique among the inputs, without suffix: result files are named after it.
        file: The image file, or the tar that holds it.
        label: Name of its class, where the inputs have classes.
    """

    file_name: str
    name: str
    file: Path
    label: str | None = None
    collection: Images | None = None
    index: int = 0

    def read(self) -> ImageArray:
        """Read the image.

        Raises:
            ImageError: It cannot be read. The message names the file as given.
        """
        if self.collection is not None and self.collection.extents is not None:
            return self.collection.read(self.index)
        return images.read(self.file, name=str(self.file))


def open_inputs(sources: Sequence[Path]) -> list[InputImage]:
    """List the images of files, folders, tars, lists of paths, and glob patterns of these.

    Raises:
        ImageError: No input, nothing at a path, or one image given twice.
    """
    if not sources:
        raise ImageError("no image given; pass image files, folders, tars, lists of paths or glob patterns")
    found = [image for source in sources for path in _expand(source) for image in _open(path)]
    named = [image.file_name for image in found]
    if len(set(named)) < len(named):  # images of one name in several folders
        parent = Path(os.path.commonpath([image.file.resolve().parent for image in found]))
        found = [replace(image, file_name=_relative(image, parent)) for image in found]
    return _with_names(found)


def _expand(source: Path) -> list[Path]:
    if source.exists() or not glob.has_magic(str(source)):
        return [source]
    matches = sorted(glob.glob(str(source), recursive=True))  # noqa: PTH207
    if not matches:
        raise ImageError(f"no file matches {source}")
    return [Path(match) for match in matches]


def _open(path: Path) -> list[InputImage]:
    if not path.exists() and "://" not in str(path):
        raise ImageError(f"{path} does not exist; pass an image, a folder, a tar or a list of paths")
    if path.is_file() and path.suffix.lower() in images.SUFFIXES:
        return [InputImage(path.name, "", path)]
    collection = open_images(path)
    labels, classes = collection.labels, collection.classes
    return [
        InputImage(
            _inside(name),
            "",
            collection.root / name if collection.extents is None else collection.root,
            None if labels is None else classes[labels[index]],
            collection,
            index,
        )
        for index, name in enumerate(collection.names)
    ]


def _inside(name: str) -> str:
    """Remove leading `..` from a name, so that results named after it stay in the output folder."""
    return "/".join(part for part in name.split("/") if part not in ("", ".", ".."))


def _relative(image: InputImage, parent: Path) -> str:
    if image.collection is None:
        return image.file.resolve().relative_to(parent).as_posix()
    folder = image.collection.root.resolve().relative_to(parent).with_suffix("").as_posix()
    return _inside(f"{folder}/{image.file_name}")


def _with_names(found: list[InputImage]) -> list[InputImage]:
    """Name images after their files, with the suffix in the name where two differ only in it."""
    stems = Counter(Path(image.file_name).with_suffix("").as_posix() for image in found)
    named = []
    for image in found:
        path = Path(image.file_name)
        stem = path.with_suffix("").as_posix()
        suffix = "_" + path.suffix.removeprefix(".") if stems[stem] > 1 else ""
        named.append(replace(image, name=stem + suffix))
    twice = [name for name, count in Counter(image.name for image in named).items() if count > 1]
    if twice:
        raise ImageError(f"several images would write to {twice[0]!r}; pass each once, or rename one")
    return named


def read_images(
    inputs: Sequence[InputImage],
    skipped: SkippedInputs,
    predictor: "AttentionPredictor",
    title: str,
    crop: Callable[[ImageArray], ImageArray] | None = None,
) -> Iterator[tuple[InputImage, ImageArray]]:
    """Iterate over the images that can be read and encoded; the others are added to `skipped`.

    Args:
        inputs: Read ahead by threads.
        skipped: Receives damaged images and images with too many patches.
        predictor: Its resizing decides the number of patches.
        title: Name of the work in the progress line.
        crop: Applied to every image first.
    """
    read = zip(inputs, load_ahead(_read, inputs), strict=True)
    for item, image in progress(read, title, len(inputs)):
        try:
            if isinstance(image, ImageError):
                raise image
            image = image if crop is None else crop(image)
            check_patches(image, predictor)
        except ImageError as error:
            skipped.add(str(item.file_name), error)
            continue
        yield item, image


def _read(item: InputImage) -> ImageArray | ImageError:
    try:
        return item.read()
    except ImageError as error:
        return error


def check_patches(image: ImageArray, predictor: "AttentionPredictor") -> None:
    """Raise ImageError if an image [height, width, 3] gives more patches than the predictor encodes."""
    height, width = image.shape[:2]
    fed = fed_size(height, width, predictor.size, predictor.resize, predictor.patch_size)
    rows, columns = (-(-side // predictor.patch_size) for side in fed)
    if rows * columns > predictor.max_patches:
        remedy = "resize or crop the image" if predictor.resize == "native" else "pass a smaller --size"
        raise ImageError(
            f"an image of {height} × {width} pixels gives {rows} × {columns} patches, more than "
            f"{predictor.max_patches:,}; {remedy}, or pass --resize squash"
        )


def check_at_least(options: object, **least: int) -> None:
    """Raise ValueError for the first option below its least value; names are those of the fields."""
    for name, value in least.items():
        if getattr(options, name) < value:
            option = name.replace("_", "-")
            raise ValueError(f"--{option} is {getattr(options, name)}; expected at least {value}")


def check_head(head: int, predictor: "AttentionPredictor") -> None:
    """Raise ValueError if the model has no such head."""
    if not 0 <= head < predictor.heads:
        raise ValueError(f"--head is {head}; this model has heads 0 to {predictor.heads - 1}")


def parse_point(text: str) -> tuple[int, int]:
    """Parse `--point Y,X`.

    Raises:
        ValueError: Not two whole numbers.
    """
    try:
        y, x = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--point is {text!r}; expected two whole numbers Y,X, such as 120,200") from None
    return y, x


def check_point(point: tuple[int, int], image: ImageArray) -> None:
    """Raise ImageError if an image does not have the pixel (y, x)."""
    height, width = image.shape[:2]
    if not (0 <= point[0] < height and 0 <= point[1] < width):
        raise ImageError(
            f"--point {point[0]},{point[1]} is outside of the image of {height} × {width} pixels "
            "(height × width)"
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


def write_csv(file: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV, whole or not at all; keys that are no column are left out."""
    text = io.StringIO()
    table = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_text(file, text.getvalue())
