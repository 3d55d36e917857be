"""The command `python -m dino_model class-map`. It imports torch when it runs, not for `--help`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dino_model.data.classes import LabelOptions
from dino_model.inference.options import FeatureOptions, ModelOptions
from dino_model.runtime.files import printable
from dino_model.runtime.outputs import PROVENANCE, check_output_folder, write_provenance

if TYPE_CHECKING:
    from dino_model.data.collection import Images


@dataclass(frozen=True)
class DrawClassMap(LabelOptions, FeatureOptions, ModelOptions):
    """Draw every class as a point near classes with similar features: mean features, PCA, t-SNE.

    Writes a folder with map.json, the figure map.png and thumbnails.jpg, an image of every class. The app
    shows the map if the folder is in its --models-dir.
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
    iterations: int = 5000
    """Iterations of t-SNE, at least 250."""
    seed: int = 0
    """Seed of t-SNE."""

    def run(self) -> None:
        """Compute features, draw the map, write it, print its quality.

        Raises:
            ValueError: Fewer than three classes, or a model or images that cannot be used.
        """
        check_output_folder(self.output, overwrite=self.overwrite)
        from dino_model.data.collection import open_images
        from dino_model.data.framing import Framing
        from dino_model.inference.class_map import files, layout
        from dino_model.inference.feature_cache import weights_fingerprint
        from dino_model.inference.features import OUTPUT
        from dino_model.runtime import ranks
        from dino_model.runtime.device import choose_device

        def list_images() -> Images:
            images = open_images(self.data, options=self.label_options()).require_classes()
            layout.check_classes(_classes_of(images))
            return images

        with ranks.process_group(choose_device(self.device)) as device:
            images = ranks.on_first(list_images, ranks.LISTING_LIMIT)
            model = self.load()
            framing = Framing(self.size, model.mean, model.std, self.resize_to)
            print(f"{model.name}: {model.source}; {images}", flush=True)
            extracted = self.extractor(model, framing, device=str(device)).extract(images, title="features")
            if ranks.rank() > 0:
                return
        protocol = layout.Protocol(iterations=self.iterations, seed=self.seed)
        origin = layout.Origin(
            model=printable(model.name),
            weights=weights_fingerprint(model.backbone),
            feature=OUTPUT.describe(model.backbone),
            data=printable(self.data.stem),
            framing=framing,
        )
        count = len(set(_classes_of(extracted.images)))
        seconds = layout.tsne_seconds(count, self.iterations)
        print(f"t-SNE of {count:,} classes: about {seconds:,.0f} s on one core", flush=True)
        drawn = layout.draw(extracted.features, _classes_of(extracted.images), protocol, origin)
        labels = _classes_of(extracted.images)
        firsts = [extracted.images.read(labels.index(point.key))[..., :3] for point in drawn.classes]
        settings = {"model": model.name, "precision": self.chosen_precision(), "framing": asdict(framing)}
        settings |= asdict(protocol) | {"data": str(self.data), "reading": images.reading}
        contents = files.render(drawn, firsts)
        write_provenance(self.output / PROVENANCE, settings, contents=[*contents])
        files.write(self.output, contents)
        print(f"{len(drawn.classes):,} classes, {len(extracted.images):,} images: {self.output}")
        print(f"feature: {origin.feature}", drawn.protocol, drawn.overlap, sep="\n")


def _classes_of(images: Images) -> list[str]:
    """The folder of every image."""
    return [images.classes[label] for label in images.labels or ()]
