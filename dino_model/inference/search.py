"""Search by features: exact nearest neighbors, and an index of a folder that images are searched in."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageOps
from torch import Tensor
from torch.nn.functional import normalize

from dino_model.data.collection import Images, open_images
from dino_model.data.framing import Box, Framing
from dino_model.inference.embedding import read_features
from dino_model.inference.feature_cache import model_fingerprint
from dino_model.inference.features import FeatureExtractor
from dino_model.models.load import load_model
from dino_model.runtime import files, ranks
from dino_model.runtime.device import Precision
from dino_model.runtime.files import printable

TILE = 112
"""Longest side of the images of a contact sheet in pixels."""
_MARGIN, _LINE = 6, 16
_MAX_PRODUCT_BYTES = 2**28


class UnitVectors:
    """Features of length 1 that many queries are compared with.

    Args:
        features: [features, width], of any length.
        device: Where products are computed. Default: that of the features.

    Raises:
        ValueError: Features that are not finite.
    """

    def __init__(self, features: Tensor, device: torch.device | str | None = None) -> None:
        check_finite(features)
        self.vectors = normalize(features.to(device or features.device).float(), dim=1)


def check_finite(features: Tensor) -> None:
    """Raise ValueError for features that are not finite."""
    if not features.isfinite().all():
        raise ValueError("Features hold NaN or infinity: the model is broken, or needs precision fp32.")


def nearest(queries: Tensor, database: UnitVectors, count: int) -> tuple[Tensor, Tensor]:
    """Find the most similar features of a database.

    Of several processes, each with the same arguments, each searches with its share of the queries. At most
    256 MB of products are in memory.

    Args:
        queries: [queries, width], of any length.
        database: Features to search, [features, width].
        count: Features per query, at most as many as there are.

    Returns:
        Cosines and numbers of the features, most similar first: [queries, count] both, on the queries'
        device. Which of several equally similar ones comes last is undefined.

    Raises:
        ValueError: Features that are not finite or of different widths.
    """
    features = database.vectors
    if queries.shape[1] != features.shape[1]:
        raise ValueError(
            f"Queries have {queries.shape[1]} values, the database {features.shape[1]}: use one model for"
            " both."
        )
    check_finite(queries)
    at_once = max(1, _MAX_PRODUCT_BYTES // (4 * len(features)))

    def search(numbers: range) -> Tensor:
        """Cosines and numbers for these queries: float64 [queries, 2, count], exact for both."""
        results = []
        for chunk in queries[numbers.start : numbers.stop].split(at_once):
            products = normalize(chunk.to(features.device).float(), dim=1) @ features.T
            values, places = products.topk(min(count, len(features)), dim=1)
            results.append(torch.stack([values.cpu().double(), places.cpu().double()], dim=1))
        return torch.cat(results)

    rows = ranks.gather_rows(search, range(len(queries)))
    assert rows is not None
    cosines, places = rows.to(queries.device).unbind(1)
    return cosines.float(), places.long()


@dataclass(frozen=True)
class Index:
    """Features of a folder, its images, and the model that queries go through."""

    names: list[str]
    features: UnitVectors
    """Outputs of the model: float32 [names, width]."""
    images: Images
    """The indexed images, in the order of the names."""
    extractor: FeatureExtractor

    def search(self, image: NDArray[np.uint8], count: int, box: Box | None = None) -> list[tuple[str, float]]:
        """Find the images that are most similar to an image [height, width, 3], or to a part of it.

        Returns:
            Names and cosine similarities of at most `count` images, most similar first.
        """
        query = self.extractor.feature(image, box)[None]
        cosines, numbers = nearest(query, self.features, count)
        return [
            (self.names[i], value) for i, value in zip(numbers[0].tolist(), cosines[0].tolist(), strict=True)
        ]

    def read(self, name: str) -> NDArray[np.uint8]:
        """Read an image of the index: uint8 [height, width, 3]."""
        return self.images.read(self.names.index(name))


def open_index(
    path: Path, *, model: str | None = None, precision: Precision = "auto", device: str = "auto"
) -> Index:
    """Read an index and load its model.

    Args:
        path: File of `python -m dino_model index`, or of `embed` with the tokens `output`.
        model: Name of the index's model. Default: the name in the file.
        precision, device: Of the forward pass of queries.

    Raises:
        ValueError: No index, another file, missing images, or another model behind the name.
    """
    if not path.is_file():
        command = f"python -m dino_model index FOLDER --output {path}"
        raise ValueError(f"{path} does not exist. Create it with `{command}`.")
    table = read_features(path)
    key = table.metadata
    if key.get("tokens") != "output":
        found = key.get("feature", "features of unknown tokens")
        raise ValueError(f"{path} holds {found}, expected the output of the model: index the images.")
    images = open_images(key["root"])
    known = {printable(name): number for number, name in enumerate(images.names)}
    if missing := [name for name in table.names if name not in known]:
        raise ValueError(
            f"{len(missing)} images of {path} are not in {images.root}, such as {missing[0]}: index it again."
        )
    named_by, checkpoint = None if model else path, json.loads(key["checkpoint"])
    loaded = load_model(model or key["model"], **checkpoint, named_by=named_by)
    if model_fingerprint(loaded.backbone) != key["weights"]:
        raise ValueError(f"{path} was made with other weights of {key['model']}: index it again.")
    framing = Framing(int(key["size"]), loaded.mean, loaded.std)
    extractor = FeatureExtractor(loaded, framing, precision=precision, device=device)
    images = images.subset(known[name] for name in table.names)
    return Index(list(table.names), UnitVectors(torch.from_numpy(table.features)), images, extractor)


def write_contact_sheet(path: Path, rows: Sequence[Sequence[tuple[NDArray[np.uint8], str]]]) -> None:
    """Write rows of thumbnails, each with a line of text below it, to a .jpg or .png file.

    Args:
        path: File to write.
        rows: Images uint8 [height, width, 3] and their texts.
    """
    width, height = TILE + _MARGIN, TILE + _LINE + _MARGIN
    size = max(map(len, rows)) * width + _MARGIN, len(rows) * height + _MARGIN
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    for row, tiles in enumerate(rows):
        for column, (image, text) in enumerate(tiles):
            left, top = _MARGIN + column * width, _MARGIN + row * height
            tile = ImageOps.pad(Image.fromarray(image), (TILE, TILE), color="white", centering=(0.5, 1))
            sheet.paste(tile, (left, top))
            while draw.textlength(text) > TILE:
                text = text[: len(text) // 2 - 1] + "…" + text[len(text) // 2 + 1 :]  # from the middle
            draw.text((left, top + TILE + 2), text, fill="black")
    with files.replace_file(path) as temporary:
        sheet.save(temporary, quality=90)
