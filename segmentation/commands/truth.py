"""Images with true masks, for every command that compares with them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from dino_model.inference.options import TileOptions
from dino_model.runtime.batch import read_ahead
from dino_model.runtime.errors import pluralize
from dino_model.runtime.outputs import SkippedInputs
from segmentation.annotations import LabelSet, MaskReader, MaskRules, NamedClass, Scope, find_classes
from segmentation.coco import CocoMasks
from segmentation.commands import common
from segmentation.commands.common import InputImage, NamedMaskOptions
from segmentation.datasets import read_names
from segmentation.heads import PatchTask
from segmentation.labels import VOID, DataError, Labels, check_size
from segmentation.mask_files import Listings, find_mask
from segmentation.masks import ImageArray

if TYPE_CHECKING:
    from dino_model.inference.predictor import AttentionPredictor

LabeledImage = tuple[ImageArray, Labels]


@dataclass(frozen=True, kw_only=True)
class TruthOptions:
    """Images and their true masks."""

    images: Path
    """Images: a folder, a tar or a list of paths."""
    masks: Path
    """Folder of masks named after the images (such as SegmentationClass of VOC), or a COCO .json file."""
    image_list: Annotated[Path | None, tyro.conf.arg(name="list")] = None
    """Text file with the names of the images to use, one per line; all by default."""

    def find(self, image_list: Path | None) -> list[InputImage]:
        """Find the images that a list names, in its order, or all images."""
        tiles = self if isinstance(self, TileOptions) else None
        inputs = common.list_inputs(common.open_inputs([self.images], tiles=tiles))
        if image_list is None:
            return inputs
        known = {image.file_name: image for image in inputs}
        names = read_names(image_list, list(known))
        if missing := [name for name in names if name not in known]:
            raise DataError(f"{missing[0]!r} of the list {image_list} is no image of {self.images}")
        return [known[name] for name in names]


class TrueMasks:
    """True masks of images: a folder of mask files, or a COCO file. All are looked at first.

    Attributes:
        images: The images, each with the file of its mask if there is one.
        reader: Of the masks.
        label_set: How a head that is fitted to the masks reads mask files.
        missing: Images without a mask, with the reasons.
        skipped: Images and masks that could not be used.
    """

    def __init__(
        self,
        path: Path,
        images: Sequence[InputImage],
        options: NamedMaskOptions,
        *,
        scope: Scope = "set",
        classes: tuple[NamedClass, ...] = (),
        foreground: bool = False,
        head: PatchTask | None = None,
    ) -> None:
        """Look at the masks of `images`, and print what was found; those of a `head` are read as in its fit.

        Raises:
            DataError: No masks, or values that have no certain meaning.
        """
        self.path, self.foreground, self.skipped = path, foreground, SkippedInputs()
        self.coco: CocoMasks | None = None
        self.missing: dict[str, DataError] = {}
        self._listings: Listings = {}
        if not path.exists():
            raise DataError(f"{path} does not exist; pass a folder of masks or a COCO .json file")
        if path.is_dir():
            if options.crowds:
                raise DataError(f"{path} is a folder, and --crowds is for the iscrowd regions of a COCO file")
            self.images = [self._with_mask(image, options.mask_name or "{stem}") for image in images]
            self.images = self._without_masks()
            if self.images and len(self.missing) == len(self.images):
                raise next(iter(self.missing.values()))
            files = [image.truth for image in self.images if image.truth]
            label_set = head.label_set if head else None
            classes = find_classes(path, classes) if scope == "set" else ()
            rules = MaskRules() if head else options.mask_rules(classes)
            self.reader = MaskReader(files, rules, scope=scope, label_set=label_set)
            self.label_set = self.reader.label_set or LabelSet()
            print(self.reader.table(), flush=True)
        else:
            for field in fields(NamedMaskOptions):
                if field.name != "crowds" and getattr(options, field.name) != field.default:
                    option = f"--{field.name.replace('_', '-')}"
                    raise DataError(f"{path} is a COCO file; leave out {option}, which is for files of masks")
            self.images, self.label_set = [replace(image, truth=path) for image in images], LabelSet()
            self.coco = CocoMasks(path, crowds=options.crowds)
            names = classes or (map(NamedClass, head.names) if head and not foreground else ())
            labels = self.coco.label_set(tuple(names), is_exact=head is None)
            files = [Path(image.file_name) for image in images]
            self.reader = MaskReader(files, label_set=labels, load=self.coco.load)
            notes = [f"note: {note}" for note in self.coco.notes]
            dropped = [f"dropped: {problem}" for problem in self.coco.damaged]
            title = f"{path.name}: {pluralize(self.coco.count, 'annotation')}"
            print(title, self.reader.table(), *notes, *dropped[:5], sep="\n", flush=True)

    def read_one(self, image: InputImage, size: tuple[int, ...]) -> Labels:
        """Read the labels of an image of a size (height, width): uint8 [height, width].

        Raises:
            DataError: A mask that cannot be used.
        """
        if image.file_name in self.missing:
            raise self.missing[image.file_name]
        labels = self.reader.read(Path(image.file_name) if self.coco else image.truth or self.path)
        check_size(f"the mask of {image.file_name}", labels.shape, "its image", size)
        return (
            np.where((labels > 0) & (labels < VOID), 1, labels).astype(np.uint8)
            if self.foreground
            else labels
        )

    def read(
        self, images: Sequence[InputImage], predictor: "AttentionPredictor", title: str
    ) -> Iterator[tuple[InputImage, LabeledImage]]:
        """Read images and labels; those that cannot be used are named and skipped."""
        known = {image.file_name: image for image in self.images}
        images = [image for image in images if image.file_name in known]

        def read(image: InputImage) -> LabeledImage:
            pixels = predictor.check_patches(image.read())
            return pixels, self.read_one(known[image.file_name], pixels.shape)

        return read_ahead(images, read, self.skipped, title)

    def check_files(self, advice: str) -> None:
        """Raise ValueError if a mask is missing, or a mask or annotation cannot be used, before they are."""
        damaged = {path.name: DataError(reason) for path, reason in self.reader.damaged.items()}
        for name, error in (self.missing | damaged).items():
            self.skipped.add(name, error)
        self.check(len(self.images), advice)

    def check(self, total: int, advice: str = "") -> None:
        """Raise ValueError if annotations were damaged, or some of `total` images or their masks."""
        self.skipped.check(total, advice=advice)
        if self.coco:
            annotations = SkippedInputs()
            for problem in self.coco.damaged:
                annotations.add(self.path.name, DataError(problem))
            annotations.check(self.coco.count, "annotations", advice)

    def names(self) -> Sequence[str]:
        """Return the names of labels from 0 on, as far as they are known."""
        if self.foreground:
            return ("background", "foreground")
        label_set = self.reader.label_set or LabelSet()
        count = len(label_set.values)
        return label_set.names or [label_set.name(label) for label in range(count if count < VOID else 0)]

    def settings(self) -> dict[str, Any]:
        """Return what was read, for the provenance and scores."""
        return {"masks": self.reader.describe()}

    def _without_masks(self) -> list[InputImage]:
        """Return the images that are no masks of others, and print how many are.

        Raises:
            DataError: An image is its own mask.
        """
        places = {image.file_name: image.collection.file(image.index).resolve() for image in self.images}
        masks = {image.file_name: image.truth.resolve() for image in self.images if image.truth}
        others = {file for name, file in masks.items() if file != places[name]}
        images = [image for image in self.images if places[image.file_name] not in others]
        for image in images:
            if masks.get(image.file_name) == places[image.file_name]:
                raise DataError(
                    f"the image {image.truth} is its own mask; pass the folder of the masks, or "
                    "--mask-name, such as '{stem}_mask'"
                )
        if count := len(self.images) - len(images):
            print(f"{pluralize(count, 'file')} of the images are masks of others, and no images", flush=True)
        names = {image.file_name for image in images}
        self.missing = {name: error for name, error in self.missing.items() if name in names}
        return images

    def _with_mask(self, image: InputImage, template: str) -> InputImage:
        try:
            return replace(image, truth=find_mask(self.path, image.stem, template, self._listings))
        except DataError as error:
            self.missing[image.file_name] = error
            return image
