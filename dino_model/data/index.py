"""Index the images of folders, tars and lists: a table of names, labels and places, cached for tars."""

import hashlib
import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dino_model.data.classes import Labeling, LabelOptions, Split, number_classes
from dino_model.data.folders import is_image, label_by_folders, left_out_folder, walk
from dino_model.data.images import ImageError
from dino_model.data.shards import read_members, read_samples
from dino_model.data.sources import Part
from dino_model.runtime import files
from dino_model.runtime.download import cache_folder
from dino_model.runtime.errors import pluralize
from dino_model.runtime.files import printable

VERSION = 8
"""Version of the cached index of tars."""


class Entry(NamedTuple):
    """An image of the index."""

    name: str
    extent: tuple[int, int, int]
    """Number of the part, offset and size in a tar."""
    classes: tuple[str, ...] | None = None
    """Classes of a list or of WebDataset; None: those of the folders."""
    split: Split = ""
    """Split that a table names."""


class Content(NamedTuple):
    """Images of a part."""

    entries: list[Entry]
    others: int
    """Number of the other files."""
    notes: list[str]
    """Folders and files that are left out."""
    labels: Labeling = Labeling()
    """Reason and reading of a list or of WebDataset; `splits` is empty if the list has some."""
    several: bool = False
    """True if an image of the list can have several classes, or none."""


