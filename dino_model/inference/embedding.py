"""Features of a collection in one file: .npz, .csv or .safetensors, with names and labels.

Features are streamed from a cache on disk next to the file. Memory does not grow with the collection, and an
interrupted computation continues.
"""

import csv
import json
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dino_model.data.collection import Images
from dino_model.inference.feature_cache import model_fingerprint
from dino_model.inference.features import FeatureExtractor, find_readable
from dino_model.inference.quantities import unit_vectors
from dino_model.runtime import ranks
from dino_model.runtime.errors import pluralize
from dino_model.runtime.files import printable, replace_file

ROWS_AT_ONCE = 1024
UNITS = "unit vectors"
"""Entry of the metadata of an index for `search`: features are stored in length 1, as float16."""
_DTYPES = {"F16": "<f2", "F32": "<f4", "U8": "u1"}
Shape = tuple[int, ...]
Chunks = Iterator[NDArray[np.float32]]


class FeatureTable(NamedTuple):
    """Content of a feature file.

    Attributes:
        features: float32 [images, width], or [images, tokens, width]; float16 with `UNITS`. Mapped from a
            .safetensors file.
        names: Paths of the images in their collection, as `printable`.
        labels: Class of each image, several joined by "|"; None without classes.
        metadata: Settings of the features; empty in a .csv file.
    """

    features: NDArray[np.float32]
    names: list[str]
    labels: list[str] | None
    metadata: dict[str, str]


def embed(
    images: Images, extractor: FeatureExtractor, output: Path, settings: Mapping[str, str] | None = None
) -> None:
    """Write the features of images to a file; images that cannot be read are named and left out.

    The ranks of a process group share the work. Finished rows of an interrupted call are used again. The
    suffix of `output` is the format; `settings` are further entries of the metadata.

    Raises:
        ValueError: An unknown suffix, a model without such tokens, or no readable image.
    """
    model, kind = extractor.model, extractor.kind
    check_suffix(output, kind.tokens)
    images = replace(images, channel_range=model.channel_range)
    print(f"{model.name}: {model.source}; {images}", flush=True)
    cache = output.with_name(f".{output.name}.parts")
    rows = replace(extractor, cache=cache).rows(images, None, pluralize(len(images), "image"))
    if ranks.rank() > 0:
        return
    numbers, broken = find_readable(images, rows)
    if broken:
        print(f"left out ({len(broken)}): {'; '.join(broken)}")
    subset = images.subset(numbers)
    labels = ["|".join(subset.label_names(number)) for number in range(len(subset))]
    metadata = {"format": "features", "model": model.name, "weights": model_fingerprint(model.backbone)}
    metadata |= {"tokens": kind.tokens, "layers": str(kind.blocks), "size": str(extractor.framing.size)}
    metadata["feature"] = kind.describe(model.backbone)
    names = [printable(name) for name in subset.names]
    table = FeatureTable(
        rows.numpy(), names, labels if subset.classes else None, metadata | dict(settings or {})
    )
    write_features(output, table, np.array(numbers))
    rmtree(cache)
    print(f"{pluralize(len(subset), 'image')}, {metadata['feature']}: {output}")


def check_suffix(path: Path, tokens: str = "output") -> None:
    """Raise ValueError for a file that features cannot be written to or read from."""
    if path.suffix not in WRITERS:
        raise ValueError(f"{path} has the suffix {path.suffix!r}, expected one of {', '.join(WRITERS)}")
    if path.suffix == ".csv" and tokens in ("patches", "all"):
        raise ValueError(f"a .csv file holds one vector per image, no {tokens}: choose .npz or .safetensors")


def write_features(path: Path, table: FeatureTable, rows: NDArray[np.intp]) -> None:
    """Write a table in the format of the suffix, whole or not at all; see `read_features`.

    `rows` has the number of the features to write, which may be mapped from a file, for each name.
    """
    check_suffix(path)
    parts = (rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE))
    chunks: Any = (np.ascontiguousarray(table.features[part], dtype="<f4") for part in parts)
    if UNITS in table.metadata:
        chunks = (unit_vectors(chunk).astype("<f2") for chunk in chunks)
    with replace_file(path) as temporary:
        WRITERS[path.suffix](temporary, table, (len(rows), *table.features.shape[1:]), chunks)


def read_features(path: Path) -> FeatureTable:
    """Read a .npz or .safetensors file that `write_features` wrote.

    Raises:
        ValueError: No such file, or one of another kind.
    """
    try:
        return {".npz": _read_npz, ".safetensors": _read_safetensors}[path.suffix](path)
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is no .npz or .safetensors file of this program: {error!r}") from error


def _description(table: FeatureTable) -> bytes:
    return json.dumps([table.names, table.labels, table.metadata]).encode()


def _write_npz(path: Path, table: FeatureTable, shape: Shape, chunks: Chunks) -> None:
    columns: dict[str, Any] = {
        "description": np.frombuffer(_description(table), np.uint8),
        "names": np.array(table.names),
    }
    columns |= {} if table.labels is None else {"labels": np.array(table.labels)}
    np.savez(path, **columns)
    with zipfile.ZipFile(path, "a") as archive, archive.open("features.npy", "w", force_zip64=True) as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for chunk in chunks:
            file.write(chunk.data)


def _read_npz(path: Path) -> FeatureTable:
    with np.load(path) as file:
        return FeatureTable(file["features"], *json.loads(file["description"].tobytes()))


def _write_safetensors(path: Path, table: FeatureTable, shape: Shape, chunks: Chunks) -> None:
    kind = "F16" if UNITS in table.metadata else "F32"
    text, size = _description(table), np.dtype(_DTYPES[kind]).itemsize * math.prod(shape)
    header = {
        "features": {"dtype": kind, "shape": shape, "data_offsets": [0, size]},
        "description": {"dtype": "U8", "shape": [len(text)], "data_offsets": [size, size + len(text)]},
    }
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for chunk in chunks:
            file.write(chunk.data)
        file.write(text)


def _read_safetensors(path: Path) -> FeatureTable:
    with path.open("rb") as file:
        if (size := int.from_bytes(file.read(8), "little")) > path.stat().st_size:
            raise ValueError("it has no header")
        header = json.loads(file.read(size))
    columns = {}
    for name in ("features", "description"):
        kind, start = header[name]["dtype"], 8 + size + header[name]["data_offsets"][0]
        columns[name] = np.memmap(path, _DTYPES[kind], "c", start, tuple(header[name]["shape"]))
    return FeatureTable(columns["features"], *json.loads(columns["description"].tobytes()))


def _write_csv(path: Path, table: FeatureTable, shape: Shape, chunks: Chunks) -> None:
    rows = (row.tolist() for chunk in chunks for row in chunk)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", "label", *range(shape[1])])
        for name, label, row in zip(table.names, table.labels or [""] * shape[0], rows, strict=True):
            writer.writerow([name, label, *row])


WRITERS: dict[str, Callable[[Path, FeatureTable, Shape, Chunks], None]] = {
    ".npz": _write_npz,
    ".csv": _write_csv,
    ".safetensors": _write_safetensors,
}
