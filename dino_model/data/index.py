"""Index the images of folders, tars and lists: a table of names, labels and places, cached for tars."""

import hashlib
import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dino_model.data.images import ImageError
from dino_model.data.labels import Labeling, Split, label_by_folders, number_classes
from dino_model.data.names import is_image, left_out_folder, walk
from dino_model.data.sources import Part
from dino_model.data.tars import read_members
from dino_model.runtime import files
from dino_model.runtime.download import cache_folder
from dino_model.runtime.errors import pluralize
from dino_model.runtime.files import printable

VERSION = 7
"""Version of the cached index of tars."""


class Entry(NamedTuple):
    """An image of the index."""

    name: str
    extent: tuple[int, int, int]
    """Number of the part, offset and size in a tar."""
    classes: tuple[str, ...] | None = None
    """Classes of a list or of WebDataset; None: the folders tell."""
    split: Split = ""
    """Part of the data set that a table names."""


def open_index(parts: Sequence[Part], suffixes: Collection[str]) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the table of the images, of tars alone from the cache, and further arguments of `Images`.

    The table has the fields `name` (bytes), `label` (-1 without classes) and `extent`. It is sorted by name,
    or by part and then in the order of a list.

    Raises:
        ImageError: No image, or a compressed or damaged tar.
    """
    stores = [part.store for part in parts]
    if not all(store.stamp for store in stores):
        return _index(parts, suffixes)
    resolved = [(s.path if isinstance(s.path, str) else s.path.resolve(), *s[1:]) for s in stores]
    key = hashlib.sha256(repr((VERSION, resolved, sorted(suffixes))).encode()).hexdigest()[:32]
    path = cache_folder() / "tars" / f"{key}.npy"
    if not path.is_file():
        table, facts = _index(parts, suffixes)
        try:
            files.write_json(path.with_suffix(".json"), facts)
            with files.replace_file(path) as temporary:
                np.save(temporary, table)
        except OSError:  # without a cache, the index is made each time
            return table, facts
    stored = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    return np.load(path, mmap_mode="r"), {name: files.as_tuples(value) for name, value in stored.items()}


def _index(parts: Sequence[Part], suffixes: Collection[str]) -> tuple[np.ndarray, dict[str, Any]]:
    groups: list[list[Entry]] = []
    notes: list[str] = []
    ignored = 0
    for number, part in enumerate(parts):
        entries, others, left_out = _entries(number, part, suffixes, len(parts) == 1)
        groups.append(entries)
        ignored, notes = ignored + others, [*notes, *part.notes, *left_out]
        if not entries and (part.store.stamp is None or (number == len(parts) - 1 and not any(groups))):
            kinds = f"found {ignored} files, none of them .jpg, .png, .webp, .bmp, .tif, .gif or .ppm"
            reasons = "; ".join([*left_out, kinds])
            raise ImageError(f"no images in {printable(str(part.store.path))}: {reasons}")
    if any(part.store.file_list for part in parts):
        order = sorted(range(len(parts)), key=lambda number: parts[number].store.prefix)
        entries = [entry for number in order for entry in groups[number]]
    else:
        entries = sorted(({entry.name: entry for group in groups for entry in group}).values())
    found = _labeling(entries, [part.store.prefix for part in parts])
    encoded = [os.fsencode(entry.name) for entry in entries]
    fields = [("name", f"S{max(map(len, encoded))}"), ("label", "<i4"), ("extent", "<i8", (3,))]
    table = np.empty(len(entries), fields)
    table["name"], table["label"] = encoded, -1 if found.labels is None else found.labels
    table["extent"] = [entry.extent for entry in entries]
    splits = tuple(entry.split for entry in entries)
    facts = {"classes": found.classes, "label_sets": found.sets, "no_classes": found.reason}
    return table, facts | {
        "table_splits": splits if any(splits) else None,
        "ignored": ignored,
        "notes": tuple(notes),
    }


def _labeling(entries: Sequence[Entry], prefixes: Sequence[str]) -> Labeling:
    """Classes of lists and WebDataset if an image has one, else those of the folders."""
    if any(entry.classes for entry in entries):
        return number_classes([entry.classes or () for entry in entries])
    sources = [prefixes[entry.extent[0]] for entry in entries]
    names = [entry.name.removeprefix(source) for entry, source in zip(entries, sources, strict=True)]
    return label_by_folders(names, [source.rstrip("/") for source in sources])


def _entries(
    number: int, part: Part, suffixes: Collection[str], is_single: bool
) -> tuple[list[Entry], int, list[str]]:
    """Return the images of a part, the number of its other files, and the folders that are left out."""
    store, prefix, place = part.store, part.store.prefix, (number, 0, 0)
    if part.rows:
        return [Entry(prefix + row.path, place, row.classes, row.split) for row in part.rows], 0, []
    if store.stamp is None:
        found = walk(Path(store.path))
        names = sorted(name for name in found.names if is_image(name, suffixes))
        notes = _count("left out", found.left_out) + _count("cannot be read", found.unreadable)
        return [Entry(prefix + name, place) for name in names], len(found.names) - len(names), notes
    members = read_members(store.path)
    tops = {name.partition("/")[0] for name in members.places} if is_single else set()
    top = f"{tops.pop()}/" if len(tops) == 1 else ""
    inside = {name.removeprefix(top): name for name in members.places}
    entries = [
        Entry(prefix + short, (number, *members.places[name]), members.classes_of(name))
        for short, name in inside.items()
        if is_image(short, suffixes)
    ]
    left_out = sorted(set(map(left_out_folder, inside)) - {""})
    return entries, len(inside) - len(entries), _count("left out", left_out)


def _count(fate: str, folders: Sequence[str]) -> list[str]:
    """Count and name folders: `3 folders left out: @eaDir, a/.cache, …`."""
    first = ", ".join(printable(name) for name in folders[:3]) + (", …" if len(folders) > 3 else "")
    return [f"{pluralize(len(folders), 'folder')} {fate}: {first}"] if folders else []