def open_index(
    parts: Sequence[Part], suffixes: Collection[str], options: LabelOptions
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the table of the images, of tars alone from the cache, and further arguments of `Images`.

    The table has the fields `name` (bytes), `label` (-1: no class), `split` and `extent`. It is sorted by
    name, or by part and then in the order of a list.

    Raises:
        ImageError: No image, or a compressed or damaged tar.
    """
    stores = [part.store for part in parts]
    if not all(store.stamp for store in stores):
        return _index(parts, suffixes, options)
    resolved = [(s.path if isinstance(s.path, str) else s.path.resolve(), *s[1:]) for s in stores]
    content = repr((VERSION, resolved, sorted(suffixes), options))
    path = cache_folder() / "tars" / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.npy"
    if not path.is_file():
        table, facts = _index(parts, suffixes, options)
        try:
            files.write_json(path.with_suffix(".json"), facts)
            with files.replace_file(path) as temporary:
                np.save(temporary, table)
        except OSError:  # without a cache, the index is made each time
            return table, facts
    stored = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    return np.load(path, mmap_mode="r"), {name: files.as_tuples(value) for name, value in stored.items()}


def _index(
    parts: Sequence[Part], suffixes: Collection[str], options: LabelOptions
) -> tuple[np.ndarray, dict[str, Any]]:
    contents = [_content(number, part, suffixes, options, len(parts)) for number, part in enumerate(parts)]
    ignored = sum(content.others for content in contents)
    for part, content in zip(parts, contents, strict=True):
        if not content.entries and (part.store.stamp is None or not any(each.entries for each in contents)):
            kinds = f"found {ignored} files, none of them .jpg, .png, .webp, .bmp, .tif, .gif or .ppm"
            reasons = "; ".join([*content.notes, kinds])
            raise ImageError(f"no images in {printable(str(part.store.path))}: {reasons}")
    if any(part.store.file_list for part in parts):
        order = sorted(range(len(parts)), key=lambda number: parts[number].store.prefix)
        entries = [entry for number in order for entry in contents[number].entries]
    else:
        entries = sorted(({entry.name: entry for content in contents for entry in content.entries}).values())
    found = _label(entries, contents, [part.store.prefix for part in parts], options)
    encoded = [os.fsencode(entry.name) for entry in entries]
    fields = [
        ("name", f"S{max(map(len, encoded))}"),
        ("label", "<i4"),
        ("split", "S5"),
        ("extent", "<i8", (3,)),
    ]
    table = np.empty(len(entries), fields)
    table["name"], table["label"] = encoded, -1 if found.labels is None else found.labels
    table["split"] = [split.encode() for split in found.splits or [""] * len(entries)]
    table["extent"] = [entry.extent for entry in entries]
    return table, {
        "classes": found.classes,
        "label_sets": found.sets,
        "no_classes": found.reason,
        "reading": found.reading,
        "is_divided": found.splits is not None,
        "ignored": ignored,
        "notes": tuple(
            note
            for part, content in zip(parts, contents, strict=True)
            for note in (*part.notes, *content.notes)
        ),
    }


def _label(
    entries: Sequence[Entry], contents: Sequence[Content], prefixes: Sequence[str], options: LabelOptions
) -> Labeling:
    """Label by lists and WebDataset if one has classes, else by sources or folders."""
    if options.sources == "classes":
        if len(prefixes) < 2:
            return Labeling(reason="--sources classes needs several sources, and there is one")
        titles = [printable(prefixes[entry.extent[0]].rstrip("/")) for entry in entries]
        found = number_classes([(title,) for title in titles])
        return found._replace(reading=f"class: source; {printable(entries[0].name)} is {titles[0]!r}")
    has_splits = any(content.labels.splits is not None for content in contents)
    splits = [entry.split for entry in entries] if has_splits else None
    if reason := next((content.labels.reason for content in contents if content.labels.reason), ""):
        return Labeling(reason=reason, splits=splits)
    if any(entry.classes is not None for entry in entries):
        several = any(content.several for content in contents)
        found = number_classes([entry.classes or () for entry in entries], can_be_several=several)
        reading = "; ".join(dict.fromkeys(c.labels.reading for c in contents if c.labels.reading))
        return found._replace(reading=reading, splits=splits)
    names = [entry.name.removeprefix(prefixes[entry.extent[0]]) for entry in entries]
    found = label_by_folders(names, options)
    if len(prefixes) > 1 and not any("/" in name for name in names):
        found = found._replace(
            reason="the sources hold no class folders: pass --sources classes if each is a class"
        )
    return found if splits is None else found._replace(splits=splits)


def _content(
    number: int, part: Part, suffixes: Collection[str], options: LabelOptions, num_parts: int
) -> Content:
    """Return the images of a part."""
    store, prefix, place, table = part.store, part.store.prefix, (number, 0, 0), part.table
    if table is not None:
        entries = [Entry(prefix + row.path, place, row.classes, row.split) for row in table.rows]
        labels = Labeling(reason=table.reason, reading=table.reading, splits=() if table.has_splits else None)
        return Content(entries, 0, [], labels, table.several)
    if store.stamp is None:
        found = walk(Path(store.path))
        names = sorted(name for name in found.names if is_image(name, suffixes))
        notes = _count("folder", "left out", found.left_out) + _count(
            "folder", "cannot be read", found.unreadable
        )
        return Content([Entry(prefix + name, place) for name in names], len(found.names) - len(names), notes)
    members = read_members(store.path, options.class_key)
    tops = {name.partition("/")[0] for name in members.places} if num_parts == 1 else set()
    top = f"{tops.pop()}/" if len(tops) == 1 else ""
    inside = {name: name.removeprefix(top) for name in members.places}
    images = [name for name, short in inside.items() if is_image(short, suffixes)]
    samples = read_samples(members, images, options)
    entries = [
        Entry(
            prefix + inside[name],
            (number, *members.places[name]),
            None if samples.classes is None else samples.classes.get(name, ()),
        )
        for name in images
        if name not in samples.left_out
    ]
    notes = _count("folder", "left out", sorted(set(map(left_out_folder, inside.values())) - {""}))
    notes += _count("image", "left out by --image-key", samples.left_out)
    labels = Labeling(reason=samples.reason, reading=samples.reading)
    return Content(entries, len(inside) - len(images), notes, labels, several=False)


def _count(noun: str, fate: str, names: Sequence[str]) -> list[str]:
    """Count and name folders or files: `3 folders left out: @eaDir, a/.cache, …`."""
    first = ", ".join(map(printable, names[:3])) + (", …" if len(names) > 3 else "")
    return [f"{pluralize(len(names), noun)} {fate}: {first}"] if names else []
