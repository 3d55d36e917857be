"""Images with true masks, for the tasks of `python -m segmentation head`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import tyro

from dino_model.inference.options import TileOptions
from dino_model.runtime.outputs import SkippedInputs
from segmentation.coco import CocoLabels
from segmentation.commands import common
from segmentation.commands.common import InputImage
from segmentation.datasets import VOC_CLASSES, read_names
from segmentation.heads import PatchTask
from segmentation.labels import VOID, DataError, Labels, check_size
from segmentation.mask_files import VOC_COLORS, MaskReader, mask_file
from segmentation.masks import ImageArray

if TYPE_CHECKING:
    from dino_model.inference.predictor import AttentionPredictor

Sample = tuple[ImageArray, Labels]


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
    """True masks of images: a folder of mask files, or a COCO file.

    Attributes:
        reader: Of the mask files; unused for a COCO file.
        skipped: Images and masks that could not be used.
    """

    def __init__(
        self,
        path: Path,
        images: Sequence[InputImage],
        *,
        foreground: bool,
        threshold: int | None = None,
        head: PatchTask | None = None,
    ) -> None:
        """Look at the masks of `images`; those of a `head` are read as the ones that it was fitted on."""
        self.path, self.foreground, self.skipped = path, foreground, SkippedInputs()
        self.coco, self.reader = None, MaskReader()
        if not path.exists():
            raise DataError(f"{path} does not exist; pass a folder of masks or a COCO .json file")
        if not path.is_dir():
            self.coco = CocoLabels(path, head.names if head and not foreground else ())
            if threshold is not None:
                raise DataError(
                    f"{path} has no pixel values; pass --foreground instead of --binary or --threshold"
                )
        elif head is None:
            self.reader = MaskReader([self._file(image) for image in images], threshold=threshold)
        else:
            self.reader = MaskReader(threshold=head.threshold, kind=head.mask_kind, values=head.mask_values)
        common.print_numbers((self.coco or self.reader).describe())

    def read(
        self, images: Sequence[InputImage], predictor: "AttentionPredictor", title: str
    ) -> Iterator[tuple[InputImage, Sample]]:
        """Read images and labels; those that cannot be used are named and skipped."""

        def read(image: InputImage) -> Sample:
            pixels = predictor.check_patches(image.read())
            if self.coco:
                labels = self.coco.read(image.file_name, pixels.shape)
            else:
                labels = self.reader.read(self._file(image))
            check_size(f"the mask of {image.file_name}", labels.shape, "its image", pixels.shape)
            if self.foreground:
                labels = np.where(labels == VOID, VOID, labels > 0).astype(np.uint8)
            return pixels, labels

        return common.read_ahead(images, read, self.skipped, title)

    def check(self, total: int) -> None:
        """Raise ValueError if annotations were damaged, or some of `total` images or their masks."""
        self.skipped.check(total)
        if self.coco:
            annotations = SkippedInputs()
            for problem in self.coco.damaged:
                annotations.add(self.path.name, DataError(problem))
            annotations.check(self.coco.annotations, "annotations")

    def names(self) -> Sequence[str]:
        """Return the names of labels from 0 on, as far as they are known."""
        if self.foreground or self.reader.threshold is not None:
            return ("background", "foreground")
        if self.coco:
            return [self.coco.names.get(label, f"class {label}") for label in range(max(self.coco.names) + 1)]
        if self.reader.values not in ((), VOC_COLORS):
            return ["background", *map(self.reader.name, range(1, len(self.reader.values) + 1))]
        return ("background", *VOC_CLASSES) if self.path.name == "SegmentationClass" else ()

    def _file(self, image: InputImage) -> Path:
        return mask_file(self.path, image.stem)
