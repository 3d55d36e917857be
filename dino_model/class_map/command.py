"""Options of `python -m dino_model class-map`; `class_map.build` does the work."""

from dataclasses import dataclass, field
from pathlib import Path

from dino_model.options import ModelOptions
from dino_model.outputs import check_output_folder


@dataclass(frozen=True)
class DrawClassMap(ModelOptions):
    """Draw every class as a point near classes with similar features: mean features, PCA, t-SNE.

    Writes a folder: map.json, map.csv, map.png (a figure) and thumbnails.webp. The app shows it if it is in
    its --models-dir.
    """

    data: Path
    """Images in a folder for each class: FOLDER, uncompressed TAR or LIST."""
    output: Path
    """Folder to write the map to."""
    overwrite: bool = False
    """Replace an earlier map in that folder."""
    size: int = field(default=224, kw_only=True)
    """Side of the center crop in pixels."""
    resize_to: int | None = None
    """Short side before the crop. Default: --size. ImageNet's protocol is --resize-to 256 --size 224."""
    perplexity: float = 20.0
    """Perplexity of t-SNE; lowered for few classes."""
    iterations: int = 5000
    """Iterations of t-SNE."""
    seed: int = 0
    """Seed of t-SNE."""
    leave_out: tuple[str, ...] = ("BACKGROUND_Google",)
    """Folders that are no class. Default: Caltech-101's."""
    thumbnails: bool = True
    """Write a small image of each class, the one nearest to its mean. Mind the images' licence."""
    batch_size: int = 64
    """Images per forward pass."""
    cache: Path | None = None
    """Folder of the feature cache."""
    json: Path | None = None
    """Write numbers of classes and images, overlap, protocol and times to this file."""

    def run(self) -> None:
        """Check the output folder, then read, compute, write, print."""
        check_output_folder(self.output, overwrite=self.overwrite)
        from dino_model.class_map.build import build

        build(self)
