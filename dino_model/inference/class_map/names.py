"""Names and coarse groups of known classes: ImageNet's WordNet ids and the folders of Caltech-101.

Names of WordNet ids are timm's (the first lemma). `tables/imagenet1k_groups.csv` has the groups of
ImageNet-1k: the first of these WordNet 3.0 synsets that is the class or above it. dog: dog; bird: bird; other
mammal: mammal; fish, reptile, amphibian: these three; invertebrate: animal; vehicle: vehicle, public
transport; food: food in either sense; plant, fungus: plant, fungus, plant part; clothing: clothing, footwear;
building, landscape: structure, geological formation; household: furniture, container, durables, appliance,
fabric; tool, device: artifact; other: none. WordNet 3.0 is copyright 2006 by Princeton University,
https://wordnet.princeton.edu. The groups of Caltech-101 were chosen by hand.
"""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from timm.data import ImageNetInfo

TABLES = Path(__file__).parent / "tables"
WORDNET_ID = re.compile(r"n\d{8}")
OTHER = "other"
GROUPS = (
    "dog",
    "other mammal",
    "bird",
    "fish, reptile, amphibian",
    "invertebrate",
    "plant, fungus",
    "food",
    "vehicle",
    "clothing",
    "building, landscape",
    "household",
    "tool, device",
    OTHER,
)


class ClassName(NamedTuple):
    """Name in words, unique in a collection, and one of `GROUPS`."""

    name: str
    group: str


def describe(classes: Sequence[str]) -> tuple[ClassName, ...]:
    """Return name and group of every class, in their order.

    Known are collections whose folders are all named by WordNet ids, or all as in Caltech-101. Others keep
    the names of their folders.
    """
    if all(map(WORDNET_ID.fullmatch, classes)):
        return _wordnet(classes)
    caltech = {row["class"]: ClassName(row["name"], row["group"]) for row in _rows("caltech101.csv")}
    if not caltech.keys() >= set(classes):
        caltech = {}
    return tuple(caltech.get(name, ClassName(name, OTHER)) for name in classes)


def _wordnet(ids: Sequence[str]) -> tuple[ClassName, ...]:
    groups = {row["class"]: row["group"] for row in _rows("imagenet1k_groups.csv")}
    words = ImageNetInfo().label_name_to_description
    names = []
    for synset in ids:
        try:
            names.append(words(synset).split(",")[0])
        except KeyError:  # ImageNet does not have it
            names.append(synset)
    times = Counter(names)
    return tuple(
        ClassName(name if times[name] == 1 else f"{name} ({synset})", groups.get(synset, OTHER))
        for synset, name in zip(ids, names, strict=True)
    )


def _rows(table: str) -> list[dict[str, str]]:
    with (TABLES / table).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
