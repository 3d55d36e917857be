"""Small collections for the tests of folders, tables and shards."""

import io
import tarfile
from pathlib import Path

from dino_model.data.classes import LabelOptions
from dino_model.data.collections import Images, open_images
from dino_model.data.images import ImageError


def make_folder(root: Path, names: str) -> Path:
    """Make files whose content is their name."""
    for name in names.split():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    return root


def make_tar(path: Path, members: dict[str, str]) -> Path:
    """Make a tar of these files."""
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content.encode("utf-8", "surrogateescape"))
            tar.addfile(info, io.BytesIO(content.encode("utf-8", "surrogateescape")))
    return path


def class_names(images: Images) -> list[str]:
    """Return the classes of each image."""
    return ["|".join(images.label_names(index)) for index in range(len(images))]


def read_labels(source: Path | list[Path], **options) -> str:
    """Return the class of each labeled image behind its split, or the options that a refusal names."""
    try:
        images = open_images(source, options=LabelOptions(**options)).require_classes()
    except ImageError as error:
        text = str(error)
        return "refused: " + " ".join(
            sorted({word.strip("(),.:") for word in text.split() if word[:2] == "--"})
        )
    splits = images.splits or [""] * len(images)
    pairs = zip(splits, class_names(images), strict=True)
    return " ".join((f"{split}:" if images.splits is not None else "") + name for split, name in pairs)
