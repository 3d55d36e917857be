"""Search by features: exact nearest neighbors, and an index of a folder that images are searched in."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from dino_model.data.collection import Images, open_images
from dino_model.data.framing import Box, Framing
from dino_model.inference.embedding import UNITS, read_features
from dino_model.inference.feature_cache import load_same
from dino_model.inference.features import FeatureExtractor
from dino_model.runtime import files, ranks
from dino_model.runtime.files import printable

TILE = 112
"""Longest side of the images of a contact sheet in pixels."""
_MAX_PRODUCT_BYTES = 2**28
_BLOCK = 2**10
"""Features of an index that are compared at once: as floats, they fit the cache of a core."""


class UnitVectors:
    """Features [features, width] of length 1 that many queries are compared with, on a device.

    float16 features are of length 1, such as those of an index, and stay where they are. Others may have any
    length. Raises ValueError for features that are not finite.
    """

    def __init__(self, features: Tensor, device: torch.device | str | None = None) -> None:
        self.vectors, self._lengths = features, list[Tensor]()
        if features.dtype != torch.float16:
            check_finite(features)
            self.vectors = normalize(features.to(device or features.device).float(), dim=1)

    def cosines(self, units: Tensor) -> Tensor:
        """Compare vectors of length 1 with all of these: [queries, width] -> fp32 [queries, features]."""
        if self.vectors.dtype != torch.float16:
            return units @ self.vectors.T
        products, lengths = list[Tensor](), list[Tensor]()
        for part in self.vectors.split(_BLOCK):
            precise = part.float()
            products.append(units @ precise.T)
            if not self._lengths:  # the first time
                lengths.append(precise.norm(dim=1).clamp(min=1e-12))
        self._lengths = self._lengths or [torch.cat(lengths)]  # rounding has changed them
        return torch.cat(products, dim=1).div_(self._lengths[0])


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
        count: Features per query; all of the database if it has fewer.

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
            units = normalize(chunk.to(features.device).float(), dim=1)
            values, places = database.cosines(units).topk(min(count, len(features)), dim=1)
            results.append(torch.stack([values.cpu().double(), places.cpu().double()], dim=1))
        return torch.cat(results)

    rows = ranks.gather_rows(search, range(len(queries)))
    assert rows is not None
    cosines, places = rows.to(queries.device).unbind(1)
    return cosines.float(), places.long()


@dataclass(frozen=True)
class SearchIndex:
    """Features of a folder, its images, and the model that queries go through."""

    names: list[str]
    features: UnitVectors
    """Outputs of the model: float16 [names, width], mapped from the file."""
    images: Images
    """The indexed images, in the order of the names."""
    extractor: FeatureExtractor

    def search(self, image: NDArray[np.uint8], count: int, box: Box | None = None) -> list[tuple[str, float]]:
        """Find the images that are most similar to an image [height, width, 3], or to a part of it.

        Returns names and cosine similarities of at most `count` images, most similar first.
        """
        query = self.extractor.feature(image, box)[None]
        cosines, numbers = nearest(query, self.features, count)
        names = (self.names[number] for number in numbers[0].tolist())
        return [*zip(names, cosines[0].tolist(), strict=True)]

    def read(self, name: str) -> NDArray[np.uint8]:
        """Read an image of the index: uint8 [height, width, 3]."""
        return self.images.read(self.names.index(name))


def open_search(path: Path, *, model: str | None = None, **compute: Any) -> SearchIndex:
    """Read a file of `python -m dino_model index` and load its model, by its name or another one.

    `compute` has precision and device of the forward pass of queries.

    Raises:
        ValueError: No index, another file, missing images, or another model behind the name.
    """
    if not path.is_file():
        command = f"python -m dino_model index FOLDER --output {path}"
        raise ValueError(f"{path} does not exist. Create it with `{command}`.")
    table = read_features(path)
    key = table.metadata
    if UNITS not in key:
        raise ValueError(f"{path} is no index: write one with `python -m dino_model index`.")
    images = open_images(key["root"])
    known = {printable(name): number for number, name in enumerate(images.names)}
    if missing := [name for name in table.names if name not in known]:
        raise ValueError(
            f"{len(missing)} images of {path} are not in {images.root}, such as {missing[0]}: index it again."
        )
    loaded = load_same(path, key["model"], key["weights"], model, **json.loads(key["checkpoint"]))
    extractor = FeatureExtractor(loaded, Framing(int(key["size"]), loaded.mean, loaded.std), **compute)
    images = images.subset(known[name] for name in table.names)
    return SearchIndex(table.names, UnitVectors(torch.from_numpy(table.features)), images, extractor)


def write_contact_sheet(path: Path, rows: Sequence[Sequence[tuple[NDArray[np.uint8], str]]]) -> None:
    """Write rows of images uint8 [height, width, 3], each with a text below it, to a .jpg or .png file."""
    from matplotlib.figure import Figure  # half a second to import

    columns = max(map(len, rows))
    figure = Figure(figsize=(1.3 * columns, 1.45 * len(rows)), dpi=TILE, layout="constrained")
    for line, tiles in zip(figure.subplots(len(rows), columns, squeeze=False), rows, strict=True):
        for axes in line:
            axes.axis("off")
        for axes, (image, text) in zip(line, tiles, strict=False):
            small = Image.fromarray(image)
            small.thumbnail((TILE, TILE))
            axes.imshow(small)
            axes.set_title(text if len(text) < 29 else f"{text[:13]}…{text[-14:]}", fontsize=6, y=-0.15)
    with files.replace_file(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:])
