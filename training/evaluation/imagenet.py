"""ImageNet-1k as its publisher packs it: two tars of pictures, and the kit that names the classes."""

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.io import loadmat

from dino_model.images import Images, open_images

TRAIN, VAL, KIT = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar", "ILSVRC2012_devkit_t12"
SOURCE = "https://image-net.org/challenges/LSVRC/2012 (138 and 6.3 GB; the kit 2.5 MB)"


def is_published(folder: Path) -> bool:
    """Whether a folder holds ImageNet's own tar of training pictures."""
    return (folder / TRAIN).is_file()


def open_published(folder: Path) -> tuple[Images, Images]:
    """Training and validation pictures with their classes, read where they lie in the tars.

    Raises:
        ImageError: a tar that cannot be read.
        ValueError: a file that is missing (what is expected, where it comes from), or a kit of others.
    """
    for name in (TRAIN, VAL):
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name} is not there: {TRAIN}, {VAL} and {KIT}.tar.gz are at {SOURCE}")
    val = open_images(folder / VAL)
    truth = io.BytesIO(_of_kit(folder, "ILSVRC2012_validation_ground_truth.txt"))
    numbers = np.loadtxt(truth, dtype=int, ndmin=1)
    meta = loadmat(io.BytesIO(_of_kit(folder, "meta.mat")), squeeze_me=True)["synsets"]
    name_of = {int(one["ILSVRC2012_ID"]): str(one["WNID"]) for one in np.atleast_1d(meta)}
    if len(numbers) != len(val):
        raise ValueError(f"the kit names {len(numbers):,} validation pictures, {VAL} holds {len(val):,}")
    names = [name_of[int(number)] for number in numbers]
    classes = tuple(sorted(set(names)))
    place = {name: index for index, name in enumerate(classes)}
    labels = tuple(place[name] for name in names)
    return open_images(folder / TRAIN), replace(val, labels=labels, classes=classes)


def _of_kit(folder: Path, name: str) -> bytes:
    """A file of the kit, unpacked or not."""
    plain, packed = folder / KIT / "data" / name, folder / f"{KIT}.tar.gz"
    if plain.is_file():
        return plain.read_bytes()
    if not packed.is_file():
        raise ValueError(f"{packed} is not there: it tells the classes of {VAL}; from {SOURCE}")
    with tarfile.open(packed, "r:gz") as tar:
        file = tar.extractfile(f"{KIT}/data/{name}")
        assert file is not None
        return file.read()
