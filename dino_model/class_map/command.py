"""`python -m dino_model class-map`: the options; `class_map.build` does the work."""

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
    """Pictures in a folder for each class: FOLDER, uncompressed TAR or LIST."""
    output: Path
    """Folder to write the map to."""
    overwrite: bool = False
    """Replace an earlier map in that folder."""
    size: int = field(default=224, kw_only=True)
    """Side of the centre crop in pixels."""
    resize_to: int | None = None
    """Short side before the crop, --size if left out. ImageNet's protocol is --resize-to 256 --size 224."""
    perplexity: float = 20.0
    """Of t-SNE; lowered where classes are few."""
    iterations: int = 5000
    """Of t-SNE."""
    seed: int = 0
    """Of t-SNE: the same seed draws the same map."""
    leave_out: tuple[str, ...] = ("BACKGROUND_Google",)
    """Folders that are no class; as it stands, Caltech-101's."""
    thumbnails: bool = True
    """Keep a small picture of each class, the one nearest to its mean. Mind the pictures' licence."""
    batch_size: int = 64
    """Pictures at once."""
    cache: Path | None = None
    """Folder that keeps features, so that another map of them takes seconds."""
    json: Path | None = None
    """Write protocol, quality and times to this file."""

    def run(self) -> None:
        """Check the output folder, then read, compute, write, print."""
        check_output_folder(self.output, overwrite=self.overwrite)
        from dino_model.class_map.build import build

        build(self)
