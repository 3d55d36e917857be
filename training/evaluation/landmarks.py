"""Revisited Oxford and Paris as published: FOLDER/NAME/jpg and FOLDER/NAME/gnd_NAME.pkl."""

import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dino_model.images import Images
from dino_model.views import Box
from training.evaluation.retrieval import Relevance

Name = Literal["roxford5k", "rparis6k"]
SOURCE = (
    "http://cmp.felk.cvut.cz/revisitop (roxford5k: 5,063 pictures, about 2 GB; rparis6k: 6,392, about 3 GB)"
)
_PLAIN = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("_codecs", "encode"),
}
"""What arrays are pickled with; nothing else is called."""


@dataclass(frozen=True)
class Landmarks:
    """Pictures, queries and what is right."""

    database: Images
    queries: Images
    boxes: tuple[Box, ...]
    """Of each query what of its picture is asked for, in pixels."""
    relevance: tuple[Relevance, ...]


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PLAIN:
            raise pickle.UnpicklingError(f"it would run {module}.{name}")
        return super().find_class(module, name)


def open_landmarks(folder: Path, name: Name) -> Landmarks:
    """A benchmark as it lies on disk.

    Args:
        folder: that holds `roxford5k` and `rparis6k`.
        name: which of the two.

    Raises:
        ValueError: something is missing (what was expected where, and where it comes from), or is not a
            ground truth file, or one of other pictures.
    """
    place = folder / name
    truth = next((p for p in (place / f"gnd_{name}.pkl", place / f"gnd_{name}.json") if p.is_file()), None)
    if truth is None or not (place / "jpg").is_dir():
        missing = place / "jpg" if truth else place / f"gnd_{name}.pkl"
        raise ValueError(f"{missing} is not there: {name} is published at {SOURCE}")
    content = _read(truth)
    try:
        database, queries = (
            _pictures(place / "jpg", tuple(content[key]), truth) for key in ("imlist", "qimlist")
        )
        boxes = tuple(_box(one["bbx"]) for one in content["gnd"])
        relevance = tuple(
            Relevance(*(tuple(int(i) for i in one[kind]) for kind in ("easy", "hard", "junk")))
            for one in content["gnd"]
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{truth} is no ground truth of {name}: it lacks {error}") from error
    if len(queries) != len(relevance):
        raise ValueError(f"{truth} names {len(queries)} queries and tells of {len(relevance)}: it is damaged")
    return Landmarks(database, queries, boxes, relevance)


def _box(numbers: Any) -> Box:
    left, top, right, bottom = (float(number) for number in numbers)
    return left, top, right, bottom


def _read(file: Path) -> Any:
    """Lists, dictionaries, numbers and arrays; a pickle that would do more is refused."""
    try:
        if file.suffix == ".json":
            return json.loads(file.read_text(encoding="utf-8"))
        with file.open("rb") as stream:
            return _PlainUnpickler(stream, encoding="latin1").load()
    except pickle.UnpicklingError as error:
        raise ValueError(f"{file} is refused: {error}, and only plain data are read") from error
    except (ValueError, EOFError, ImportError, AttributeError, IndexError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error


def _pictures(folder: Path, names: tuple[str, ...], truth: Path) -> Images:
    files = tuple(f"{name}.jpg" for name in names)
    missing = [name for name in files if not (folder / name).is_file()]
    if missing:
        raise ValueError(
            f"{truth.name} names {len(files):,} pictures, {len(missing):,} of them are not in {folder}, the"
            f" first is {missing[0]}: it is of another data set, or the pictures are not complete ({SOURCE})"
        )
    return Images(files, None, (), folder)
